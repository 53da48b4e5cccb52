// Memory of the host that is pinned by models' devices.
#ifndef RUBATO_WORKER_STEP_MODEL_PINS_H_
#define RUBATO_WORKER_STEP_MODEL_PINS_H_

#include <vector>

#include "worker/model/model.h"
#include "worker/step/pin_memory.h"

namespace rubato {

// By the devices of all of the models, which must outlive it; empty if these are on the CPU.
PinMemory PinIn(std::vector<Model*> models);

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_MODEL_PINS_H_
