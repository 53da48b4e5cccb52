#include "tools/bench/bench.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "tools/bench/convergence/convergence.h"
#include "tools/bench/kernels.h"
#include "tools/bench/products.h"
#include "tools/bench/step.h"
#include "tools/bench/wire.h"

namespace rubato {

int BenchMain(const std::vector<std::string>& arguments, SignalWatcher& signals) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1),
                                      arguments.end());
  if (what == "step") return BenchStepMain(rest);
  if (what == "products") return BenchProductsMain(rest);
  if (what == "kernels") return BenchKernelsMain(rest);
  if (what == "wire") return BenchWireMain(rest);
  if (what == "convergence") return BenchConvergenceMain(rest, signals);
  std::string target;
  Flags flags("rubato bench",
              "Measures. `rubato bench WHAT --help` tells more.\n"
              "  step         one step of training, local or through servers\n"
              "  products     a step's products of matrices on a GPU, against cuBLAS alone\n"
              "  kernels      optimizers and codecs, against the memory's speed\n"
              "  wire         pushes and pulls between processes, against raw TCP and memory\n"
              "  convergence  which mode reaches a target first",
              {"rubato bench step --model cnn --batch 64 --json", "rubato bench kernels"});
  flags.AddPositional(&target, "WHAT", "step, products, kernels, wire or convergence");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  return PrintFailure(absl::InvalidArgumentError(absl::StrCat(
      "found ", target,
      ", expected step, products, kernels, wire or convergence (see rubato bench --help)")));
}

}  // namespace rubato
