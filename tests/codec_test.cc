// Jobs whose gradients and parameters travel in fewer bytes.
#include "common/frames/codec.h"

#include <signal.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/files/safetensors.h"
#include "common/space/job_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/sequential_sgd.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

// Behind a layer a third of whose values are statistics; blocks of 1024 values, the last of which
// has parameters and statistics.
constexpr char kBatchNorm[] =
    "model={layers: [flatten, linear: {out_features: 48}, batch_norm, relu, "
    "linear: {out_features: 10}]}";

// What `values` are at the other end, block by block.
Floats ThereAndBack(Codec codec, const Floats& values, int64_t block_values, int64_t trainable,
                    const std::function<uint64_t(int64_t block)>& key) {
  Floats result = values;
  for (int64_t block = 0; block * block_values < static_cast<int64_t>(values.size()); ++block) {
    const int64_t begin = block * block_values;
    const int64_t n = std::min<int64_t>(block_values, values.size() - begin);
    if (begin + n > trainable) continue;
    std::vector<char> bytes(EncodedBound(codec, n));
    Encode(codec, key(block), absl::MakeConstSpan(values).subspan(begin, n), bytes.data());
    Encoded::Create(codec, bytes, n)->Decode(0, absl::MakeSpan(result).subspan(begin, n));
  }
  return result;
}

// One worker in sync as a loop in one process: the gradient at the parameters as they are pulled,
// as it is pushed, and SGD with momentum.
std::string TrainCoded(const proto::Job& job) {
  SequentialGradients gradients(job);
  const int64_t batch = job.train().batch_size(), leaves = job.train().micro_batches();
  const int64_t block_values = job.wire().chunk() / 4, size = gradients.train_size();
  const int64_t per_epoch = (size + batch - 1) / batch;
  Floats w = gradients.InitialParameters(), m(w.size()), average;
  int64_t trainable = 0;
  for (const proto::Parameter& parameter : gradients.layout().parameters()) {
    const int64_t n = ValueCount(parameter);
    if (parameter.average() == 0) trainable += n;
    average.resize(average.size() + n, static_cast<float>(parameter.average()));
  }
  const float rate = static_cast<float>(job.optimizer().learning_rate());
  const float momentum = static_cast<float>(job.optimizer().momentum());
  for (int64_t step = 0; step < job.train().until().steps(); ++step) {
    const int64_t begin = step % per_epoch * batch, n = std::min(batch, size - begin);
    const Floats pulled = ThereAndBack(PullCodec(job), w, block_values, trainable,
                                       [](int64_t) { return uint64_t{0}; });
    double loss = 0;
    const Floats sum = ThereAndBack(
        PushCodec(job), gradients.Sum(pulled, step / per_epoch, begin, n, leaves, &loss),
        block_values, trainable,
        [&](int64_t block) { return Key(job.seed(), "int8", step, 0, leaves, block); });
    const float scale = static_cast<float>(1.0 / static_cast<double>(n));
    for (size_t i = 0; i < w.size(); ++i) {
      const float g = scale * sum[i];
      if (average[i] > 0) {
        w[i] = w[i] + average[i] * (g - w[i]);
        continue;
      }
      m[i] = step == 0 ? g : momentum * m[i] + g;
      w[i] = w[i] - rate * m[i];
    }
  }
  return FlatDigest(gradients.layout(), w);
}

