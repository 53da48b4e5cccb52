// `rubato simulate` beside `rubato train`: the same job in virtual time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/sequential_sgd.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Every file of a folder, by its path there.
std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    contents[fs::relative(entry.path(), folder)] = ReadText(entry.path());
  }
  return contents;
}

class SimulateTest : public ClusterTest {
 protected:
  Process::Result Simulate(const std::string& run_dir, const Arguments& more = {}) {
    Arguments arguments = {"tools/rubato", "simulate", "job.yaml", "--run-dir", run_dir};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process::Result result = Start(arguments).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
};

TEST_F(SimulateTest, SyncLeavesTheBitsOfARealRunWhateverTheClusterAndItsSpeeds) {
  const std::string set = "checkpoint={every: {steps: 15}}";
  ASSERT_EQ(Train("real", {set}).code, 0);
  const std::string parameters = ReadText(Path("real/parameters.safetensors"));
  ASSERT_FALSE(parameters.empty());
  EXPECT_EQ(Summary("real")["digest"], TrainSequentially(Job(), /*rate_by_samples=*/false).digest);
  Simulate("simulated", {"--workers", "3", "--servers", "2", "--speeds", "lognormal:sigma=1",
                         "--jitter", "5ms", "--set", set});
  EXPECT_EQ(ReadText(Path("simulated/parameters.safetensors")), parameters);
  // Checkpoints too, and all figures but those of time.
  const auto state_of = [&](const std::string& run) {
    const std::string path = Path(run + "/checkpoints/step-00000040");
    const auto manifest = CheckCheckpoint(path);
    RUBATO_EXPECT_OK(manifest);
    const auto state = ReadTrainingState(path, *manifest, manifest->layout());
    RUBATO_EXPECT_OK(state);
    return std::make_pair(state->parameters, state->slots);
  };
  EXPECT_EQ(state_of("simulated"), state_of("real"));
  const auto real = Metrics("real", "train"), simulated = Metrics("simulated", "train");
  ASSERT_EQ(real.size(), simulated.size());
  for (size_t i = 0; i < real.size(); ++i) {
    for (const char* key : {"step", "samples", "loss", "accuracy"}) {
      EXPECT_EQ(real[i][key], simulated[i][key]) << key << " of " << real[i];
    }
  }
}

// Contributions that are under way when a test is due are not in the parameters that it tests: it
// is of no more samples than have been trained when it ends.
TEST_F(SimulateTest, ATestIsOfTheSamplesThatItsParametersHold) {
  for (const char* mode : {"sync", "async", "{mode: bounded, staleness: 3}"}) {
    SCOPED_TRACE(mode);
    Simulate(mode, {"--workers", "4", "--speeds", "straggler:factor=8", "--set",
                    absl::StrCat("consistency=", mode), "--set", "evaluation.every={steps: 5}",
                    "--set", "data.test_size=1"});
    const auto tests = Metrics(mode, "eval"), train = Metrics(mode, "train");
    EXPECT_GE(tests.size(), 6u);
    for (const nlohmann::json& test : tests) {
      double trained = 0;
      for (const nlohmann::json& line : train) {
        if (line["time"] <= test["time"]) trained = std::max<double>(trained, line["samples"]);
      }
      EXPECT_LE(test["samples"].get<double>(), trained) << test;
    }
  }
}

// Nobody computes the step at which a mode ends, before which a test is due.
TEST_F(SimulateTest, TestsThatAreDueWhereTheModeChangesAreTold) {
  Simulate("simulated", {"--workers", "3", "--set", "train.until={epochs: 5}", "--set",
                         "consistency={schedule: [{mode: sync, until: {epochs: 1}}, {mode: async, "
                         "until: {epochs: 2}}, {mode: bounded, staleness: 2, until: {epochs: 3}}, "
                         "{mode: sync}]}"});
  std::vector<int64_t> samples;
  for (const nlohmann::json& test : Metrics("simulated", "eval"))
    samples.push_back(test["samples"]);
  EXPECT_THAT(samples, ElementsAre(1500, 3000, 4500, 6000, 7500));
}

TEST_F(SimulateTest, OneWorkerOnArrivalIsSequential) {
  Simulate("simulated", {"--workers", "1", "--set", "consistency.mode=async"});
  EXPECT_EQ(Summary("simulated")["digest"], TrainSequentially(Job(), true).digest);
}

// What clips a contribution on arrival, and what leaves it out, is the real worker's code.
TEST_F(SimulateTest, ClippingOnArrivalLeavesTheBitsOfARealRun) {
  const Arguments set = {"consistency.mode=async", "optimizer.clip_grad_norm=0.3",
                         "train.on_non_finite=skip"};
  ASSERT_EQ(Train("real", set).code, 0);
  Simulate("simulated", {"--set", set[0], "--set", set[1], "--set", set[2]});
  EXPECT_EQ(Summary("simulated")["digest"], Summary("real")["digest"]);
  EXPECT_NE(Summary("real")["digest"], TrainSequentially(Job(), true).digest);  // it did clip
}

TEST_F(SimulateTest, GoesOnFromInitialParametersAndFromACheckpoint) {
  const Arguments set = {"checkpoint={every: {steps: 15}}", "optimizer.momentum=0.9"};
  ASSERT_EQ(Train("runs/small-0", set).code, 0);
  const Arguments again = {set[0], set[1], "model.init_from=runs/small-0/parameters.safetensors"};
  ASSERT_EQ(Train("real", again).code, 0);
  Simulate("simulated",
           {"--workers", "3", "--set", again[0], "--set", again[1], "--set", again[2]});
  EXPECT_EQ(Summary("simulated")["digest"], Summary("real")["digest"]);
  // From a step before the last, of a run that is called as the job.
  const std::string run = "runs/small-20260101T000000Z-0000";
  fs::rename(Path("runs/small-0"), Path(run));
  fs::remove_all(Path(run + "/checkpoints/step-00000040"));
  // A slow disk may have missed that of step 30.
  const int from = fs::exists(Path(run + "/checkpoints/step-00000030")) ? 30 : 15;
  Simulate("resumed", {"--workers", "2", "--servers", "2", "--set", set[1], "--set",
                       "checkpoint.resume=required"});
  EXPECT_EQ(Summary("resumed")["digest"], Summary(run)["digest"]);
  const auto lines = Metrics("resumed", "train");
  ASSERT_EQ(lines.size(), 40u - from);
  EXPECT_EQ(lines[0]["step"], from + 1);
  const Arguments other_split = {"--set", set[1],
                                 "--set", "checkpoint.resume=required",
                                 "--set", "data.validation={fraction: 0.5}"};
  EXPECT_THAT(Simulate("split", other_split).err, HasSubstr("in the validation split now"));
  Process::Result refused = Start({"tools/rubato", "simulate", "job.yaml", "--sizes-only", "--set",
                                   "checkpoint.resume=required"})
                                .Wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("with --sizes-only nothing is resumed"));
}

