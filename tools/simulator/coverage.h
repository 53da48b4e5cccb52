// Coverage of the randomly drawn cases of the property tests.
#ifndef RUBATO_TOOLS_SIMULATOR_COVERAGE_H_
#define RUBATO_TOOLS_SIMULATOR_COVERAGE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/simulator/fault.h"
#include "tools/simulator/message.h"

namespace rubato {

constexpr int kModes = 3;
// Kinds of faults that a job survives: the first ones.
constexpr uint32_t kSurvivable = static_cast<uint32_t>(Fault::Kind::kKillServer);

// Which faults have struck which messages, in the mode before or after a change: the table of modes
// x faults x messages that the drawn cases must fill.
struct Coverage {
  std::map<std::array<int, 4>, int64_t> struck;  // by mode, mode, Fault::Kind, SimMessage::Kind
  int64_t runs = 0;
  int64_t switches = 0;
  int64_t faults = 0;
  int64_t lost = 0;       // workers
  int64_t scheduled = 0;  // changes of mode that nobody asked for
  int64_t left_out = 0;   // steps and contributions
  int64_t checkpoints = 0;
  int64_t killed = 0;           // runs that ended with a server
  int64_t in_vain = 0;          // of these, for which going back was in vain
  int64_t diverged = 0;         // runs that ended with a gradient that is not finite
  int64_t went_back = 0;        // others that lost one
  int64_t went_back_again = 0;  // more than once
  int64_t kept = 0;             // went on from what the shards had kept
  int64_t lost_power = 0;       // the coordinator's machine did
  int64_t continued = 0;        // were started again after a signal
  int64_t scripts = 0;          // had a script's model
  int64_t resumed = 0;          // second runs, from a checkpoint, that faults struck
  int64_t resumed_on_arrival = 0;
  int64_t stopped = 0;
  int64_t stopped_in_pauses = 0;
  int64_t met_targets = 0;    // stopped by a test
  int64_t reached_times = 0;  // by their time
  int64_t given_ahead = 0;    // runs in which workers were given several contributions at once
  double longest = 0;         // share of the time that a job is given after the last fault

  void Add(const Coverage& other);
  std::string ToString() const;
  // The cells that are empty but must not be.
  std::vector<std::string> Empty() const;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_COVERAGE_H_
