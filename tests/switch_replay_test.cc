// A real job whose mode is changed by hand again and again. From what its workers record, the order
// of all updates follows; a loop in this process makes the same updates in that order. Parameters
// and the optimizer's momentum must have its bits: a switch that lost momentum, or an update,
// shows.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/sequential_sgd.h"
#include "tests/worker_trace.h"

namespace rubato {
namespace {

using Floats = std::vector<float>;

// What happens between two changes of mode.
struct Lineage {
  int64_t number = 0;
  bool sync = true;
  int64_t begin = 0, end = 0;  // versions of every block
};

// Parameters and momentum as they come of a recorded order of updates.
class Replay {
 public:
  explicit Replay(const proto::Job& job)
      : job_(job),
        gradients_(job),
        block_size_(job.wire().chunk() / static_cast<int64_t>(sizeof(float))) {
    const Floats w = gradients_.InitialParameters();
    momentum_.resize(w.size());
    for (size_t begin = 0; begin < w.size(); begin += block_size_) {
      const size_t end = std::min(w.size(), begin + block_size_);
      history_.push_back({Floats(w.begin() + begin, w.begin() + end)});
    }
  }

  const proto::Layout& layout() const { return gradients_.layout(); }
  size_t blocks() const { return history_.size(); }
  const Floats& momentum() const { return momentum_; }
  Floats Parameters() const { return At(std::vector<int64_t>(blocks(), history_[0].size() - 1)); }

  void Run(const Lineage& lineage, const std::vector<WorkerTrace>& traces) {
    if (lineage.sync) {
      for (int64_t step = lineage.begin; step < lineage.end; ++step) {
        const Unit unit = Next(job_.train().batch_size());
        const Floats sum =
            Sum(std::vector<int64_t>(blocks(), step), unit, job_.train().micro_batches());
        for (size_t block = 0; block < blocks(); ++block) Apply(block, sum, unit, /*rate=*/1);
      }
      return;
    }
    const int64_t leaves =
        std::max<int64_t>(1, job_.train().micro_batches() / job_.cluster().workers().start());
    const int64_t samples = job_.train().batch_size() / job_.train().micro_batches() * leaves;
    std::map<int64_t, Unit> units;
    for (int64_t unit = lineage.begin; unit < lineage.end; ++unit) units[unit] = Next(samples);
    // By block and version.
    std::vector<std::map<int64_t, const WorkerTrace::Computed*>> makers(blocks());
    for (const WorkerTrace& trace : traces) {
      for (const WorkerTrace::Computed& computed : trace.computed) {
        if (computed.lineage != lineage.number) continue;
        for (size_t block = 0; block < blocks(); ++block) {
          EXPECT_TRUE(makers[block].emplace(computed.made(block), &computed).second);
        }
      }
    }
    std::map<const WorkerTrace::Computed*, Floats> sums;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t block = 0; block < blocks(); ++block) {
        const auto maker = makers[block].find(static_cast<int64_t>(history_[block].size()));
        if (maker == makers[block].end()) continue;
        const WorkerTrace::Computed& computed = *maker->second;
        const auto unit = units.find(computed.unit);
        if (unit == units.end() || !Exists(computed.read)) continue;
        auto sum = sums.find(&computed);
        if (sum == sums.end()) {
          sum = sums.emplace(&computed, Sum(computed.read, unit->second, leaves)).first;
        }
        // One contribution's share of a global batch.
        Apply(block, sum->second, unit->second,
              static_cast<double>(unit->second.samples) /
                  static_cast<double>(job_.train().batch_size()));
        goes_on = true;
      }
    }
    for (size_t block = 0; block < blocks(); ++block) {
      EXPECT_EQ(static_cast<int64_t>(history_[block].size()) - 1, lineage.end)
          << "lineage " << lineage.number << ", block " << block;
    }
  }

 private:
  struct Unit {
    int64_t epoch, begin, samples;
  };

  // The next `samples` samples, less at the end of an epoch.
  Unit Next(int64_t samples) {
    const Unit unit = {epoch_, position_, std::min(samples, gradients_.train_size() - position_)};
    position_ += unit.samples;
    if (position_ == gradients_.train_size()) {
      position_ = 0;
      ++epoch_;
    }
    return unit;
  }

  bool Exists(const std::vector<int64_t>& versions) const {
    for (size_t block = 0; block < blocks(); ++block) {
      if (versions[block] >= static_cast<int64_t>(history_[block].size())) return false;
    }
    return true;
  }

  Floats At(const std::vector<int64_t>& versions) const {
    Floats w;
    for (size_t block = 0; block < blocks(); ++block) {
      const Floats& values = history_[block][versions[block]];
      w.insert(w.end(), values.begin(), values.end());
    }
    return w;
  }

  Floats Sum(const std::vector<int64_t>& versions, const Unit& unit, int64_t leaves) {
    double loss = 0;
    return gradients_.Sum(At(versions), unit.epoch, unit.begin, unit.samples, leaves, &loss);
  }

