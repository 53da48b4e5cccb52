// The verbs of `rubato` that training does not need, in a program of their own, which `rubato`
// starts. So a first build leaves out the simulator, the benches and the manifests.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "tools/bench/bench.h"
#include "tools/command/simulate.h"
#include "tools/kubernetes/render.h"
#include "tools/replay/replay.h"

namespace rubato {
namespace {

int Main(const std::vector<std::string>& words) {
  SignalWatcher signals;
  std::string verb;
  std::vector<std::string> arguments;
  if (!words.empty() && !words[0].empty() && words[0][0] != '-') {
    verb = words[0];
    arguments.assign(words.begin() + 1, words.end());
  }
  if (verb == "bench") return BenchMain(arguments, signals);
  if (verb == "render") return RenderMain(arguments);
  if (verb == "replay") return ReplayMain(arguments);
  if (verb == "simulate") return SimulateMain(arguments);
  Flags flags("rubato-tools",
              "Bench, render, replay and simulate: the verbs of `rubato` that training does not "
              "need, which `rubato`\nstarts here. `rubato VERB --help` tells about each.",
              {"rubato simulate configs/quickstart.yaml --workers 64"});
  flags.AddPositional(&verb, "VERB ...", "bench, render, replay or simulate");
  if (!verb.empty()) {
    return PrintFailure(absl::InvalidArgumentError(
        absl::StrCat("found the verb ", verb,
                     "; expected bench, render, replay or simulate (see rubato --help)")));
  }
  return flags.Handle(words).value_or(0);
}

}  // namespace
}  // namespace rubato

int main(int argc, char** argv) {
  return rubato::Main(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