class CodecJobTest : public ClusterTest {
 protected:
  // All parameters of a run, one after the other.
  Floats Parameters(const std::string& run) {
    const auto file = SafetensorsReader::Open(Path(run + "/parameters.safetensors"));
    RUBATO_EXPECT_OK(file);
    Floats all;
    for (size_t i = 0; i < file->tensors().size(); ++i) {
      Floats values(file->tensors()[i].Elements());
      RUBATO_EXPECT_OK(file->ReadFloats(i, 0, absl::MakeSpan(values)));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  ProcessHandle Child(const Process& parent, absl::string_view command) const {
    for (RunningChild& child : ChildrenOf(parent.pid())) {
      if (absl::StrContains(child.command, command)) return std::move(child.process);
    }
    ADD_FAILURE() << "no process " << command;
    return ProcessHandle(parent.pid());
  }

  Process::Result Rubato(const Arguments& arguments) {
    Arguments all = {"tools/rubato"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Start(all).Wait();
  }
};

TEST_F(CodecJobTest, OneWorkerIsALoopWithTheCodecsInItBitForBit) {
  int run = 0;
  for (const std::string wire :
       {"push: bf16, pull: bf16", "push: fp16, pull: fp16", "push: int8, pull: bf16",
        "push: float32, pull: bf16", "push: bf16"}) {
    for (const std::string model : {"", kBatchNorm}) {
      Arguments set = {absl::StrCat("wire={", wire, ", chunk: 4KiB}"), "cluster.servers=2"};
      if (!model.empty()) set.push_back(model);
      const std::string name = absl::StrCat("run", run++);
      Train(name, set);
      EXPECT_EQ(Summary(name)["digest"], TrainCoded(Job(set))) << wire << " " << model;
    }
  }
}

TEST_F(CodecJobTest, TheSameJobGivesTheSameBitsByTcpAndSharedMemory) {
  std::set<std::string> digests;
  for (const std::string wire :
       {"push: bf16, pull: bf16", "push: fp16, pull: fp16", "push: int8, pull: bf16",
        "push: {codec: topk, density: 0.05, warmup: 1}, pull: fp16"}) {
    const Arguments cluster = {"cluster.workers=3", "cluster.servers=2"};
    Arguments shared = cluster, tcp = cluster;
    shared.push_back(absl::StrCat("wire={chunk: 8KiB, ", wire, "}"));
    tcp.push_back(absl::StrCat("wire={chunk: 8KiB, shared_memory: off, ", wire, "}"));
    const std::string name = absl::StrCat(digests.size());
    Train("shared" + name, shared);
    Train("tcp" + name, tcp);
    const nlohmann::json summary = Summary("shared" + name);
    EXPECT_EQ(summary["digest"], Summary("tcp" + name)["digest"]) << wire;
    EXPECT_EQ(summary["payload_bytes"], Summary("tcp" + name)["payload_bytes"]) << wire;
    digests.insert(summary["digest"].get<std::string>());
  }
  EXPECT_EQ(digests.size(), 4u);
}

// By formula: 40 steps of two workers, whose shares of four micro-batches are one node each.
TEST_F(CodecJobTest, BytesAreCounted) {
  const int64_t values = 50890;
  const struct {
    std::string wire;
    double pushed, pulled;  // bytes a value
  } kCases[] = {{"chunk: 256KiB", 4, 4},
                {"chunk: 256KiB, push: bf16, pull: bf16", 2, 2},
                {"chunk: 256KiB, push: int8", 1, 4},
                {"chunk: 256KiB, push: topk", 0.08, 4}};
  int run = 0;
  for (const auto& expected : kCases) {
    const std::string name = absl::StrCat("run", run++);
    Train(name, {"cluster.workers=2", absl::StrCat("wire={", expected.wire, "}")});
    const nlohmann::json bytes = Summary(name)["payload_bytes"];
    // Each pulls at the start and after each step; a block has a few bytes of its own.
    EXPECT_NEAR(bytes["pushed"], 2 * 40 * expected.pushed * values, 2 * 40 * 8) << expected.wire;
    EXPECT_NEAR(bytes["pulled"], 2 * 41 * expected.pulled * values, 2 * 41 * 8) << expected.wire;
    EXPECT_EQ(Summary(name).contains("residuals_lost"), run == 4);
    // The lines count what workers had pulled before they told of their last computation.
    int64_t pushed = 0, pulled = 0;
    for (const nlohmann::json& line : Metrics(name, "train")) {
      pushed += line["pushed_bytes"].get<int64_t>();
      pulled += line["pulled_bytes"].get<int64_t>();
    }
    EXPECT_EQ(pushed, bytes["pushed"]);
    EXPECT_NEAR(pulled, 2 * 40 * expected.pulled * values, 2 * 40 * 8);
  }
}

// The unit test holds the momentum against PyTorch's formula; whole steps of 64 samples have even
// the same bits, the short one at an epoch's end is rounded differently.
TEST_F(CodecJobTest, TopKOfAllIsSgdWithMomentum) {
  const Arguments cluster = {"cluster.workers=3", "cluster.servers=2"};
  Arguments topk = cluster;
  topk.push_back("wire.push={codec: topk, density: 1}");
  Train("float32", cluster);
  Train("topk", topk);
  const Floats expected = Parameters("float32"), found = Parameters("topk");
  ASSERT_EQ(expected.size(), 50890u);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
}

// A worker dies with what it had not sent; the record of it all replays; what goes on from its
// checkpoint has lost the others' too.
TEST_F(CodecJobTest, LostResidualsAreCountedAndTheRunReplays) {
  const Arguments wire = {"cluster={servers: 2, workers: 2, address: '127.0.0.1:0', lease: 1s}",
                          "wire={push: {codec: topk, density: 0.1}, pull: bf16}"};
  fs::create_directory(Path("run"));
  Arguments start = {
      "tools/rubato", "train", "job.yaml", "--record", "--run-dir",
      "run",          "--set", kForever,   "--set",    "cluster.address=127.0.0.1:0"};
  for (const std::string& set : wire) start.insert(start.end(), {"--set", set});
  Process& train = Start(start);
  ASSERT_TRUE(AwaitTraining("run", train));
  Child(train, "--rank 1").Signal(SIGKILL);
  ASSERT_TRUE(AwaitText(Path("run/views.jsonl"), "{\"rank\":1,\"incarnation\":2}", train));
  EXPECT_EQ(Rubato({"stop", "run"}).code, 0);
  const Process::Result result = train.Wait();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("run")["workers_lost"], 1);
  EXPECT_EQ(Summary("run")["residuals_lost"], 1);
  const Process::Result replay = Rubato({"replay", "run"});
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("bit for bit those of run"));

  const int64_t steps = Summary("run")["steps"];
  Arguments again = {"tools/rubato", "train", "job.yaml",
                     "--resume",     "run",   "--run-dir",
                     "more",         "--set", absl::StrCat("train.until={steps: ", steps + 5, "}")};
  for (const std::string& set : wire) again.insert(again.end(), {"--set", set});
  const Process::Result resumed = Start(again).Wait();
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("more")["residuals_lost"], 2);
  EXPECT_EQ(Summary("more")["steps"], steps + 5);
}

