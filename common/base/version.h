// Defines the version that --version prints and that peers send to each other.
#ifndef RUBATO_COMMON_BASE_VERSION_H_
#define RUBATO_COMMON_BASE_VERSION_H_

namespace rubato {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_VERSION_H_
