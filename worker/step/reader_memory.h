// Memory from which whoever computes the gradients reads the parameters.
#ifndef RUBATO_WORKER_STEP_READER_MEMORY_H_
#define RUBATO_WORKER_STEP_READER_MEMORY_H_

#include <functional>

#include "absl/types/span.h"

namespace rubato {

// The flat vector there, which is not read from now on until the pull at hand, whose values may be
// written to it, is used, or another is asked for; empty if it may be read. Any thread. An empty
// function is that of a worker whose models read the worker's own memory.
using ReaderMemory = std::function<absl::Span<float>()>;

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_READER_MEMORY_H_
