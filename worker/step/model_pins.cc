#include "worker/step/model_pins.h"

#include <utility>

namespace rubato {

PinMemory PinIn(std::vector<Model*> models) {
  if (!models.front()->is_on_device()) return nullptr;
  return [models = std::move(models)](void* memory, int64_t bytes) -> std::shared_ptr<const void> {
    auto pins = std::make_shared<std::vector<std::shared_ptr<const void>>>();
    for (Model* model : models) {
      pins->push_back(model->Pin(memory, bytes));
      if (pins->back() == nullptr) return nullptr;
    }
    return pins;
  };
}

}  // namespace rubato
