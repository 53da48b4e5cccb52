#include "tests/membership.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

constexpr char kRun[] = "run";

// The last whole line that is JSON; an empty object if there is none.
nlohmann::json LastLine(const std::string& text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (size_t i = lines.size(); i-- > 0;) {
    nlohmann::json json = ParseJson(lines[i]);
    if (json.is_object()) return json;
  }
  return nlohmann::json::object();
}

int64_t LastStep(const std::string& metrics) { return LastLine(metrics).value("step", int64_t{0}); }

}  // namespace

void MembershipJob::Begin(const Arguments& mode, int workers, const Arguments& more) {
  set_ = {"cluster.servers=2",
          absl::StrCat("cluster.workers={start: ", workers, ", min: 1, max: ", workers + 2, "}"),
          "cluster.lease=1s",
          "train.batch_size=64",
          "train.micro_batches=8",
          "metrics.every={steps: 10}",
          kForever};
  set_.insert(set_.end(), mode.begin(), mode.end());
  set_.insert(set_.end(), more.begin(), more.end());
  fs::create_directory(Path(kRun));
  shard_0_ = &StartServer(
      0, set_,
      {"--run-dir", kRun, "--listen", "127.0.0.1:0", "--advertise", proxies_[0].address()});
  const std::string address = AwaitAddress(kRun, *shard_0_);
  proxies_[0].SetTarget(address);
  Arguments direct = set_;
  direct.push_back("cluster.address=" + address);
  shard_1_ = &StartServer(1, direct, {"--advertise", proxies_[1].address()});
  const std::string key = "listening address=";
  ASSERT_TRUE(AwaitText(shard_1_->err_path(), absl::StrCat(key, "127.0.0.1:"), *shard_1_));
  const std::string said = shard_1_->err();
  const size_t begin = said.find(key) + key.size();
  proxies_[1].SetTarget(said.substr(begin, said.find_first_of(" \n", begin) - begin));
  set_.push_back("cluster.address=" + proxies_[0].address());
  for (int i = 0; i < workers; ++i) AddWorker();
  ASSERT_TRUE(AwaitTraining(kRun, *shard_0_));
}

Process& MembershipJob::AddWorker(const Arguments& environment) {
  Arguments arguments = {"/usr/bin/env"};
  arguments.insert(arguments.end(), environment.begin(), environment.end());
  arguments.insert(arguments.end(),
                   {fs::absolute("worker/rubato-worker").string(), "--config", "job.yaml"});
  for (const std::string& override : set_) {
    arguments.insert(arguments.end(), {"--set", override});
  }
  workers_.push_back(&Start(arguments));
  return *workers_.back();
}

Process& MembershipJob::AddCuttableWorker() {
  for (Proxy& proxy : proxies_) proxy.Mark();
  return AddWorker();
}

void MembershipJob::Cut() {
  for (Proxy& proxy : proxies_) proxy.Cut();
}

void MembershipJob::Heal() {
  for (Proxy& proxy : proxies_) proxy.Heal();
}

bool MembershipJob::AwaitSaid(absl::string_view text) {
  return AwaitText(shard_0_->err_path(), text, *shard_0_);
}

nlohmann::json MembershipJob::View() const {
  return LastLine(ReadText(Path(absl::StrCat(kRun, "/views.jsonl"))));
}

bool MembershipJob::AwaitMembers(size_t count) {
  return AwaitText(
      Path(absl::StrCat(kRun, "/views.jsonl")),
      [count](const std::string& text) {
        const nlohmann::json view = LastLine(text);
        return view.contains("members") && view["members"].size() == count;
      },
      *shard_0_);
}

bool MembershipJob::AwaitSteps(int64_t more) {
  const std::string path = Path(absl::StrCat(kRun, "/metrics.jsonl"));
  const int64_t wanted = LastStep(ReadText(path)) + more;
  return AwaitText(
      path, [wanted](const std::string& text) { return LastStep(text) >= wanted; }, *shard_0_);
}

Process::Result MembershipJob::Rubato(const Arguments& arguments) {
  Arguments all = {"tools/rubato"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Start(all).Wait();
}

nlohmann::json MembershipJob::Status() {
  const Process::Result result = Rubato({"status", kRun, "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  nlohmann::json json = ParseJson(result.out);
  return json.is_object() ? json : nlohmann::json::object();
}

void MembershipJob::Stop() {
  const Process::Result stop = Rubato({"stop", kRun});
  EXPECT_EQ(stop.code, 0) << stop.err;
  for (Process* process : {shard_0_, shard_1_}) {
    const Process::Result result = process->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
  }
  EXPECT_EQ(InspectDigest(kRun), Summary(kRun)["digest"]);
}

void MembershipJob::ExpectBitsOfTheUndisturbed() {
  const nlohmann::json summary = Summary(kRun);
  Train("undisturbed", {"train.batch_size=64", "train.micro_batches=8",
                        absl::StrCat("train.until={steps: ", summary.value("steps", 0), "}")});
  const nlohmann::json undisturbed = Summary("undisturbed");
  EXPECT_EQ(summary["steps"], undisturbed["steps"]);
  EXPECT_EQ(summary["samples"], undisturbed["samples"]);
  EXPECT_EQ(summary["digest"], undisturbed["digest"]);
  EXPECT_EQ(summary["test_loss"], undisturbed["test_loss"]);
}

void MembershipJob::ExpectBalancedLedger() {
  const nlohmann::json counts = Summary(kRun)["contributions"];
  const int64_t given = counts["given"], applied = counts["applied"], partial = counts["partial"],
                lost = counts["lost"], left_out = counts["left_out"];
  EXPECT_EQ(given, applied + partial + lost + left_out) << counts;
}

void MembershipJob::ExpectEveryContributionOnce() {
  ExpectBalancedLedger();
  const nlohmann::json summary = Summary(kRun);
  const proto::Job job = Job(set_);
  const int64_t n = job.data().train_size();
  const int64_t contribution =
      job.train().batch_size() / job.train().micro_batches() *
      std::max<int64_t>(1, job.train().micro_batches() / job.cluster().workers().start());
  const int64_t samples = summary["samples"];
  // Each epoch ends with a short one; so does the job only if it was stopped there.
  const int64_t units = samples / n * ((n + contribution - 1) / contribution) +
                        (samples % n + contribution - 1) / contribution;
  EXPECT_EQ(samples % n % contribution, 0);
  EXPECT_EQ(summary["contributions"]["applied"], units);
  for (const auto& block : summary["blocks"]) {
    EXPECT_EQ(block["updates"], units) << block;
    EXPECT_EQ(block["samples"], samples) << block;
  }
}

}  // namespace rubato
