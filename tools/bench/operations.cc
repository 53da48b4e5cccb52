#include "tools/bench/operations.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "tensor/kernels.h"
#include "tools/bench/yardsticks.h"

namespace rubato {

double OperationsOf(const Graph& graph) {
  double operations = 0;
  bool is_first = true;
  for (const Graph::Node& node : graph.nodes) {
    if (node.layer == nullptr) continue;
    const double forward = 2.0 * static_cast<double>(node.layer->multiplications());
    operations += forward * (is_first ? 2 : 3);
    if (node.parameters > 0) is_first = false;
  }
  return operations;
}

absl::StatusOr<double> PeakOfAThread() {
  constexpr int64_t kSize = 768;
  RUBATO_ASSIGN_OR_RETURN(Tensor a, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  RUBATO_ASSIGN_OR_RETURN(Tensor b, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  RUBATO_ASSIGN_OR_RETURN(Tensor c, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  const double seconds = MedianSeconds(
      0.3, [&] { MatMul(a.ref(), Transpose::kNo, b.ref(), Transpose::kNo, c.ref()); });
  return 2.0 * kSize * kSize * kSize / seconds;
}

std::string ShareOfPeak(double speed, double peak) {
  return absl::StrFormat("%.0f %%%s", 100 * speed / peak,
                         speed > peak
                             ? ": not reliable, for the machine was busier when what it can "
                               "reach was measured"
                             : "");
}

}  // namespace rubato
