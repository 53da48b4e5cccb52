#include "tools/bench/wire_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "tools/bench/wire_shard.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

constexpr int64_t kBytesUnderWay = 4 << 20;

// No request of a healthy run takes nearly so long.
constexpr absl::Duration kPatience = absl::Seconds(100);

}  // namespace

WireLoad::WireLoad(const std::string& address, int64_t bytes, bool shared)
    : space_(BenchSpace(bytes)),
      blocks_{0, space_.blocks() - 1},
      gradient_(std::make_shared<std::vector<float>>(space_.values())),
      parameters_(space_.values()) {
  for (int64_t i = 0; i < space_.values(); ++i) (*gradient_)[i] = BenchGradient(i);
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
  streams_ = std::make_unique<ShardStreams>(std::vector<std::string>{address}, kBenchDigest,
                                            std::move(callbacks), shared);
}

absl::StatusOr<double> WireLoad::Run(WireOp op, int64_t count) {
  const int64_t bytes = (space_.values() - kReceiptValues) * static_cast<int64_t>(sizeof(float));
  const int64_t window = std::max<int64_t>(2, kBytesUnderWay / bytes);
  std::fill(parameters_.begin(), parameters_.end(), NAN);
  absl::Status status;
  const double seconds = SecondsOf([&] { status = Exchange(op, count, window, nullptr); });
  RUBATO_RETURN_IF_ERROR(status);
  if (op == WireOp::kPush) RUBATO_RETURN_IF_ERROR(Exchange(WireOp::kPull, 1, 1, nullptr));
  RUBATO_RETURN_IF_ERROR(Verify());
  return seconds;
}

absl::StatusOr<std::vector<double>> WireLoad::RoundTrips(int64_t count) {
  std::vector<double> seconds;
  RUBATO_RETURN_IF_ERROR(Exchange(WireOp::kPushPull, count, 1, &seconds));
  RUBATO_RETURN_IF_ERROR(Verify());
  return seconds;
}

absl::Status WireLoad::Exchange(WireOp op, int64_t count, int64_t window,
                                std::vector<double>* seconds) {
  absl::MutexLock lock(&mutex_);
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
  pull.unit = number;
  pull.block = static_cast<uint64_t>(blocks.begin);
  pull.block_count = static_cast<uint32_t>(blocks.size());
  pull.clock = static_cast<uint64_t>(clock);
  streams_->Send(0, pull, {});
}

void WireLoad::SendPushes() {
  Frame push;
  push.kind = FrameKind::kPush;
  push.view = 1;
  push.incarnation = 1;
  push.clock = push.unit = static_cast<uint64_t>(clock_);
  push.samples = 1;
  push.end_leaf = 1;
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
    const Range values = space_.BlockValues(block);
    push.block = static_cast<uint64_t>(block);
    streams_->Send(
        0, push, {gradient_, absl::MakeConstSpan(*gradient_).subspan(values.begin, values.size())});
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

absl::Status WireLoad::Verify() const {
  for (int64_t i = 0; i < space_.values() - kReceiptValues; ++i) {
    const float expected = -static_cast<float>(clock_) * BenchGradient(i);
    if (parameters_[i] != expected) {
      return absl::InternalError(
          absl::StrFormat("value %d is %g after %d contributions; expected %g", i, parameters_[i],
                          clock_, expected));
    }
  }
  return absl::OkStatus();
}

}  // namespace rubato
