#include "tools/bench/wire_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/stream_memory.h"
#include "tools/bench/wire_shard.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

constexpr int64_t kBytesUnderWay = 4 << 20;

// No request of a healthy run takes nearly so long.
constexpr absl::Duration kPatience = absl::Seconds(100);

proto::Job PushesIn(Codec codec) {
  proto::Job job;
  job.mutable_wire()->mutable_push()->set_codec(static_cast<proto::Push::Codec>(codec));
  job.mutable_train()->set_batch_size(1);
  return job;
}

}  // namespace

WireLoad::Coding::Coding(Codec codec, const FlatSpace& space)
    : codec(codec),
      pull_codec(codec == Codec::kInt8 || codec == Codec::kTopK ? Codec::kFloat32 : codec),
      encoder(PushesIn(codec), space, space.values()),
      expected(PushesIn(codec), space, space.values()) {
  const SampleSchedule schedule(1 << 20, 1, 1);
  const Arrivals policy{proto::View()};
  encoder.Begin(schedule, 0, {0, 1}, policy);
  expected.Begin(schedule, 0, {0, 1}, policy);
}

WireLoad::WireLoad(const std::string& address, const BenchShard& shard, int rank,
                   const ConnectionOptions& connection)
    : shard_(shard),
      rank_(rank),
      space_(BenchSpace(shard.bytes)),
      blocks_{0, space_.blocks() - 1},
      arena_(shard.path == "shm" && LendsGradients(space_.values())
                 ? SharedArena::Create().value_or(nullptr)
                 : nullptr),
      parameters_(space_.values()),
      expected_(space_.values()) {
  if (arena_ != nullptr) {
    const std::shared_ptr<char> memory = arena_->Allocate(space_.values() * sizeof(float));
    RUBATO_CHECK(memory != nullptr);
    gradient_ = {memory, reinterpret_cast<float*>(memory.get())};
  } else {
    gradient_ = {new float[space_.values()], std::default_delete<float[]>()};
  }
  for (int64_t i = 0; i < space_.values(); ++i) gradient_.get()[i] = BenchGradient(i);
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [this](int, const Frame& frame, const ReceivedValues& values) {
    OnFrame(frame, values);
  };
  callbacks.on_failure = [this](int, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    failure_.Update(status);
  };
  callbacks.on_shared = [this](int, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    failure_.Update(status);
  };
  streams_ =
      std::make_unique<ShardStreams>(std::vector<std::string>{address}, StreamScope{kBenchDigest},
                                     connection, std::move(callbacks), shard.path == "shm", arena_);
}

absl::Status WireLoad::Run(WireOp op, Codec codec, int64_t count) {
  const int64_t window = shard_.sync ? 1 : std::max<int64_t>(2, kBytesUnderWay / shard_.bytes);
  std::fill(parameters_.begin(), parameters_.end(), NAN);
  return Exchange(op, codec, count, window, nullptr);
}

absl::Status WireLoad::Check(WireOp op, Codec codec) {
  // What was pulled with a push may lack the last of others'.
  if (op == WireOp::kPush || shard_.workers > 1) {
    RUBATO_RETURN_IF_ERROR(Exchange(WireOp::kPull, codec, 1, 1, nullptr));
  }
  return Verify();
}

absl::StatusOr<std::vector<double>> WireLoad::RoundTrips(int64_t count) {
  std::vector<double> seconds;
  RUBATO_RETURN_IF_ERROR(Exchange(WireOp::kPushPull, Codec::kFloat32, count, 1, &seconds));
  RUBATO_RETURN_IF_ERROR(Verify());
  return seconds;
}

absl::Status WireLoad::Exchange(WireOp op, Codec codec, int64_t count, int64_t window,
                                std::vector<double>* seconds) {
  Coding* const coding = &codings_.try_emplace(codec, codec, space_).first->second;
  absl::MutexLock lock(&mutex_);
  coding_ = coding;
  op_ = op;
  window_ = window;
  to_issue_ = count;
  unanswered_ = 0;
  missing_ = blocks_.size();
  seconds_ = seconds;
  Issue();
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failure_.ok() || to_issue_ + under_way_ == 0;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&done), kPatience)) {
    return absl::DeadlineExceededError("the shard does not answer");
  }
  return failure_;
}

