#include "tools/simulator/shrink.h"

#include <functional>

#include "tools/simulator/apart.h"
#include "tools/simulator/scenario_run.h"

namespace rubato {

bool Fails(const Scenario& scenario) {
  return !RunApart([&scenario] {
            Coverage unused;
            return RunScenario(scenario, &unused);
          }).ok();
}

Scenario Shrink(Scenario scenario, absl::FunctionRef<bool(const Scenario&)> fails) {
  const auto erase = [&](auto Scenario::*list) {
    for (size_t i = 0; i < (scenario.*list).size();) {
      Scenario smaller = scenario;
      (smaller.*list).erase((smaller.*list).begin() + static_cast<int64_t>(i));
      if (fails(smaller)) {
        scenario = smaller;
      } else {
        ++i;
      }
    }
  };
  erase(&Scenario::faults);
  erase(&Scenario::later_faults);
  erase(&Scenario::switches);
  erase(&Scenario::checkpoints);
  erase(&Scenario::stops);
  const std::function<void(Scenario*)> kSimpler[] = {
      [](Scenario* s) { s->first.reset(); },
      [](Scenario* s) { s->comes_late = false; },
      [](Scenario* s) { s->continues = false; },
      [](Scenario* s) { s->power_fails = false; },
      [](Scenario* s) { s->disk_is_full = false; },
      [](Scenario* s) { s->disk_stands_still = false; },
      [](Scenario* s) { s->job.checkpoint_seconds = 0; },
      [](Scenario* s) { s->later_misfit = false; },
      [](Scenario* s) { s->job.schedule.clear(); },
      [](Scenario* s) { s->later_mode = SyncMode(); },
      [](Scenario* s) { s->later_on_arrival = false; },
      [](Scenario* s) { s->job.epochs = 1; },
      [](Scenario* s) { s->job.seconds = 0; },
      [](Scenario* s) { s->job.target = 0; },
      [](Scenario* s) { s->job.learning_rate_parity = true; },
      [](Scenario* s) { s->job.leaves_out = false; },
      [](Scenario* s) { s->job.diverges_in = 0; },
      [](Scenario* s) { s->script_changes = false; },
      [](Scenario* s) { s->job.pieces = 1; },
      [](Scenario* s) { s->job.gives_values = false; },
      [](Scenario* s) { s->job.is_script = false; },
      [](Scenario* s) { s->job.clip_grad_norm = 0; },
      [](Scenario* s) { s->job.top_k = false; },
      [](Scenario* s) { s->job.checkpoint_every = {}; },
      [](Scenario* s) { s->checkpoint_time = 0; },
      [](Scenario* s) { s->job.evaluate_every = {}; },
      [](Scenario* s) { s->test_time = 0; },
      [](Scenario* s) { s->final_test_time = 0; },
      [](Scenario* s) { s->held_back = 0; },
      [](Scenario* s) { s->pulls_ahead = false; },
      [](Scenario* s) { s->ahead = 0; },
      [](Scenario* s) { s->job.min_workers = 1; },
      [](Scenario* s) {
        s->speeds = {"fixed", 1, 1};
      },
      [](Scenario* s) { s->jitter = 0; },
      [](Scenario* s) { s->latency = 0; },
      [](Scenario* s) { s->bytes_per_second = 0; },
      [](Scenario* s) { s->change_bytes_per_second = 0; },
  };
  for (const auto& make_simpler : kSimpler) {
    Scenario simpler = scenario;
    make_simpler(&simpler);
    if (fails(simpler)) scenario = simpler;
  }
  return scenario;
}

}  // namespace rubato
