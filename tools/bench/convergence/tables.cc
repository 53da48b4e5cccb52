#include "tools/bench/convergence/tables.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rubato {
namespace {

// The results of each mode by workers, speeds and mode, in the order of the report.
using ByMode = std::map<std::tuple<int, size_t, size_t>, std::vector<const CellResult*>>;
ByMode ResultsByMode(const std::vector<DoneCell>& cells) {
  ByMode by_mode;
  for (const auto& [cell, result] : cells) {
    if (cell.is_trial || cell.scale > 0 || !result.error.empty()) continue;
    by_mode[{cell.workers, cell.speeds, cell.mode}].push_back(&result);
  }
  return by_mode;
}

std::string ModeColumns(const Study& study, const ByMode::key_type& key) {
  const auto& [workers, speeds, mode] = key;
  return absl::StrCat(study.modes[mode], " | ", ClusterColumn(study, workers, speeds));
}

// Columns of staleness: 0, 1, 2, 3, then each twice as wide; the first value of each.
constexpr std::array<size_t, 9> kColumns = {0, 1, 2, 3, 4, 8, 16, 32, 64};

std::string ColumnName(size_t column) {
  const size_t begin = kColumns[column];
  if (column + 1 == kColumns.size()) return absl::StrCat(begin, " and more");
  const size_t last = kColumns[column + 1] - 1;
  return last == begin ? absl::StrCat(begin) : absl::StrCat(begin, "–", last);
}

using Shares = std::array<int64_t, kColumns.size()>;

Shares SharesOf(const std::vector<const CellResult*>& results) {
  Shares shares = {};
  for (const CellResult* result : results) {
    for (size_t i = 0; i < result->staleness_counts.size(); ++i) {
      const size_t column = static_cast<size_t>(
          std::upper_bound(kColumns.begin(), kColumns.end(), i) - kColumns.begin() - 1);
      shares[column] += result->staleness_counts[i];
    }
  }
  return shares;
}

std::string Percent(double share) { return absl::StrFormat("%.3g", 100 * share); }

}  // namespace

std::string BoundNote(const Study& study) {
  const bool has_bounded =
      std::any_of(study.modes.begin(), study.modes.end(),
                  [](const std::string& mode) { return absl::StrContains(mode, "bounded"); });
  if (!has_bounded) return "";
  return "In bounded, staleness=s limits by how many contributions a worker may be ahead of the "
         "slowest when it begins one, not this figure. This one counts what the others had applied "
         "meanwhile: up to 2 s + 1 contributions of each, where no worker comes or goes.";
}

std::string StalenessMarkdown(const Study& study, const std::vector<DoneCell>& cells) {
  std::string rows;
  for (const auto& [key, results] : ResultsByMode(cells)) {
    const Shares shares = SharesOf(results);
    const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
    if (all == 0) continue;
    absl::StrAppend(&rows, "| ", ModeColumns(study, key), " |");
    for (const int64_t count : shares) {
      absl::StrAppend(&rows, " ", count == 0 ? "" : Percent(static_cast<double>(count) / all),
                      " |");
    }
    absl::StrAppend(&rows, "\n");
  }
  if (rows.empty()) return "";
  std::string head = "| mode | workers |", line = "|---|---|";
  for (size_t column = 0; column < kColumns.size(); ++column) {
    absl::StrAppend(&head, " ", ColumnName(column), " |");
    absl::StrAppend(&line, "---|");
  }
  const std::string note = BoundNote(study);
  return absl::StrCat("\nUpdates on arrival by their staleness, in percent, over all seeds:\n\n",
                      head, "\n", line, "\n", rows, note.empty() ? "" : "\n", note,
                      note.empty() ? "" : "\n");
}

std::string TimesMarkdown(const Study& study, const std::vector<DoneCell>& cells) {
  std::string rows;
  for (const auto& [key, results] : ResultsByMode(cells)) {
    double computing = 0, sending = 0, waiting = 0, least = 1, most = 0;
    for (const CellResult* result : results) {
      for (const WorkerTime& worker : result->workers) {
        const double all = worker.computing + worker.sending + worker.waiting;
        if (!(all > 0)) continue;
        computing += worker.computing;
        sending += worker.sending;
        waiting += worker.waiting;
        least = std::min(least, worker.computing / all);
        most = std::max(most, worker.computing / all);
      }
    }
    const double all = computing + sending + waiting;
    if (!(all > 0)) continue;
    absl::StrAppend(&rows, "| ", ModeColumns(study, key), " | ", Percent(computing / all), " | ",
                    Percent(least), " to ", Percent(most), " | ",
                    study.processes ? "in waiting" : Percent(sending / all), " | ",
                    Percent(waiting / all), " |\n");
  }
  if (rows.empty()) return "";
  return absl::StrCat(
      "\nWhat the workers' time went into, in percent, over all seeds:\n\n"
      "| mode | workers | computing | of the least to the most busy one | sending | waiting |\n"
      "|---|---|---|---|---|---|\n",
      rows);
}

}  // namespace rubato
