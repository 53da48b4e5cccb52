#include "worker/step/push_encoder.h"

#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "common/frames/received_values.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int64_t kValues = 40, kBlock = 16, kTrainable = 30;

proto::Job MakeJob(proto::Push::Codec codec, double momentum = 0, bool nesterov = false) {
  proto::Job job;
  job.mutable_wire()->mutable_push()->set_codec(codec);
  job.mutable_wire()->mutable_push()->set_density(1);
  job.mutable_optimizer()->set_momentum(momentum);
  job.mutable_optimizer()->set_nesterov(nesterov);
  job.mutable_train()->set_batch_size(8);
  job.mutable_train()->set_micro_batches(2);
  return job;
}

// Each update has the whole learning rate.
const Policy& Whole() {
  static const Arrivals* const policy = new Arrivals(proto::View());
  return *policy;
}

const SampleSchedule kSchedule(/*samples_per_epoch=*/30, /*unit_samples=*/8, /*leaves=*/2);

std::vector<float> Gradient(uint64_t key) {
  RandomStream stream(key);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(stream.Below(2001)) - 1000;
  return values;
}

// What a server takes of `gradient`.
std::vector<float> Send(PushEncoder* encoder, const std::vector<float>& gradient) {
  const FlatSpace space(kValues, kBlock);
  std::vector<float> received(kValues);
  for (int64_t block = space.blocks() - 1; block >= 0; --block) {
    const Range values = space.BlockValues(block);
    const Payload payload = encoder->Encode(
        block, {nullptr, absl::MakeConstSpan(gradient).subspan(values.begin, values.size())});
    ReceivedValues(payload).CopyTo(absl::MakeSpan(received).subspan(values.begin, values.size()));
  }
  return received;
}

// torch.optim.SGD's formula in double precision, on means: with density 1 the servers, which divide
// by the samples of the step, apply its buffer.
TEST(PushEncoder, WithDensityOneMomentumIsPyTorchs) {
  for (const bool nesterov : {false, true}) {
    PushEncoder encoder(MakeJob(proto::Push::CODEC_TOPK, 0.9, nesterov), FlatSpace(kValues, kBlock),
                        kTrainable);
    std::vector<double> buffer(kValues);
    for (int64_t step = 0; step < 12; ++step) {
      const double n = step % 4 == 3 ? 6 : 8;  // 30 = 3 * 8 + 6
      encoder.Begin(kSchedule, step, {0, 1}, Whole());
      const std::vector<float> left = Gradient(Key(1, step)), right = Gradient(Key(2, step));
      std::vector<float> sent = Send(&encoder, left);
      encoder.Begin(kSchedule, step, {1, 2}, Whole());
      const std::vector<float> more = Send(&encoder, right);
      for (int64_t i = 0; i < kValues; ++i) {
        const double mean = (double{left[i]} + right[i]) / n;
        buffer[i] = step == 0 ? mean : 0.9 * buffer[i] + mean;
        const double expected = i >= kTrainable ? mean
                                : nesterov      ? mean + 0.9 * buffer[i]
                                                : buffer[i];
        EXPECT_NEAR((double{sent[i]} + more[i]) / n, expected, 1e-3) << step << " " << i;
      }
    }
  }
}

TEST(PushEncoder, StatisticsAreExactInEveryCodec) {
  for (const auto codec :
       {proto::Push::CODEC_FLOAT32, proto::Push::CODEC_BF16, proto::Push::CODEC_FP16,
        proto::Push::CODEC_INT8, proto::Push::CODEC_TOPK}) {
    proto::Job job = MakeJob(codec);
    job.mutable_wire()->mutable_push()->set_density(0.1);
    PushEncoder encoder(job, FlatSpace(kValues, kBlock), kTrainable);
    encoder.Begin(kSchedule, 0, {0, 2}, Whole());
    std::vector<float> gradient = Gradient(3);
    for (float& value : gradient) value = value / 3;
    const std::vector<float> sent = Send(&encoder, gradient);
    for (int64_t i = 16; i < kValues; ++i) EXPECT_EQ(sent[i], gradient[i]) << codec << " " << i;
    EXPECT_EQ(sent == gradient, codec == proto::Push::CODEC_FLOAT32);
  }
}

TEST(PushEncoder, RoundsByUnitNodeAndBlockAlone) {
  const proto::Job job = MakeJob(proto::Push::CODEC_INT8);
  const std::vector<float> gradient = Gradient(4);
  const auto send = [&](int64_t unit, Range node) {
    PushEncoder encoder(job, FlatSpace(kValues, kBlock), kValues);
    encoder.Begin(kSchedule, unit, node, Whole());
    return Send(&encoder, gradient);
  };
  const std::vector<float> once = send(1, {0, 1});
  EXPECT_EQ(send(1, {0, 1}), once);
  EXPECT_NE(send(2, {0, 1}), once);
  EXPECT_NE(send(1, {1, 2}), once);
  EXPECT_NE(send(1, {0, 2}), once);
}

TEST(PushEncoder, OverwritesNothingThatIsOnItsWay) {
  PushEncoder encoder(MakeJob(proto::Push::CODEC_BF16), FlatSpace(kValues, kBlock), kValues);
  const std::vector<float> ones(kBlock, 1), twos(kBlock, 2);
  encoder.Begin(kSchedule, 0, {0, 2}, Whole());
  const char* free;
  {
    const Payload kept = encoder.Encode(0, {nullptr, ones});
    const Payload other = encoder.Encode(0, {nullptr, twos});
    EXPECT_NE(kept.bytes.data(), other.bytes.data());
    std::vector<float> values(kBlock);
    ReceivedValues(kept).CopyTo(absl::MakeSpan(values));
    EXPECT_EQ(values, ones);
    free = kept.bytes.data();
  }
  EXPECT_EQ(encoder.Encode(0, {nullptr, twos}).bytes.data(), free);
}

}  // namespace
}  // namespace rubato
