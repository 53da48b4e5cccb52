// Reports the training's progress to Kubeflow's trainer, on a separate thread. Only Finish waits
// for it. An error is logged once and has no other effect.
#ifndef RUBATO_WORKER_TRAINER_TRAINER_CLIENT_H_
#define RUBATO_WORKER_TRAINER_TRAINER_CLIENT_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "worker/trainer/progress_reports.h"

namespace rubato {

// Where it is told.
struct TrainerServer {
  std::string url;
  std::string ca_file;     // PEM
  std::string token_file;  // written anew now and then: read for each request
};

// The server that the trainer sets in a pod's environment: KUBEFLOW_TRAINER_SERVER_URL, ..._CA_CERT
// and ..._TOKEN. Nothing if there is no URL; whether the files are there shows with the first
// request.
std::optional<TrainerServer> FindTrainerServer(
    const std::function<const char*(const char* name)>& get_variable);

class TrainerClient {
 public:
  TrainerClient(const TrainerServer& server, const Log& log);
  // Drops reports that have not been sent; waits for a request that is under way, 5 s at most.
  ~TrainerClient();

  void Report(const TrainingFigures& figures) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports the end of the training. Returns when that has succeeded or failed, after some ten
  // seconds at most.
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Post(const std::string& body) const;

  const TrainerServer server_;
  const Log log_;
  MonotonicMutex mutex_;
  ProgressReports reports_ ABSL_GUARDED_BY(mutex_);
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_TRAINER_TRAINER_CLIENT_H_
