// Memory of the host that a worker's devices read and write by themselves.
#ifndef RUBATO_WORKER_STEP_PIN_MEMORY_H_
#define RUBATO_WORKER_STEP_PIN_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace rubato {

// Has them do so with `bytes` (whole pages) as long as what it returns lives, which is given back
// before the memory is, and before the devices go. Null if they do not. An empty function is that
// of a worker without devices. On the thread that computes.
using PinMemory = std::function<std::shared_ptr<const void>(void* memory, int64_t bytes)>;

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_PIN_MEMORY_H_