TEST_F(SimulateTest, WarnsOfWorkersThatHaveNothingToCompute) {
  const Arguments arguments = {"--sizes-only", "--set", "train.micro_batches=4", "--workers"};
  const auto said = [&](const std::string& workers) {
    Arguments all = arguments;
    all.push_back(workers);
    return Simulate("w" + workers, all).err;
  };
  EXPECT_EQ(said("4"), "");
  EXPECT_EQ(said("6"),
            "warning: 2 of 6 workers have nothing to compute: train.micro_batches is 4\n");
}

TEST_F(SimulateTest, TellsTheModesThatHeld) {
  const Arguments fast = {"--sizes-only", "--workers", "2", "--set"};
  const auto out = [&](const std::string& run, const std::string& set) {
    Arguments arguments = fast;
    arguments.push_back(set);
    return Simulate(run, arguments).out;
  };
  EXPECT_THAT(out("one", "consistency={mode: bounded, staleness: 3}"),
              HasSubstr("2 on 1 shards, bounded, staleness 3, speeds fixed"));
  EXPECT_THAT(out("two",
                  "consistency={schedule: [{mode: sync, until: {epochs: 0.5}}, "
                  "{mode: async}]}"),
              HasSubstr("2 on 1 shards, sync; from epoch 0.5"));
}

