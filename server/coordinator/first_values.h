// Part of the coordinator's core: the values that a job begins with, where a worker has them
// (proto::Layout.gives_values). One worker is asked for them, piece by piece, and the shell saves
// each piece before the next is asked for, so that little of them is ever under way.
#ifndef RUBATO_SERVER_COORDINATOR_FIRST_VALUES_H_
#define RUBATO_SERVER_COORDINATOR_FIRST_VALUES_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "proto/cluster.pb.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/registry.h"

namespace rubato {

class FirstValues {
 public:
  // A piece is so many floats, the last one fewer.
  explicit FirstValues(int64_t piece) : piece_(piece) {}
  // Whether all values are saved, of the layout that workers have now: all may have gone and others
  // have come. If not, makes sure that a worker of `registry` is being asked for them; if the
  // previous one has gone, from the beginning, since workers may have drawn different values.
  bool Fetch(const Registry& registry, coordinator::Outcomes* out);
  // A piece that was not asked for, or is not of the length that was, is dropped.
  void OnPiece(PeerId worker, const proto::InitialValues& piece, coordinator::Outcomes* out);
  // The last piece is saved.
  void OnSaved(coordinator::Outcomes* out);

 private:
  void Ask(coordinator::Outcomes* out);

  int64_t end() const { return std::min(begin_ + piece_, values_); }

  const int64_t piece_;
  proto::Layout layout_;
  int64_t values_ = 0;
  std::optional<PeerId> worker_;  // who is asked
  int64_t begin_ = 0;             // of the piece
  bool saves_ = false;            // the shell has it
  bool is_complete_ = false;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_FIRST_VALUES_H_
