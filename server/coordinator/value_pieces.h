// How the values that a job begins with are cut into messages.
#ifndef RUBATO_SERVER_COORDINATOR_VALUE_PIECES_H_
#define RUBATO_SERVER_COORDINATOR_VALUE_PIECES_H_

#include <cstdint>

namespace rubato {

// Floats of a piece at most: well below the limit of a message.
constexpr int64_t kValuesOfPiece = 256 * 1024;

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_VALUE_PIECES_H_
