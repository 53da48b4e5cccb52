// The protocol of a shard around its core (server/shard/shard.h): interprets messages of the
// coordinator and frames of the data streams, refuses invalid frames, and produces the answers.
// Single-threaded and without I/O, like the core; the values are behind ShardValues. The server,
// the replay of a recording and the simulator run this class.
#ifndef RUBATO_SERVER_SHARD_SHARD_PROTOCOL_H_
#define RUBATO_SERVER_SHARD_SHARD_PROTOCOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/consistency/policy.h"
#include "common/space/sum_of_squares.h"
#include "proto/cluster.pb.h"
#include "server/shard/shard.h"
#include "server/shard/shard_event.h"
#include "server/shard/shard_values.h"
#include "server/shard/stream_names.h"

namespace rubato {

// What a shard has when its term is over, for the next one.
struct KeptShard {
  std::unique_ptr<ShardValues> values;
  proto::KeptValues state;
  // By block: in sync the version before, too.
  std::vector<bool> has_previous;
};

class ShardProtocol {
 public:
  // Receives the outcomes of an event, in order, while the event is handled. It is called for each
  // outcome, because an outcome refers to values that the next change may overwrite, and a list
  // would cost an allocation for every frame.
  using Sink = std::function<void(const ShardOutcome& outcome)>;

  // `values` are new. The first view says whether the term goes on with those of `kept` instead.
  ShardProtocol(std::unique_ptr<ShardValues> values, Sink sink,
                PolicyFactory policies = BuiltInPolicy,
                std::optional<KeptShard> kept = std::nullopt)
      : values_(std::move(values)),
        sink_(std::move(sink)),
        policies_(std::move(policies)),
        kept_(std::move(kept)) {}

  // All events enter here. An error, which is also an outcome, is the fault of the frame's sender.
  absl::Status Handle(const ShardEvent& event);

  // Call it last, when the term is over and all streams are broken. Finishes the changes in
  // progress and gives away the values: before the first view, those that it was given; nullopt if
  // they are incomplete.
  std::optional<KeptShard> TakeKept();
  // What TakeKept would give before the first view.
  const std::optional<KeptShard>& kept() const { return kept_; }

  const ShardValues& values() const { return *values_; }
  // Null before the first view.
  const Shard* core() const { return core_.has_value() ? &*core_ : nullptr; }

 private:
  using Change = std::variant<shard_action::Sum, shard_action::Apply, shard_action::Measure,
                              shard_action::Skip>;
  struct Snapshot {
    std::string folder;  // for this shard's part; empty: it is to be read
    BlockCopies blocks;
  };

  absl::Status On(const shard_event::Message& event);
  absl::Status On(const shard_event::Arrival& event);
  absl::Status On(const shard_event::StreamGone& event);
  absl::Status On(const shard_event::ChangeDue& event);

  // Every view holds from here on.
  absl::Status Open(const proto::View& view);
  // At the first one: which blocks there are, made anew or kept.
  absl::StatusOr<Range> OpenValues(const proto::View& view);
  // Blocks are as they were when the term before was over.
  void RestoreKept(const proto::View& view);
  // What holds for frames of any kind.
  static absl::Status CheckNumbers(const Frame& frame);
  absl::Status CheckBlock(const Frame& frame, const ReceivedValues& values) const;
  // Whether the worker that it names may send on this stream.
  absl::Status CheckName(uint64_t stream, const Frame& frame);
  absl::Status OnPush(uint64_t stream, const Frame& frame, const ReceivedValues& values);
  absl::Status OnPull(uint64_t stream, const Frame& frame);
  absl::Status OnRestoredBlock(const Frame& frame, const ReceivedValues& values);
  absl::Status SendSnapshot(uint64_t stream, const Frame& frame) const;
  void Restore(const proto::Restore& restore);
  void ReleaseSnapshot(uint32_t id);
  void MaybeSayRestored();
  void Report();

  // An empty list with the memory of an earlier one.
  ShardActions NoActions();
  // Does what the core has decided, and what it decides meanwhile.
  void Run(ShardActions actions);
  template <typename ShardChange>
  void Begin(const ShardChange& change, ShardActions* actions);
  template <typename ShardChange>
  void End(const ShardChange& change, ShardActions* actions);
  void Make(const shard_action::Sum& sum) { values_->Sum(sum); }
  void Make(const shard_action::Apply& apply);
  void Make(const shard_action::Measure& measure);
  void Make(const shard_action::Skip& skip) { values_->Skip(skip); }
  void Do(const shard_action::Send& send);
  void Do(const shard_action::Drop& drop);
  void Do(const shard_action::Ask& ask);
  void Do(const shard_action::Copy& copy);
  void Do(const shard_action::Copied& copied);
  void Do(const shard_action::Missed& missed);
  void Do(const shard_action::Closed& closed);
  void Say(proto::PeerMessage message) { sink_(shard_outcome::Said{std::move(message)}); }

  std::unique_ptr<ShardValues> values_;
  const Sink sink_;
  const PolicyFactory policies_;
  std::optional<KeptShard> kept_;                   // up to the first view
  std::optional<Shard> core_;                       // from the first view on
  proto::View view_;                                // the last one, as KeptValues has it
  std::vector<proto::Decision> earlier_decisions_;  // of earlier terms, as KeptValues has them
  ShardActions spare_;
  absl::flat_hash_map<int64_t, Change> due_;  // by block: those that take their time

  StreamNames names_;
  std::map<uint32_t, Snapshot> snapshots_;
  // Of values that the job begins with. They may come before the message that announces them.
  uint64_t restore_key_ = 0;                          // 0: nothing is restored, or any more
  int64_t restore_expected_ = -1;                     // frames; below 0: not announced yet
  std::set<std::pair<uint64_t, uint32_t>> restored_;  // blocks and slots
  // Of the step that is being measured, as far as it has come.
  proto::Question::Measured measured_;
  std::optional<SumOfSquares> squares_;
  int64_t pushed_bytes_ = 0;  // payloads of workers
  int64_t pulled_bytes_ = 0;  // to workers
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_PROTOCOL_H_
