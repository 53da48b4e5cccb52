// The simulated process of one shard: carries frames and messages between the network and the
// shard's protocol.
#ifndef RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
#define RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/consistency/policy.h"
#include "server/shard/shard_protocol.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/network.h"
#include "tools/simulator/virtual_streams.h"

namespace rubato {

// What a shard reports on a block that it has written, in place of a checksum.
inline uint32_t PartChecksum(uint64_t symbol) {
  return static_cast<uint32_t>(symbol ^ symbol >> 32);
}

// What all shards of a simulation share; outlives them.
struct ShardSetting {
  const Blocks* blocks = nullptr;
  PolicyFactory policies;
  VirtualNetwork* network = nullptr;
  bool has_symbols = false;  // in the place of floats
  // That a shard sums and applies; infinite: at once.
  double change_bytes_per_second = 0;
  std::string job_digest;
  std::string version;
  ProcessId coordinator = 0;
  bool disk_is_full = false;       // for some parts
  bool disk_stands_still = false;  // likewise
  // Whether servers are started again, and how long a server then waits for the others.
  bool come_back = false;
  bool is_dedicated = false;  // the coordinator is no shard's process
  SimTime start_timeout = 0;
  // Gives a shard its floats from the checkpoint that it is told to read, if the shard can see it.
  std::function<absl::Status(int shard)> read_part;
  std::optional<StreamLimits> streams;
  StreamJudge* judge = nullptr;  // may be null
  std::function<void(const absl::Status&)> on_failure;
};

class ShardProcess : public Process, private VirtualStreams::Owner {
 public:
  // Makes the values of a term, given how changes are deferred; null: they take no time.
  using MakeValues = std::function<absl::StatusOr<std::unique_ptr<ShardValues>>(
      std::function<bool(int64_t block)> defer)>;

  // Errors as `make`'s.
  static absl::StatusOr<std::unique_ptr<ShardProcess>> Create(const ShardSetting* setting,
                                                              int shard, MakeValues make);

  // Calls the coordinator. `self` is this process.
  void Start(ProcessId self);
  // Of shard 0, whose process begins the next term.
  void BeginTerm();

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t argument) override;
  void OnSent(ConnectionId connection) override { term_->ends.OnSent(connection); }
  void OnAcknowledged(ConnectionId connection) override { term_->ends.OnAcknowledged(connection); }

  // Pulls for the simulation itself, past the network: `take` gets what is there now.
  using Take = std::function<void(const Frame& frame, const Content& content)>;
  absl::Status Read(const Frame& pull, const Take& take);

  // Called by the simulation itself, bypassing the network. Unavailable if the shard is not, or no
  // longer, in the term.
  absl::Status Restore(uint32_t term, const Frame& frame, const Content& content);

  // What it stands at, for people.
  std::string State() const;
  // Its engine is stuck: says so to the coordinator, and is about to die.
  void SayStuck();

  // What it has ended with; none while it runs.
  const std::optional<absl::Status>& end() const { return end_; }
  ConnectionId control() const { return term_->control; }
  // See proto::Registration.
  uint64_t attempt() const { return static_cast<uint64_t>(self_) << 32 | term_->number; }
  // The term that began anew with the values that it has registered with; 0: it had none.
  uint32_t offered() const { return offered_; }
  // Null before the first view of a term.
  const Shard* core() const { return term_->protocol->core(); }
  // The last snapshot whose part it could not write; 0: none.
  uint32_t failed_part() const { return term_->failed_part; }
  const ShardValues& values() const { return term_->protocol->values(); }

 private:
  // A timer's argument, in place of a block.
  static constexpr uint64_t kRegister = 0xffffffff;
  static constexpr uint64_t kWritten = 0xfffffffe;
  static constexpr uint64_t kNeverWritten = 0xfffffffc;
  static constexpr uint64_t kRead = 0xfffffffd;

  // What lives as long as one core.
  struct Term {
    Term(ShardProcess* process, uint64_t number);

    const uint64_t number;  // of this process
    uint32_t term = 0;      // of the job; 0: before its first view
    VirtualStreams ends;
    std::optional<ShardProtocol> protocol;
    ConnectionId control = -1;
    SimTime busy_until = 0;
    std::deque<proto::PartWritten> parts;  // that it writes
    uint32_t failed_part = 0;
  };

  ShardProcess(const ShardSetting* setting, int shard, MakeValues make)
      : setting_(*setting), shard_(shard), make_(std::move(make)) {}

  bool is_apart() const { return shard_ > 0 || setting_.is_dedicated; }
  // Nothing is left of the term before but what its protocol has kept.
  absl::Status MakeTerm();
  void SetTimer(SimTime at, uint64_t what) {
    setting_.network->SetTimer(self_, at, term_->number << 32 | what);
  }
  void Register();
  // The term is over because of `why`: takes part in the next one.
  void GoBack(const absl::Status& why);
  // Whether it takes streams of the term, which is its own.
  absl::Status CheckTerm(uint32_t term) const;
  bool Takes(uint32_t term) override { return CheckTerm(term).ok(); }
  void OnFrame(ConnectionId stream, SimMessage&& message) override;
  void OnGone(ConnectionId stream) override;
  // One overload for each outcome.
  void Do(const shard_outcome::Sent& sent);
  void Do(const shard_outcome::Said& said);
  void Do(const shard_outcome::Updated&) {}
  void Do(const shard_outcome::Refused&) {}
  void Do(const shard_outcome::WritePart& part);
  void Do(const shard_outcome::ForgetPart&) {}
  void Do(const shard_outcome::ReadPart& part);
  void SayWritten();
  void ReadPart();
  bool Defer(int64_t block);

  const ShardSetting& setting_;
  const int shard_;
  const MakeValues make_;
  std::unique_ptr<Term> term_;
  uint64_t terms_ = 0;
  uint32_t last_term_ = 0;  // of the job, that it has had a view of
  uint32_t values_of_ = 0;  // the last term that began anew; those behind it went on
  uint32_t offered_ = 0;
  ProcessId self_ = 0;
  absl::Status lost_;        // why it takes part again
  SimTime gives_up_at_ = 0;  // if nobody answers
  std::optional<absl::Status> end_;
  const Take* take_ = nullptr;  // while Read runs
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
