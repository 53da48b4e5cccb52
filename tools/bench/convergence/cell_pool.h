// Runs commands of `rubato` side by side, each in a process of its own that does not outlive
// this one.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_POOL_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/process_exit.h"

namespace rubato {

// While it exists, SIGINT and SIGTERM (via `signals`) wake Wait(); a second signal ends this
// process at once. Use it on the main thread: the kernel kills a child when the thread that started
// it ends.
class CellPool {
 public:
  explicit CellPool(SignalWatcher* signals);
  CellPool(const CellPool&) = delete;
  // Kills what still runs.
  ~CellPool();

  struct Ended {
    enum class What { kCell, kSignal, kTimeout } what = What::kTimeout;
    size_t cell = 0;
    int exit_code = 0;  // 128 + n after signal n
    double wall_seconds = 0;
    double cpu_seconds = 0;
    int64_t peak_bytes = 0;
    int signal = 0;
  };

  // Starts `rubato ARGUMENTS`, which writes what it says to the new file `log`. Unavailable if
  // there can be no further process.
  absl::Status Start(size_t cell, const std::vector<std::string>& arguments,
                     const std::string& log);
  // Until a cell or `timeout` ends, or a signal comes.
  Ended Wait(absl::Duration timeout);
  size_t running() const { return running_.size(); }

 private:
  struct Running {
    size_t cell;
    int pid_fd;  // readable when the process has ended
    absl::Time since;
  };

  const int wake_;  // readable after a signal
  std::map<pid_t, Running> running_;
  SignalWatcher* const signals_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_POOL_H_
