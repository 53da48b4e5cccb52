// What whole-system tests share: a folder of their own, jobs in it, and processes of the real
// binaries.
#ifndef RUBATO_TESTS_CLUSTER_H_
#define RUBATO_TESTS_CLUSTER_H_

#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "tests/process.h"

namespace rubato {

// A job that learns in a fraction of a second: 40 steps, which cross the end of an epoch with a
// short last batch, of a model of 50,890 parameters, one shard and one worker; a line of metrics
// for each step.
extern const char kSmallJob[];
// The job's secret, of processes that no launcher starts.
extern const char kTestSecret[];
// An override that lets it go on until it is ended.
extern const char kForever[];

class ClusterTest : public testing::Test {
 protected:
  using Arguments = std::vector<std::string>;

  // job.yaml holds kSmallJob.
  ClusterTest();
  ~ClusterTest() override;

  const std::string& folder() const { return folder_; }
  std::string Path(absl::string_view name) const;
  void Write(absl::string_view name, absl::string_view text) const;
  // job.yaml with overrides, as any process of the job reads it.
  proto::Job Job(const Arguments& overrides = {}) const;

  // Start a process in the folder; it is ended with the test. `set` are overrides. All but `rubato`
  // find kTestSecret in RUBATO_KEY.
  Process& Start(const Arguments& arguments);
  Process& StartTrain(const std::string& run_dir, const Arguments& set = {});
  Process& StartServer(int shard, const Arguments& set, const Arguments& more = {});
  Process& StartWorker(const Arguments& set, const Arguments& more = {});

  // `rubato train` in the new folder `run_dir`, until its end, which should be a good one.
  Process::Result Train(const std::string& run_dir, const Arguments& set = {});

  // The digest that `rubato inspect` prints of a run or a file.
  std::string InspectDigest(const std::string& path);
  nlohmann::json Summary(const std::string& run_dir) const;
  // The lines of metrics.jsonl of a kind, "train", "eval" or "test"; each must be a JSON object.
  std::vector<nlohmann::json> Metrics(const std::string& run_dir, absl::string_view kind) const;

  // Waits until the run has written a line of metrics, so that it is in the midst of training.
  // The folder `run_dir` exists.
  bool AwaitTraining(const std::string& run_dir, const Process& process) const;
  // The address at which shard 0, which writes to `run_dir`, listens.
  std::string AwaitAddress(const std::string& run_dir, const Process& shard_0) const;

 protected:
  std::string worker_ = "worker/rubato-worker";  // that StartWorker starts

 private:
  std::string folder_ = testing::TempDir() + "/rubato_XXXXXX";
  std::list<Process> processes_;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_CLUSTER_H_
