// The faults of a simulation, as data: a list of faults, each at one message, that can be drawn at
// random, printed, replayed and shortened.
#ifndef RUBATO_TOOLS_SIMULATOR_FAULT_H_
#define RUBATO_TOOLS_SIMULATOR_FAULT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "tools/simulator/event_queue.h"
#include "tools/simulator/message.h"

namespace rubato {

struct Fault {
  enum class Kind : uint8_t {
    kDelay,       // the message, and what follows on its stream, comes `duration` later
    kDuplicate,   // the message comes twice
    kDrop,        // the message is lost, and its connection with it
    kCut,         // nothing reaches or leaves the end's machine for `duration`
    kFreeze,      // the end's process stands still for `duration`
    kCrash,       // the end's process dies
    kRestart,     // the same, and another is started in its place after `duration`
    kHang,        // the end's process stands still for `duration`, but its heartbeat
    kLeave,       // the end's process is asked to go
    kJoin,        // another worker comes
    kMisfit,      // another worker comes, of another job, version, layout or data set
    kLateEngine,  // the engine of the end, a shard, stands still for `duration`
    kLateTicks,   // the coordinator hears, and looks at no clock for `duration`
    // A job does not survive these, of a server; server 0 is the coordinator too:
    kKillServer,    // it dies
    kFreezeServer,  // it stands still for `duration`, longer than connections bear
    kCutServer,     // nothing reaches or leaves its machine for as long
    kStickEngine,   // its engine stands still for longer than its watch bears
    kBreakControl,  // its control call breaks, of a shard that is apart from the coordinator
  };
  static constexpr std::array<absl::string_view, 18> kKindNames = {
      "delay",      "duplicate",   "drop",          "cut",        "freeze",       "crash",
      "restart",    "hang",        "leave",         "join",       "misfit",       "late engine",
      "late ticks", "kill server", "freeze server", "cut server", "stick engine", "break control"};

  Kind kind = Kind::kDelay;
  int64_t at = 0;       // the message: its number among all that are sent, from 0
  bool sender = false;  // which end of it; else the receiver
  SimTime duration = 0;
  int message = -1;  // SimMessage::Kind that it waits for; below 0: any

  std::string ToString() const {
    return absl::StrFormat("%s at %s %d%s%s", kKindNames[static_cast<size_t>(kind)],
                           message < 0 ? "message" : SimMessage::kKindNames[message], at,
                           kind < Kind::kCut ? "" : (sender ? " (sender)" : " (receiver)"),
                           duration > 0 ? absl::StrCat(" for ", duration, " ns") : "");
  }
};

// Whether a job survives it.
inline bool IsSurvivable(Fault::Kind kind) { return kind < Fault::Kind::kKillServer; }

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_FAULT_H_
