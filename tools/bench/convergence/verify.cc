#include "tools/bench/convergence/verify.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "tools/bench/convergence/driver.h"
#include "tools/bench/convergence/report.h"

namespace rubato {

absl::StatusOr<std::vector<KeptLine>> LinesOf(const Study& study, const std::vector<Cell>& cells,
                                              absl::string_view results_jsonl) {
  const std::vector<absl::string_view> texts = absl::StrSplit(results_jsonl, '\n');
  std::vector<KeptLine> lines;
  for (const Cell& cell : cells) {
    const std::string begin = ResultLineBegin(study, cell);
    const auto text = std::find_if(texts.begin(), texts.end(), [&](absl::string_view line) {
      return absl::StartsWith(line, begin);
    });
    if (text == texts.end()) continue;
    absl::StatusOr<CellResult> result = ParseResult(*text);
    if (!result.ok()) {
      return absl::DataLossError(
          absl::StrCat("results.jsonl, ", cell.name, ": ", result.status().message()));
    }
    lines.push_back({{cell, *std::move(result)}, std::string(*text)});
  }
  return lines;
}

std::vector<KeptLine> Draw(std::vector<KeptLine> lines, size_t count, uint64_t seed) {
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](const KeptLine& line) { return !line.cell.result.error.empty(); }),
              lines.end());
  RandomStream random(Key(seed, "verify"));
  // Each is taken with the probability that is left for it, so that they keep their order.
  std::vector<KeptLine> drawn;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t left = lines.size() - i;
    if (random.Below(static_cast<uint32_t>(left)) < count - drawn.size()) {
      drawn.push_back(std::move(lines[i]));
    }
  }
  return drawn;
}

absl::StatusOr<Verification> Repeat(const Study& study, const std::vector<KeptLine>& lines,
                                    const std::string& folder, size_t jobs,
                                    SignalWatcher* signals) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);  // of an earlier one
  Driver driver(&study, folder, jobs);
  RUBATO_RETURN_IF_ERROR(driver.Open());
  std::vector<Cell> cells;
  for (const KeptLine& line : lines) cells.push_back(line.cell.cell);
  driver.Add(cells);
  Verification verification;
  RUBATO_ASSIGN_OR_RETURN(verification.signal, driver.Run(signals));
  if (verification.signal == 0) {
    const std::vector<DoneCell> done = driver.Done();
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string again = ResultLine(study, done[i]);
      if (again == lines[i].text) continue;
      verification.differing.push_back(
          absl::StrCat(cells[i].name, "\n  was ", lines[i].text, "\n  is  ", again, "\n"));
    }
  }
  if (verification.differing.empty()) std::filesystem::remove_all(folder, error);
  return verification;
}

}  // namespace rubato