void WireLoad::Issue() {
  while (to_issue_ > 0 && under_way_ < window_ && failure_.ok()) {
    --to_issue_;
    ++under_way_;
    ++number_;
    began_ = absl::GetCurrentTimeNanos();
    switch (op_) {
      case WireOp::kPull:
        SendPull(blocks_, number_, clock_);
        break;
      case WireOp::kPushPull:
        SendPull(blocks_, number_, clock_ + 1);
        SendPushes();
        break;
      case WireOp::kPush:
        SendPushes();
        if (++unanswered_ >= std::max<int64_t>(1, window_ / 4) || to_issue_ == 0) {
          // Its number says how many requests it answers.
          SendPull({blocks_.end, blocks_.end + 1}, static_cast<uint64_t>(unanswered_), 0);
          unanswered_ = 0;
        }
        break;
    }
  }
}

void WireLoad::SendPull(Range blocks, uint64_t number, int64_t clock) {
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = 1;
  pull.worker = static_cast<uint32_t>(rank_);
  pull.unit = number;
  pull.set_blocks(blocks);
  pull.clock = static_cast<uint64_t>(clock);
  pull.codec = coding_->pull_codec;
  streams_->Send(0, pull, {});
}

void WireLoad::SendPushes() {
  Frame push;
  push.kind = FrameKind::kPush;
  push.view = 1;
  push.worker = static_cast<uint32_t>(rank_);
  push.incarnation = 1;
  push.clock = static_cast<uint64_t>(clock_);
  push.unit = static_cast<uint64_t>(shard_.sync ? clock_ : clock_ * shard_.workers + rank_);
  push.samples = push.weight = 1;
  push.first_leaf = static_cast<uint32_t>(shard_.sync ? rank_ : 0);
  push.end_leaf = push.first_leaf + 1;
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
    const Range values = space_.BlockValues(block);
    push.block = static_cast<uint64_t>(block);
    streams_->Send(0, push, coding_->encoder.Encode(block, {gradient_, GradientOf(values)}));
  }
  ++clock_;
}

// On the streams' thread.
void WireLoad::OnFrame(const Frame& frame, const ReceivedValues& values) {
  const int64_t block = static_cast<int64_t>(frame.block);
  const Range range = space_.BlockValues(block);
  absl::MutexLock lock(&mutex_);
  if (block == blocks_.end) {
    under_way_ -= static_cast<int64_t>(frame.unit);
    Issue();
    return;
  }
  if (static_cast<int64_t>(values.size()) != range.size()) {
    failure_.Update(absl::InternalError("a block of another size came"));
    return;
  }
  values.CopyTo(absl::MakeSpan(parameters_).subspan(range.begin, range.size()));
  if (--missing_ > 0) return;
  missing_ = blocks_.size();
  --under_way_;
  if (seconds_ != nullptr) {
    seconds_->push_back(static_cast<double>(absl::GetCurrentTimeNanos() - began_) * 1e-9);
  }
  Issue();
}

// Makes the server's updates again, with the codec's own idea of each contribution, in the same
// order; then what a pull makes of them.
absl::Status WireLoad::Verify() {
  std::vector<float> values;
  std::vector<char> bytes;
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
    const Range range = space_.BlockValues(block);
    const absl::Span<float> expected = absl::MakeSpan(expected_).subspan(range.begin, range.size());
    values.resize(range.size());
    for (int64_t clock = verified_; clock < clock_; ++clock) {
      const Payload payload = coding_->expected.Encode(block, {nullptr, GradientOf(range)});
      ReceivedValues(payload).CopyTo(absl::MakeSpan(values));
      for (int worker = 0; worker < (shard_.sync ? 1 : shard_.workers); ++worker) {
        for (size_t i = 0; i < values.size(); ++i) expected[i] = expected[i] - values[i];
      }
    }
    bytes.resize(EncodedBound(coding_->pull_codec, values.size()));
    Encode(coding_->pull_codec, 0, expected, bytes.data());
    ReceivedValues(Payload(nullptr, coding_->pull_codec, bytes, values.size()))
        .CopyTo(absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i) {
      const float found = parameters_[range.begin + static_cast<int64_t>(i)];
      if (found == values[i]) continue;
      return absl::InternalError(
          absl::StrFormat("value %d is %g after %d contributions, the last in %s; expected %g",
                          range.begin + i, found, clock_, CodecName(coding_->codec), values[i]));
    }
  }
  verified_ = clock_;
  return absl::OkStatus();
}

}  // namespace rubato
