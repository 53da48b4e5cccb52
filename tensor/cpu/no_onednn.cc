// In place of onednn.cc where the library is not linked: it takes nothing.
#include "common/base/check.h"
#include "tensor/cpu/onednn.h"

namespace rubato {

bool OneDnnTakes(Isa, int64_t, int64_t, int64_t) { return false; }
bool OneDnnTakes(Isa, const Convolution&) { return false; }

void OneDnnGemm(Transpose, Transpose, int64_t, int64_t, int64_t, float, const float*, int64_t,
                const float*, int64_t, float, float*, int64_t) {
  RUBATO_CHECK(false);
}

int64_t OneDnnConvolutionScratch(const Convolution&, int64_t) { return 0; }
bool OneDnnConv2d(const Convolution&, const ConstTensorRef&, const ConstTensorRef&,
                  const ConstTensorRef&, const TensorRef&, const TensorRef&) {
  return false;
}
bool OneDnnConv2dBackward(const Convolution&, const ConstTensorRef&, const ConstTensorRef&,
                          const ConstTensorRef&, const TensorRef&, const TensorRef&,
                          const TensorRef&, const TensorRef&) {
  return false;
}

std::string OneDnnSignature(Isa) { return ""; }

}  // namespace rubato