// What the servers keep for the optimizer is not the same on both sides.
TEST_F(CodecJobTest, GoesOnFromFloat32WithTopKAndBack) {
  Arguments from = {"checkpoint.every={steps: 20}"};
  Train("float32", from);
  std::string before = "float32";
  for (const std::string push : {"topk", "float32"}) {
    const std::string run = "then_" + push;
    const Process::Result result =
        Rubato({"train", "job.yaml", "--resume", before, "--run-dir", run, "--set",
                absl::StrCat("wire.push=", push), "--set", "checkpoint.every={steps: 20}", "--set",
                absl::StrCat("train.until={steps: ", push == "topk" ? 60 : 80, "}")});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(ReadText(Path(run + "/logs/server-0.log")),
                HasSubstr("the optimizer begins anew: the checkpoint holds "));
    EXPECT_EQ(Summary(run)["steps"], push == "topk" ? 60 : 80);
    EXPECT_LT(Summary(run)["test_loss"], 1.5);  // from 2.3 without the checkpoint's parameters
    before = run;
  }
}

TEST_F(CodecJobTest, OnArrivalEachCodecLearnsAndReplays) {
  for (const std::string codec : {"bf16", "fp16", "int8", "topk"}) {
    const Arguments set = {
        "tools/rubato", "train",
        "job.yaml",     "--record",
        "--run-dir",    codec,
        "--set",        "consistency={mode: bounded, staleness: 1}",
        "--set",        "cluster={servers: 2, workers: 2, address: '127.0.0.1:0'}",
        "--set",        "train.until={epochs: 4}",
        "--set",        absl::StrCat("wire={push: ", codec, ", pull: bf16}")};
    const Process::Result result = Start(set).Wait();
    ASSERT_EQ(result.code, 0) << result.err;
    // From chance, 2.3 and 0.1.
    EXPECT_LT(Summary(codec)["test_loss"], 1.8) << codec;
    const Process::Result replay = Rubato({"replay", codec});
    EXPECT_EQ(replay.code, 0) << replay.err;
  }
}

// The simulator's cluster is the same code on another network.
TEST_F(CodecJobTest, TheSimulatorGivesTheSameBits) {
  for (const std::string codec : {"int8", "{codec: topk, density: 0.05}"}) {
    const std::string name = codec.substr(0, 4);
    const std::string wire = absl::StrCat("wire={push: ", codec, ", pull: bf16}");
    Train(name, {"cluster.workers=2", "cluster.servers=2", wire});
    const std::string simulated = "simulated" + name;
    const Process::Result result = Rubato({"simulate", "job.yaml", "--workers", "2", "--servers",
                                           "2", "--run-dir", simulated, "--set", wire});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Summary(simulated)["digest"], Summary(name)["digest"]);
    EXPECT_EQ(Summary(simulated)["payload_bytes"], Summary(name)["payload_bytes"]);
  }
}

}  // namespace
}  // namespace rubato
