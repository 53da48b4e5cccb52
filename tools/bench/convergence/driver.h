// Runs a study and keeps track of the finished cells in its folder.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_DRIVER_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_DRIVER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/process_exit.h"
#include "server/process/pace.h"
#include "tools/bench/convergence/cell_pool.h"
#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

class Driver {
 public:
  // Runs `jobs` cells side by side. `study` must outlive it.
  Driver(const Study* study, std::string folder, size_t jobs)
      : study_(*study), folder_(std::move(folder)), jobs_(jobs) {}

  // Makes the folder, or takes up the study in it. FailedPrecondition if it holds another study or
  // somebody else runs it.
  absl::Status Open();
  // More cells to run, of which some may be done.
  void Add(const std::vector<Cell>& cells);
  // Runs what is not done. The signal that ended it, or 0.
  absl::StatusOr<int> Run(SignalWatcher* signals);
  // results.jsonl, results.csv, measured.jsonl, and the report, which says how to repeat it by
  // `command`, as report.md and a page.
  absl::Status WriteResults(const std::string& command) const;

  std::vector<DoneCell> Done() const;

 private:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string RunFolderOf(const Cell& cell) const { return Path("cells/" + cell.name); }
  std::string ResultOf(const Cell& cell) const { return Path("cells/" + cell.name + ".json"); }
  std::string MeasuredOf(const Cell& cell) const {
    return Path("cells/" + cell.name + ".measured.json");
  }
  std::string LogOf(const Cell& cell) const { return Path("cells/" + cell.name + ".log"); }

  absl::Status CheckFolder() const;
  absl::Status Lock();
  absl::Status StartCell(CellPool* pool, size_t index);
  // Keeps what came of the cell, and drops its large files.
  absl::Status Finish(const CellPool::Ended& ended);
  void Say(const CellPool& pool, const std::string& event) const;

  const Study& study_;
  const std::string folder_;
  const size_t jobs_;
  std::vector<Cell> cells_;
  std::vector<std::optional<CellResult>> results_;
  std::map<size_t, Pace::Processors> began_with_;  // by cell, when it began
  int lock_ = -1;
  absl::Time begun_;
  size_t done_before_ = 0, done_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_DRIVER_H_
