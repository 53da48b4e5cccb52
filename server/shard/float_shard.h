// A shard of floats, as a server has it, for tests: three blocks of up to 16 values.
#ifndef RUBATO_SERVER_SHARD_FLOAT_SHARD_H_
#define RUBATO_SERVER_SHARD_FLOAT_SHARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/space/initialize.h"
#include "common/space/placement.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_protocol.h"

namespace rubato {

constexpr int64_t kValues = 40;  // in blocks of 16: two and a half

class FloatShardTest : public ::testing::Test {
 protected:
  // The first `first` values are of one parameter, the rest of another.
  void Start(const proto::Mode& mode, int workers, int64_t leaves, const std::string& more = "",
             int64_t first = kValues) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "seed: 3 cluster { servers: 1 } wire { chunk: 64 } "
        "optimizer { learning_rate: 0.5 momentum: 0.75 learning_rate_parity: true } "
        "train { batch_size: 8 until { epochs: 1 } }",
        &job_));
    proto::Job changes;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &changes));
    job_.MergeFrom(changes);
    for (int i = 0; i < (first < kValues ? 2 : 1); ++i) {
      proto::Parameter* parameter = view_.mutable_layout()->add_parameters();
      parameter->set_name(absl::StrCat(i, ".weight"));
      parameter->add_shape(i == 0 ? first : kValues - first);
      parameter->mutable_init()->set_uniform_bound(1);
    }
    view_.set_number(1);
    *view_.mutable_mode() = mode;
    view_.set_leaves(leaves);
    view_.set_samples_per_epoch(100);
    view_.set_until_step(1000);
    view_.set_whole_rate_samples(8);
    for (int rank = 0; rank < workers; ++rank) {
      view_.add_members()->set_rank(rank);
      view_.mutable_members(rank)->set_incarnation(1);
    }
    Placement::Even(SpaceOf(job_, view_.layout()), 1).AddTo(&view_);
    auto values = FloatValues::Create(job_, 0, memory_);
    RUBATO_ASSERT_OK(values);
    shard_.emplace(*std::move(values), [this](const ShardOutcome& outcome) {
      std::visit([this](const auto& what) { Take(what); }, outcome);
    });
  }

  void Open() {
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    Tell(message);
    ASSERT_TRUE(said_.back().has_shard_opened());
  }

  // What the coordinator tells the shard, and what comes on the stream of who sends it.
  void Tell(const proto::CoordinatorMessage& message) {
    RUBATO_ASSERT_OK(shard_->Handle(shard_event::Message{message}));
  }
  absl::Status Receive(const Frame& frame, absl::Span<const float> values = {}) {
    return shard_->Handle(shard_event::Arrival{1 + uint64_t{frame.worker}, frame, values});
  }

  // A gradient that is a pure function of its key.
  static std::vector<float> Gradient(uint64_t key) {
    RandomStream random(Key(key));
    std::vector<float> values(kValues);
    for (float& value : values) value = random.Uniform(-1, 1);
    return values;
  }

  absl::Status Push(uint32_t worker, uint64_t clock, Range node, uint32_t samples, uint64_t key,
                    int64_t block) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = 1;
    frame.worker = worker;
    frame.incarnation = 1;
    frame.clock = frame.unit = clock;
    frame.block = block;
    frame.samples = frame.weight = samples;
    frame.first_leaf = node.begin;
    frame.end_leaf = node.end;
    auto values = std::make_shared<std::vector<float>>(Gradient(key));
    const size_t begin = block * 16;
    return Receive(frame, absl::MakeConstSpan(*values).subspan(begin, 16));
  }

  std::vector<float> Parameters(uint32_t worker, uint64_t clock) {
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.view = 1;
    pull.worker = worker;
    pull.clock = clock;
    pull.block_count = 3;
    sent_.clear();
    RUBATO_EXPECT_OK(Receive(pull));
    std::vector<float> all;
    for (const auto& [block, message] : sent_) {
      all.insert(all.end(), message.second.values().begin(), message.second.values().end());
    }
    return all;
  }

  std::vector<float> Initial() const {
    std::vector<float> all;
    for (const proto::Parameter& parameter : view_.layout().parameters()) {
      std::vector<float> values(parameter.shape(0));
      InitializeRange(parameter, job_.seed(), 0, absl::MakeSpan(values));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  proto::Job job_;
  proto::View view_;
  BlockMemory memory_{nullptr};
  std::optional<ShardProtocol> shard_;
  std::map<uint64_t, std::pair<Frame, Payload>> sent_;
  std::vector<proto::PeerMessage> said_;
  std::map<uint32_t, std::vector<float>>* by_slot_ = nullptr;  // what is sent, put together by slot

 private:
  void Take(const shard_outcome::Sent& sent) {
    sent_[sent.frame.block] = {sent.frame, sent.payload};
    if (by_slot_ == nullptr) return;
    const absl::Span<const float> values = sent.payload.values();
    std::vector<float>& all = (*by_slot_)[sent.frame.slot];
    all.insert(all.end(), values.begin(), values.end());
  }
  void Take(const shard_outcome::Said& said) { said_.push_back(said.message); }
  template <typename Other>
  void Take(const Other&) {}
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_FLOAT_SHARD_H_
