// A study's results as text: lines of JSON, CSV, and a report for people. A core: it reads and
// writes no files.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_H_

#include <string>
#include <vector>

#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"
#include "tools/bench/convergence/verdict.h"

namespace rubato {

// The runs of one cluster and one computing time, for the seeds for which every mode has an
// outcome.
struct Group {
  int workers = 0;
  size_t speeds = 0;
  size_t scale = 0;
  std::vector<int> seeds;
  std::vector<std::vector<CellResult>> modes;  // by mode, then by seed
  std::vector<std::string> left_out;           // seeds, with the cell that has failed
  std::vector<ModeVerdict> verdicts;           // by mode; empty without seeds
};
std::vector<Group> GroupsOf(const Study& study, const std::vector<DoneCell>& cells);

// What identifies a cell in results.jsonl: the beginning of its line.
std::string ResultLineBegin(const Study& study, const Cell& cell);
// The line, without its newline.
std::string ResultLine(const Study& study, const DoneCell& cell);

// A line for each cell, in the order of CellsOf: a function of the study and of what was computed,
// without times of this machine.
std::string ResultsJsonl(const Study& study, const std::vector<DoneCell>& cells);
std::string ResultsCsv(const Study& study, const std::vector<DoneCell>& cells);

// Of the cores' time: where they are busy for more of it, real processes measure contention.
constexpr double kBusyShare = 0.7;

// The verdicts as sentences, one for each mode but the baseline and each cluster.
std::vector<std::string> Verdicts(const Study& study, const std::vector<DoneCell>& cells);

// Fewer seeds allow no verdict.
int SeedsNeeded(const Study& study);

// How sure they are; "" if there are too few seeds for any.
std::string Certainty(const std::vector<Group>& groups);

// Parts of the report: its title, the network and the times of computing, and a table of the modes.
std::string ReportTitle(const Study& study);
std::string Conditions(const Study& study);
// Says on which machines the study gives the same bytes.
std::string Repeatable(const Study& study);
struct ReportTable {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};
ReportTable TableOf(const Study& study, const std::vector<Group>& groups);
// How the table is to be read.
std::string TableNote(const Study& study);

// Markdown: the verdicts, a table of the modes, the search for learning rates, and how it was run.
std::string ReportMarkdown(const Study& study, const std::vector<DoneCell>& cells,
                           const std::string& command);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_H_
