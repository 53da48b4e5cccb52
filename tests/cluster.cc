#include "tests/cluster.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"

namespace rubato {

namespace fs = std::filesystem;

const char kSmallJob[] = R"(version: 1
name: small
seed: 7
cluster: {servers: 1, workers: 1, address: "127.0.0.1:0"}
data: {format: glyphs, train_size: 1500, test_size: 200}
model: {layers: [flatten, linear: {out_features: 64}, relu, linear: {out_features: 10}]}
optimizer: {learning_rate: 0.05, momentum: 0.9}
train: {batch_size: 64, micro_batches: 4, until: {steps: 40}}
wire: {chunk: 16KiB}
metrics: {every: {samples: 1}}
)";

const char kTestSecret[] =
    "secret-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

const char kForever[] = "train.until={steps: 1000000000}";

ClusterTest::ClusterTest() {
  RUBATO_CHECK(mkdtemp(folder_.data()) != nullptr);
  Write("job.yaml", kSmallJob);
}

ClusterTest::~ClusterTest() {
  processes_.clear();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string ClusterTest::Path(absl::string_view name) const {
  return absl::StartsWith(name, "/") ? std::string(name) : absl::StrCat(folder_, "/", name);
}

void ClusterTest::Write(absl::string_view name, absl::string_view text) const {
  std::ofstream(Path(name), std::ios::binary) << text;
}

proto::Job ClusterTest::Job(const Arguments& overrides) const {
  absl::StatusOr<proto::Job> job = LoadJob(Path("job.yaml"), overrides);
  EXPECT_THAT(job, IsOk());
  return job.ok() ? *job : proto::Job();
}

Process& ClusterTest::Start(const Arguments& arguments) {
  Arguments absolute = arguments;
  absolute[0] = fs::absolute(arguments[0]);  // of the runfiles
  // `rubato` has each run's own.
  const bool is_by_hand = arguments[0] != "tools/rubato";
  if (is_by_hand) setenv("RUBATO_KEY", kTestSecret, 1);
  const auto unset = absl::MakeCleanup([] { unsetenv("RUBATO_KEY"); });
  return processes_.emplace_back(absolute, folder_,
                                 Path(absl::StrCat("process-", processes_.size())));
}

Process& ClusterTest::StartTrain(const std::string& run_dir, const Arguments& set) {
  Arguments arguments = {"tools/rubato", "train", "job.yaml", "--run-dir", run_dir};
  for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
  return Start(arguments);
}

Process& ClusterTest::StartServer(int shard, const Arguments& set, const Arguments& more) {
  Arguments arguments = {"server/rubato-server", "--config", "job.yaml", "--shard",
                         absl::StrCat(shard)};
  for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Start(arguments);
}

Process& ClusterTest::StartWorker(const Arguments& set, const Arguments& more) {
  Arguments arguments = {worker_, "--config", "job.yaml"};
  for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Start(arguments);
}

Process::Result ClusterTest::Train(const std::string& run_dir, const Arguments& set) {
  const Process::Result result = StartTrain(run_dir, set).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  return result;
}

std::string ClusterTest::InspectDigest(const std::string& path) {
  const Process::Result result = Start({"tools/rubato", "inspect", path}).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  for (const absl::string_view line : absl::StrSplit(result.out, '\n')) {
    if (absl::StartsWith(line, "digest: ")) return std::string(line.substr(8));
  }
  ADD_FAILURE() << "no digest in:\n" << result.out;
  return "";
}

nlohmann::json ClusterTest::Summary(const std::string& run_dir) const {
  const std::string text = ReadText(Path(absl::StrCat(run_dir, "/summary.json")));
  nlohmann::json summary = ParseJson(text);
  EXPECT_TRUE(summary.is_object()) << text;
  return summary.is_object() ? summary : nlohmann::json::object();
}

std::vector<nlohmann::json> ClusterTest::Metrics(const std::string& run_dir,
                                                 absl::string_view kind) const {
  std::vector<nlohmann::json> lines;
  const std::string text = ReadText(Path(absl::StrCat(run_dir, "/metrics.jsonl")));
  // A reader may see the first pages of a line that is just being written.
  const absl::string_view whole(text.data(), text.rfind('\n') + 1);
  for (const absl::string_view line : absl::StrSplit(whole, '\n', absl::SkipEmpty())) {
    nlohmann::json json = ParseJson(line);
    EXPECT_TRUE(json.is_object()) << line;
    if (json.is_object() && json.value("kind", "") == kind) lines.push_back(std::move(json));
  }
  return lines;
}

bool ClusterTest::AwaitTraining(const std::string& run_dir, const Process& process) const {
  return AwaitText(Path(absl::StrCat(run_dir, "/metrics.jsonl")), "\n", process);
}

std::string ClusterTest::AwaitAddress(const std::string& run_dir, const Process& shard_0) const {
  const std::string path = Path(absl::StrCat(run_dir, "/address"));
  if (!AwaitText(path, "\n", shard_0)) return "";
  return std::string(absl::StripAsciiWhitespace(ReadText(path)));
}

}  // namespace rubato