// One of two workers computes each step's two micro-batches as long as the other, four times over;
// what is pushed takes half of the bytes that are pulled.
TEST_F(SimulateTest, TellsSharesOfTimeAndOfTheNetwork) {
  const auto out = [&](const std::string& run, const Arguments& more) {
    Arguments arguments = {"--sizes-only",
                           "--workers",
                           "2",
                           "--latency",
                           "0",
                           "--set",
                           "train={batch_size: 64, micro_batches: 2, until: {steps: 20}}"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Simulate(run, arguments).out;
  };
  EXPECT_THAT(
      out("sync", {"--speeds", "straggler:factor=4,worker=1", "--bandwidth", "unlimited"}),
      HasSubstr("time           0.8 s of training, 40 ms a step (20 steps)\n"
                "speed          1600 samples/s\n"
                "computing      62.5 % of a worker's time on average, 25.0 % of the least busy "
                "one's\n"
                "shards' cards  0.0 % busy receiving, 0.0 % busy sending (the busiest one)\n"));
  const std::string halves = out("halves", {"--bandwidth", "100Mbit", "--set", "wire.push=bf16",
                                            "--set", "consistency=async"});
  double in = 0, out_share = 0, mean = 0, most = 0;
  ASSERT_EQ(std::sscanf(halves.c_str() + halves.find("shards' cards"),
                        "shards' cards  %lf %% busy receiving, %lf %% busy sending (the busiest "
                        "one)\nstaleness      %lf on average, %lf at most",
                        &in, &out_share, &mean, &most),
            4)
      << halves;
  EXPECT_NEAR(out_share / in, 2, 0.3);  // the last parameters are followed by no gradient
  double updates = 0, sum = 0, greatest = 0;
  const nlohmann::json summary = Summary("halves");
  for (const nlohmann::json& block : summary["blocks"]) {
    updates += block["updates"].get<double>();
    sum += block["staleness_sum"].get<double>();
    greatest = std::max(greatest, block["staleness_max"].get<double>());
  }
  EXPECT_NEAR(mean, sum / updates, 0.0051);
  EXPECT_EQ(most, greatest);
  EXPECT_LT(mean, most);
}

// A machine, or the way between two, of 1 MB/s among others that take no time: each of the 40 steps
// takes its bytes there, to and fro, and the latency twice.
TEST_F(SimulateTest, ALinkTakesItsLatencyAndItsBytesOverItsBandwidth) {
  constexpr double kBytes = (784 * 64 + 64 + 64 * 10 + 10) * 4;
  const double once = (kBytes + 96 * std::ceil(kBytes / 16384)) / 1e6;
  int number = 0;
  for (const std::string machine : {"worker=1", "shard=0", "worker=1,shard=0"}) {
    const std::string run = absl::StrCat("run", ++number);
    Simulate(run, {"--sizes-only", "--latency", "0", "--bandwidth", "unlimited", "--compute", "0",
                   "--workers", machine == "shard=0" ? "1" : "2", "--link",
                   machine + ",latency=50ms,bandwidth=1MB"});
    EXPECT_NEAR(Summary(run)["seconds"].get<double>() / 40 / (2 * once + 0.1), 1, 0.03) << machine;
  }
  Process::Result refused = Start({"tools/rubato", "simulate", "job.yaml", "--sizes-only", "--link",
                                   "worker=9,latency=0"})
                                .Wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("found worker=9, expected a number from 0 to"));
}

// A shard of 1 MB/s: for one worker each of the 40 steps is an update of all blocks; for two the
// blocks' gradients are added before. In sync it changes no bit.
TEST_F(SimulateTest, SummingAndApplyingRealGradientsTakesTime) {
  constexpr double kBytes = (784 * 64 + 64 + 64 * 10 + 10) * 4;
  const double change = (kBytes + 96 * std::ceil(kBytes / 16384)) / 1e6;
  Simulate("at-once", {"--workers", "2"});
  for (const int workers : {1, 2}) {
    const std::string run = absl::StrCat("run", workers);
    Simulate(run, {"--servers", "1", "--workers", absl::StrCat(workers), "--latency", "0",
                   "--bandwidth", "unlimited", "--compute", "0", "--apply", "1MB"});
    EXPECT_NEAR(Summary(run)["seconds"].get<double>(), 40 * workers * change, 0.01 * 40 * change);
    EXPECT_EQ(Summary(run)["digest"], Summary("at-once")["digest"]);
  }
}

// Two workers of which one is four times slower, and the other waits.
TEST_F(SimulateTest, TellsWhatEachWorkersTimeWentInto) {
  Simulate("run", {"--workers", "2", "--speeds", "straggler:factor=4", "--compute", "10ms"});
  const nlohmann::json summary = Summary("run"), workers = summary["workers"];
  ASSERT_EQ(workers.size(), 2u);
  const auto of = [&](int worker, const char* what) {
    return workers[worker][absl::StrCat(what, "_seconds")].get<double>();
  };
  // A step has four micro-batches, two for each.
  EXPECT_NEAR(of(0, "computing") / (40 * 2 * 0.04), 1, 0.03);  // one of the steps is short
  EXPECT_NEAR(of(1, "computing") / (40 * 2 * 0.01), 1, 0.03);
  EXPECT_GT(of(0, "sending"), 0);
  for (const int worker : {0, 1}) {
    EXPECT_NEAR(of(worker, "computing") + of(worker, "sending") + of(worker, "waiting"),
                summary["seconds"].get<double>(), 1e-9);
  }
}