  // As in PyTorch's SGD: the momentum begins as the first gradient.
  void Apply(size_t block, const Floats& sum, const Unit& unit, double share) {
    const bool is_first = history_[block].size() == 1;
    const float rate = static_cast<float>(
        static_cast<double>(static_cast<float>(job_.optimizer().learning_rate())) * share);
    const float decay = static_cast<float>(job_.optimizer().momentum());
    const float scale = static_cast<float>(1.0 / static_cast<double>(unit.samples));
    Floats w = history_[block].back();
    for (size_t i = 0; i < w.size(); ++i) {
      float& m = momentum_[block * block_size_ + i];
      const float g = scale * sum[block * block_size_ + i];
      m = is_first ? g : decay * m + g;
      w[i] = w[i] - rate * m;
    }
    history_[block].push_back(std::move(w));
  }

  const proto::Job job_;
  SequentialGradients gradients_;
  const size_t block_size_;
  Floats momentum_;
  std::vector<std::vector<Floats>> history_;  // by block and version
  int64_t epoch_ = 0, position_ = 0;          // of the next sample
};

class SwitchReplayTest : public ClusterTest {
 protected:
  std::vector<Lineage> Lineages() const {
    std::vector<Lineage> lineages;
    for (const absl::string_view line :
         absl::StrSplit(ReadText(Path("run/views.jsonl")), '\n', absl::SkipEmpty())) {
      const auto view = nlohmann::json::parse(line.begin(), line.end());
      const int64_t number = view["lineage"];
      if (!lineages.empty() && lineages.back().number == number) continue;
      const int64_t begin = view["from_step"];
      if (!lineages.empty()) lineages.back().end = begin;
      lineages.push_back({number, view["mode"] == "sync", begin, begin});
    }
    return lineages;
  }

  static void ExpectSameBits(const Floats& found, const Floats& expected, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size());
    int64_t differences = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      differences += std::memcmp(&found[i], &expected[i], sizeof(float)) != 0;
    }
    EXPECT_EQ(differences, 0) << "of " << found.size() << " values of " << what;
  }
};

TEST_F(SwitchReplayTest, ParametersAndMomentumHaveTheBitsOfTheRecordedOrder) {
  const Arguments set = {
      "consistency=sync", "cluster.servers=2", "cluster.workers=4", "train.batch_size=64",
      "train.micro_batches=8",
      "model={layers: [flatten, linear: {out_features: 16}, relu, linear: {out_features: 10}]}",
      // Wide enough apart that workers overtake each other.
      kForever};
  Arguments arguments = {"/usr/bin/env",
                         "RUBATO_TEST_TRACE=" + folder(),
                         "RUBATO_TEST_COMPUTE_MS=2,0:7",
                         std::filesystem::absolute("tools/rubato").string(),
                         "train",
                         "job.yaml",
                         "--run-dir",
                         "run"};
  for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
  std::filesystem::create_directory(Path("run"));
  Process& train = Start(arguments);
  const auto await_steps = [&](int64_t more) {
    const auto done = [&] {
      const std::vector<nlohmann::json> lines = Metrics("run", "train");
      return lines.empty() ? 0 : lines.back().value("step", int64_t{0});
    };
    const int64_t wanted = done() + more;
    return AwaitText(
        Path("run/metrics.jsonl"),
        [&](const std::string& text) {
          const size_t at = text.rfind("\"step\":");
          int64_t step = 0;
          return at != std::string::npos && std::sscanf(text.c_str() + at, "\"step\":%ld", &step) &&
                 step >= wanted;
        },
        train);
  };
  ASSERT_TRUE(AwaitTraining("run", train));
  int64_t lineage = 1;
  for (const std::string mode : {"async", "sync", "bounded,staleness=1", "async", "sync"}) {
    ASSERT_TRUE(await_steps(15));
    const Process::Result result = Start({"tools/rubato", "switch", "--mode", mode, "run"}).Wait();
    ASSERT_EQ(result.code, 0) << result.err;
    ++lineage;
    ASSERT_TRUE(
        AwaitText(Path("run/views.jsonl"), absl::StrCat("\"lineage\":", lineage, ","), train));
  }
  ASSERT_TRUE(await_steps(15));
  EXPECT_EQ(Start({"tools/rubato", "stop", "run"}).Wait().code, 0);
  const Process::Result result = train.Wait();
  ASSERT_EQ(result.code, 0) << result.err;

  std::vector<WorkerTrace> traces;
  int64_t stale = 0;
  for (int rank = 0; rank < 4; ++rank) {
    traces.push_back(ReadWorkerTrace(ReadText(Path(absl::StrCat("worker-", rank)))));
    for (const WorkerTrace::Computed& computed : traces.back().computed) {
      stale += computed.staleness[0] > 0;
    }
  }
  EXPECT_GT(stale, 0);  // else there was but one worker at a time
  std::vector<Lineage> lineages = Lineages();
  ASSERT_EQ(lineages.size(), 6u);
  lineages.back().end = Summary("run")["blocks"][0]["updates"];
  Replay replay(Job(set));
  for (const Lineage& each : lineages) replay.Run(each, traces);

  const std::string checkpoint = ListCheckpoints(Path("run/checkpoints")).back();
  const auto manifest = CheckCheckpoint(checkpoint);
  RUBATO_ASSERT_OK(manifest);
  const auto state = ReadTrainingState(checkpoint, *manifest, replay.layout());
  RUBATO_ASSERT_OK(state);
  ExpectSameBits(state->parameters, replay.Parameters(), "parameters");
  ExpectSameBits(state->slots[0], replay.momentum(), "momentum");
}

}  // namespace
}  // namespace rubato
