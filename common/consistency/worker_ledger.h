// What a worker knows about its own work in a lineage. Its policy decides from this what the worker
// does next (common/consistency/policy.h).
#ifndef RUBATO_COMMON_CONSISTENCY_WORKER_LEDGER_H_
#define RUBATO_COMMON_CONSISTENCY_WORKER_LEDGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/space/flat_space.h"
#include "proto/cluster.pb.h"
#include "proto/view.pb.h"

namespace rubato {

struct WorkerLedger {
  proto::View view;  // of its assignments, this worker's grants

  int64_t clock = 0;     // steps: the one at hand; on arrival: contributions computed
  int64_t have = -1;     // the clock that all parameters are here for; below 0: none
  int64_t applied = 0;   // steps, or own contributions, of clocks below are in all blocks
  bool retired = false;  // the last pull said that it computes no more
  bool leaving = false;  // as soon as what it has begun is done

  // By step, of those that may not be done: what it has computed.
  std::map<int64_t, std::vector<Range>> computed;

  // Work that is given out on demand: the units that it has been given and has not begun, in order;
  // how many these are to be; whether more were requested, and whether the last answer was that
  // there are no more.
  std::deque<proto::Work> given;
  int64_t ahead = 1;
  bool has_asked = false;
  bool no_more = false;
};

// What a worker that computes nothing does next.
struct WorkerTask {
  enum class Kind {
    kWait,     // nothing, until something else arrives
    kPull,     // pulls all blocks for `clock`, as its last wish if it `retires`
    kCompute,  // computes `leaves` of `unit` and sends the sums of `nodes`, which make them up
    kIdle,     // says that nothing is left to do in this view
    kLeave,    // goes
  };
  Kind kind = Kind::kWait;
  int64_t clock = 0;
  bool retires = false;
  int64_t unit = 0;
  Range leaves;
  std::vector<Range> nodes;
  bool may_test = false;  // it is this worker that tests what it has pulled, if that is due
};

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_WORKER_LEDGER_H_