TEST_F(SimulateTest, ADivergedJobSaysSoInItsSummary) {
  const Process::Result result = Start({"tools/rubato", "simulate", "job.yaml", "--run-dir", "run",
                                        "--set", "optimizer.learning_rate=1e30"})
                                     .Wait();
  EXPECT_EQ(result.code, 1);
  const nlohmann::json summary = Summary("run");
  EXPECT_THAT(summary["diverged"].get<std::string>(),
              HasSubstr("step 1: the loss of micro-batch 0 is"));
  EXPECT_EQ(summary["steps"], 1);
  EXPECT_TRUE(summary["test_loss"].is_null());
}

// What has no effect, or cannot be simulated, is refused.
TEST_F(SimulateTest, MistakesAreToldInOneSentence) {
  Write("long.csv", "0,1e300\n");
  for (const auto& [flags, expected] : std::vector<std::pair<Arguments, std::string>>{
           {{"--workers", "0"}, "cluster.workers"},
           {{"--workers", "-1"}, "cluster.workers"},
           {{"--servers", "0"}, "cluster.servers"},
           {{"--workers", "2", "--speeds", "straggler:worker=99"},
            "found straggler:worker=99, expected a number from 0 to 1: the job has 2 workers"},
           {{"--speeds", "straggler:factor=1e12"}, "expected a number above 0 and not above"},
           {{"--speeds", "lognormal:sigma=1e9"}, "expected a number from 0 to 10"},
           {{"--speeds", "trace:long.csv"}, "long.csv:1: found 0,1e300"},
           {{"--compute", "1000000h"}, "expected not more than 10000h"}}) {
    Arguments arguments = {"tools/rubato", "simulate", "job.yaml", "--sizes-only"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Process::Result refused = Start(arguments).Wait();
    EXPECT_EQ(refused.code, 2) << flags[1];
    EXPECT_THAT(refused.err, HasSubstr(expected));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_FALSE(fs::exists(Path("runs")));
  }
}

// Nobody may ask a simulated run anything, and the newest run of train stays the newest.
TEST_F(SimulateTest, LeavesTheLinkToTheNewestRunAlone) {
  const Process::Result result =
      Start({"tools/rubato", "simulate", "job.yaml", "--sizes-only"}).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(fs::is_directory(Path("runs")));
  EXPECT_FALSE(fs::is_symlink(Path("runs/latest")));
}

TEST_F(SimulateTest, TheSameSeedLeavesTheSameBytes) {
  const Arguments arguments = {"--workers", "4",   "--speeds", "exponential",
                               "--jitter",  "1ms", "--set",    "consistency.mode=async",
                               "--seed"};
  const auto with_seed = [&](const std::string& seed, const std::string& run_dir) {
    Arguments all = arguments;
    all.push_back(seed);
    Simulate(run_dir, all);
    return Contents(Path(run_dir));
  };
  const std::map<std::string, std::string> first = with_seed("3", "first");
  EXPECT_EQ(with_seed("3", "second"), first);
  for (const std::string file : {"job.yaml", "metrics.jsonl", "summary.json",
                                 "parameters.safetensors", "logs/simulation.log"}) {
    EXPECT_EQ(first.count(file), 1u) << file;
  }
  EXPECT_NE(with_seed("4", "third").at("parameters.safetensors"),
            first.at("parameters.safetensors"));
}

// A step's 8 micro-batches of 10 ms each, divided over the workers.
TEST_F(SimulateTest, SizesOnlyTellsTheTimeAndComputesNothing) {
  const Arguments fast = {"--sizes-only",
                          "--latency",
                          "0",
                          "--bandwidth",
                          "unlimited",
                          "--set",
                          "train={batch_size: 64, micro_batches: 8, until: {steps: 10}}"};
  for (const int workers : {1, 4, 8}) {
    Arguments arguments = fast;
    arguments.insert(arguments.end(), {"--workers", absl::StrCat(workers)});
    const std::string run = absl::StrCat("run", workers);
    EXPECT_THAT(Simulate(run, arguments).out, HasSubstr("10 steps"));
    EXPECT_NEAR(Summary(run)["seconds"], 10 * 0.010 * 8 / workers, 1e-6);
    EXPECT_FALSE(fs::exists(Path(run + "/parameters.safetensors")));
  }
}

// A test of the 200 samples takes a third of the 10 ms for each of their 25 micro-batches, and
// steps of 10 ms go on beside it; the next one, two steps later, waits for its end, and so do all
// workers.
TEST_F(SimulateTest, ATestThatOutlastsTheStepsToTheNextOneIsWaitedFor) {
  constexpr double kTest = 0.010 * 25 / 3;
  const std::pair<int, double> cases[] = {{10, 0.1},                      // none but the final one
                                          {5, 0.1},                       // none after it
                                          {2, 0.02 + 3 * kTest + 0.02}};  // after 2, 4, 6, 8 steps
  for (const auto& [every, seconds] : cases) {
    const std::string run = absl::StrCat("run", every);
    Simulate(run, {"--sizes-only", "--latency", "0", "--bandwidth", "unlimited", "--workers", "8",
                   "--set", "train={batch_size: 64, micro_batches: 8, until: {steps: 10}}", "--set",
                   absl::StrCat("evaluation.every={steps: ", every, "}")});
    EXPECT_NEAR(Summary(run)["seconds"], seconds, 1e-6) << every;
  }
}

// Of 80 samples for validation, 10 micro-batches, and not of the 200 of the test split. On these
// two the final parameters are tested one after the other; where tests are of the test split, once.
TEST_F(SimulateTest, ATestTakesTheTimeOfTheSamplesOfItsSplit) {
  const auto seconds = [this](absl::string_view split, int every) {
    const std::string run = absl::StrCat(split, every);
    Simulate(run,
             {"--sizes-only", "--latency", "0", "--bandwidth", "unlimited", "--workers", "8",
              "--set", "train={batch_size: 64, micro_batches: 8, until: {steps: 10}}", "--set",
              "data={format: glyphs, train_size: 1000, test_size: 200, validation: 0.08}", "--set",
              absl::StrCat("evaluation={split: ", split, ", every: {steps: ", every, "}}")});
    const double end = Summary(run)["seconds"];
    return std::vector<double>{end, Metrics(run, "eval").back()["time"].get<double>() - end,
                               Metrics(run, "test").back()["time"].get<double>() - end};
  };
  // Of the final parameters alone; no step waits for it.
  constexpr double kValidation = 0.010 * 10 / 3, kTest = 0.010 * 25 / 3, kStep = 0.010;
  const auto near = [](const std::vector<double>& times) {
    return Pointwise(DoubleNear(1e-6), times);
  };
  EXPECT_THAT(seconds("validation", 10), near({10 * kStep, kValidation, kValidation + kTest}));
  EXPECT_THAT(seconds("test", 10), near({10 * kStep, kTest, kTest}));
  // And after 2, 4, 6 and 8 steps. Each of these tests, the final one too, begins when the one
  // before has ended, which began two steps earlier; the first begins at once.
  const double rest = kValidation - 2 * kStep, test_rest = kTest - 2 * kStep;
  EXPECT_THAT(seconds("validation", 2),
              near({10 * kStep + 3 * rest, rest + kValidation, rest + kValidation + kTest}));
  EXPECT_THAT(seconds("test", 2),
              near({10 * kStep + 3 * test_rest, test_rest + kTest, test_rest + kTest}));
}

// Blocks of 16 KiB with a header of 96 bytes each; a card of 1 MB/s sends and takes one message
// after the other. The first worker's sum leaves when it has its parameters, as the second one gets
// its own, and so on: a step of W workers takes W + 1 times as long as its bytes on a card.
TEST_F(SimulateTest, BandwidthIsThatOfTheMachinesNotOfTheConnections) {
  constexpr double kBytes = (784 * 64 + 64 + 64 * 10 + 10) * 4;
  const double blocks = std::ceil(kBytes / 16384);
  const double once = (kBytes + 96 * blocks) / 1e6;
  for (const int workers : {1, 2, 4}) {
    const std::string run = absl::StrCat("run", workers);
    Simulate(run, {"--sizes-only", "--latency", "0", "--bandwidth", "1MB", "--compute", "0",
                   "--workers", absl::StrCat(workers)});
    // The first parameters, pulls and control messages come on top.
    EXPECT_NEAR(Summary(run)["seconds"].get<double>() / 40 / ((workers + 1) * once), 1, 0.03);
  }
}

}  // namespace
}  // namespace rubato
