// A job under load whose mode changes again and again while workers are killed, frozen, cut off,
// told to end and added, at random moments: for RUBATO_STRESS_SWITCHES changes of mode. In the end
// the stretches in sync have the bits of the job that nobody disturbed, and each block's version is
// the number of contributions on arrival and of steps in sync.
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/membership.h"

namespace rubato {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  int value = 0;
  const char* text = std::getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

class StressTest : public MembershipJob {
 protected:
  int Random(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  // One more misfortune, after the last one has passed.
  void Disturb() {
    Undo();
    while (Living().size() < 2) AddWorker();
    Process* const victim = Living()[static_cast<size_t>(Random(Living().size()))];
    const int what = Random(5);
    ++disturbances_[what];
    switch (what) {
      case 0:
        Note(absl::StrCat("kill ", victim->pid()));
        victim->Signal(SIGKILL);
        break;
      case 1:
        Note(absl::StrCat("leave ", victim->pid()));
        victim->Signal(SIGTERM);
        break;
      case 2:
        Note(absl::StrCat("freeze ", victim->pid()));
        victim->Signal(SIGSTOP);
        frozen_ = victim;
        break;
      case 3:
        Note("cut");
        Cut();
        break;
      case 4:
        if (Living().size() < 5) AddCuttableWorker();
        Note("join");
        break;
    }
  }

  // Random moments are the point.
  void LetItRun() { absl::SleepFor(absl::Milliseconds(100 + Random(1500))); }

  void Undo() {
    Heal();
    if (frozen_ != nullptr) frozen_->Signal(SIGCONT);
    frozen_ = nullptr;
    while (Living().size() < 2) AddWorker();
  }

  void Switch() {
    static constexpr const char* kModes[] = {"sync", "async", "bounded,staleness=2"};
    const int old = mode_;
    while (mode_ == old) mode_ = Random(3);
    Note(absl::StrCat("switch to ", kModes[mode_]));
    const Process::Result result = Rubato({"switch", "--mode", kModes[mode_], "run"});
    EXPECT_EQ(result.code, 0) << result.err;
  }
  bool InSync() const { return mode_ == 0; }

  bool AwaitLineage(int64_t lineage) {
    return AwaitText(
        Path("run/views.jsonl"),
        [lineage](const std::string& text) {
          return absl::StrContains(text, absl::StrCat("\"lineage\":", lineage, ","));
        },
        shard_0());
  }

  std::string Checkpoint() {
    const Process::Result result = Rubato({"checkpoint", "run"});
    EXPECT_EQ(result.code, 0) << result.err << Status();
    return std::string(absl::StripAsciiWhitespace(result.out));
  }

  void ExpectSameBits(const std::string& from, const std::string& to) {
    const nlohmann::json manifest =
        nlohmann::json::parse(ReadText(Path(to + "/manifest.json")), nullptr, false);
    ASSERT_TRUE(manifest.is_object()) << to;
    // int64 of a protobuf message may be written as text.
    const std::string samples = manifest["samples"].is_string()
                                    ? manifest["samples"].get<std::string>()
                                    : manifest["samples"].dump();
    const std::string run = absl::StrCat("again", references_++);
    const Process::Result result =
        Rubato({"train", "--resume", from, "--run-dir", run, "--set", "cluster.address=127.0.0.1:0",
                "--set", "cluster.workers=1", "--set", "cluster.servers=1", "--set",
                "consistency=sync", "--set", absl::StrCat("train.until={samples: ", samples, "}")});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(InspectDigest(run), InspectDigest(to + "/parameters.safetensors"))
        << from << " to " << to;
  }

  // By lineage: its mode, and the version that it began at, as the journal of views tells.
  std::vector<std::pair<bool, int64_t>> Lineages() const {
    std::map<int64_t, std::pair<bool, int64_t>> lineages;
    for (const absl::string_view line :
         absl::StrSplit(ReadText(Path("run/views.jsonl")), '\n', absl::SkipEmpty())) {
      const auto view = nlohmann::json::parse(line.begin(), line.end());
      lineages.try_emplace(view["lineage"], view["mode"] == "sync", view["from_step"]);
    }
    std::vector<std::pair<bool, int64_t>> in_order;
    for (const auto& [lineage, what] : lineages) in_order.push_back(what);
    return in_order;
  }

  std::vector<Process*> Living() {
    std::vector<Process*> living;
    for (Process* worker : workers()) {
      if (!worker->handle().AwaitEnd(absl::ZeroDuration())) living.push_back(worker);
    }
    return living;
  }

  void Note(const std::string& what) { std::cout << what << std::endl; }

  const uint64_t seed_ = static_cast<uint64_t>(FromEnvironment("RUBATO_STRESS_SEED", 1));
  std::mt19937_64 random_;
  int mode_ = 0;
  Process* frozen_ = nullptr;
  int disturbances_[5] = {};  // by kind
  int references_ = 0;
};

TEST_F(StressTest, NothingIsLostOrCountedTwice) {
  const int switches = FromEnvironment("RUBATO_STRESS_SWITCHES", 4);
  std::cout << "RUBATO_STRESS_SEED=" << seed_ << std::endl;
  random_.seed(seed_);
  Begin({"consistency=sync", "checkpoint.keep_last=1000"}, 3);
  std::vector<std::pair<std::string, std::string>> stretches;
  for (int i = 0; i <= switches; ++i) {
    std::string first;
    if (i > 0) {
      Disturb();
      Switch();
      LetItRun();
      Undo();
      ASSERT_TRUE(AwaitLineage(i + 1));
    }
    if (InSync()) first = Checkpoint();
    for (int k = 0; k < 2; ++k) {
      Disturb();
      LetItRun();
    }
    Undo();
    ASSERT_TRUE(AwaitSteps(20));
    if (InSync()) stretches.emplace_back(first, Checkpoint());
  }
  Stop();

  ExpectBalancedLedger();
  const nlohmann::json summary = Summary("run");
  std::cout << summary["contributions"] << ", " << summary["views"] << " views, "
            << summary["workers_lost"] << " workers lost, " << summary["workers_left"] << " left"
            << std::endl;
  EXPECT_EQ(summary["switches"], switches);
  // With so many, none of a kind would be a flaw of this test.
  if (switches >= 20) {
    EXPECT_THAT(disturbances_, testing::Each(testing::Gt(0)));
  }
  ASSERT_FALSE(summary["blocks"].empty());
  const std::vector<std::pair<bool, int64_t>> lineages = Lineages();
  ASSERT_EQ(lineages.size(), static_cast<size_t>(switches) + 1);
  for (const nlohmann::json& block : summary["blocks"]) {
    const int64_t version = block["updates"];
    int64_t on_arrival = 0;
    for (size_t i = 0; i < lineages.size(); ++i) {
      const int64_t end = i + 1 < lineages.size() ? lineages[i + 1].second : version;
      if (!lineages[i].first) on_arrival += end - lineages[i].second;
    }
    EXPECT_EQ(on_arrival, summary["contributions"]["applied"]) << block;
    EXPECT_EQ(block["samples"], summary["samples"]) << block;
  }
  ASSERT_FALSE(stretches.empty());
  for (const auto& [from, to] : stretches) ExpectSameBits(from, to);
}

}  // namespace
}  // namespace rubato
