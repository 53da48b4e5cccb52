// Any frames to a shard in a job, between the coordinator's own messages: in sync, on arrival or
// while it is restored. An event is a byte that says which, and its numbers (input.h).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "google/protobuf/text_format.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_protocol.h"
#include "tests/fuzz/input.h"

namespace rubato {
namespace {

constexpr char kJob[] =
    "cluster { servers: 1 workers { start: 2 } } seed: 1 "
    "optimizer { name: NAME_SGD learning_rate: 0.1 momentum: 0.9 learning_rate_parity: true } "
    "train { batch_size: 8 micro_batches: 2 until { epochs: 20 } } wire { chunk: 64 }";
constexpr int64_t kBlockValues = 16, kBlocks = 2;

class Fuzzed {
 public:
  explicit Fuzzed(uint8_t how) {
    proto::Job job;
    RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(kJob, &job));
    auto values = FloatValues::Create(job, 0);
    RUBATO_CHECK(values.ok());
    shard_.emplace(*std::move(values), [this](const ShardOutcome& outcome) {
      const auto* said = std::get_if<shard_outcome::Said>(&outcome);
      if (said != nullptr && said->message.has_question()) {
        asked_ = said->message.question().unit();
      }
    });
    view_.set_number(1);
    view_.set_lineage(1);
    view_.mutable_mode()->set_mode(how % 2 == 0 ? proto::Mode::NAME_SYNC
                                                : proto::Mode::NAME_BOUNDED);
    view_.mutable_mode()->set_staleness(2);
    view_.set_leaves(2);
    view_.set_until_step(100);
    view_.set_samples_per_epoch(40);
    view_.set_verdict_steps(how % 4 == 2);
    if (how % 8 >= 4) view_.set_restore_key(7);
    view_.mutable_layout()->add_parameters()->add_shape(kBlocks * kBlockValues);
    view_.add_shards()->set_end_block(kBlocks);
    for (int rank = 0; rank < 2; ++rank) {
      view_.add_members()->set_rank(rank);
      view_.mutable_members(rank)->set_incarnation(1);
    }
    Tell([this](proto::CoordinatorMessage* message) { *message->mutable_view() = view_; });
  }

  void Run(FuzzInput input) {
    while (!input.empty()) {
      const uint8_t kind = input.Byte();
      switch (kind % 16) {
        case 0:
          Tell([this](auto* message) { message->mutable_close()->set_view(view_.number()); });
          break;
        case 1:
          Tell([&](auto* message) {
            message->mutable_snapshot()->set_id(++snapshots_);
            message->mutable_snapshot()->set_step(input.Byte() % 8);
          });
          break;
        case 2:
          Tell([&](auto* message) {
            message->mutable_release_snapshot()->set_id(input.Byte() % (snapshots_ + 1));
          });
          break;
        case 3:
          if (asked_ < 0) break;
          Tell([&](auto* message) {
            message->mutable_decision()->set_unit(asked_);
            message->mutable_decision()->mutable_verdict()->set_apply(input.Byte() % 2 == 0);
          });
          break;
        case 4:
          shard_->Handle(shard_event::StreamGone{input.Byte() % 4u}).IgnoreError();
          break;
        case 5: {  // the next view
          view_.set_number(view_.number() + 1);
          int64_t highest = 0;
          for (int64_t block = 0; block < kBlocks; ++block) {
            highest = std::max(highest, shard_->core()->ledger(block).version);
          }
          view_.set_from_step(highest + 1);
          view_.mutable_members(0)->set_incarnation(1 + input.Byte() % 2);
          Tell([this](auto* message) { *message->mutable_view() = view_; });
          break;
        }
        case 6:
          Tell([](auto* message) {
            for (int64_t block = 0; block < kBlocks; ++block) {
              message->mutable_restore()->add_blocks()->set_block(block);
            }
          });
          break;
        default:
          Send(&input);
      }
    }
  }

 private:
  void Send(FuzzInput* input) {
    Frame frame;
    frame.kind = static_cast<FrameKind>(1 + input->Byte() % 5);
    const uint64_t stream = input->Byte() % 4;
    frame.codec = static_cast<Codec>(input->Byte() % 5);
    frame.view = static_cast<uint32_t>(input->Number());
    frame.lineage = static_cast<uint32_t>(input->Number());
    frame.worker = static_cast<uint32_t>(input->Number());
    frame.incarnation = static_cast<uint32_t>(input->Number());
    frame.block = input->Number();
    frame.block_count = static_cast<uint32_t>(input->Number());
    frame.clock = input->Number();
    frame.version = input->Number();
    frame.unit = input->Number();
    frame.samples = static_cast<uint32_t>(input->Number());
    frame.first_leaf = static_cast<uint32_t>(input->Number());
    frame.end_leaf = static_cast<uint32_t>(input->Number());
    frame.slot = static_cast<uint32_t>(input->Number());
    frame.snapshot = static_cast<uint32_t>(input->Number());
    const std::vector<float> values(input->Byte() % (kBlockValues + 2), 0.5f);
    if (shard_->Handle(shard_event::Arrival{stream, frame, absl::MakeConstSpan(values)}).ok() &&
        frame.kind == FrameKind::kRestore) {
      RUBATO_CHECK(frame.unit == view_.restore_key() && frame.unit != 0);
    }
  }

  template <typename Fill>
  void Tell(Fill fill) {
    proto::CoordinatorMessage message;
    fill(&message);
    shard_->Handle(shard_event::Message{message}).IgnoreError();
  }

  std::optional<ShardProtocol> shard_;
  proto::View view_;
  uint32_t snapshots_ = 0;
  int64_t asked_ = -1;  // the unit on which the shard has asked last
};

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  rubato::Fuzzed(data[0]).Run(rubato::FuzzInput(data + 1, size - 1));
  return 0;
}
