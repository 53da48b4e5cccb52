#include "tools/simulator/coverage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/mode.pb.h"

namespace rubato {
namespace {

constexpr const char* kModeNames[kModes] = {"sync", "async", "bounded"};

// One run of so many gives workers several contributions at once, at least.
constexpr int64_t kGivenAheadIn = 4;

// Calls `row` for each pair of modes and each fault.
template <typename Row>
void ForEachRow(const Row& row) {
  for (int from = 0; from < kModes; ++from) {
    for (int to = 0; to < kModes; ++to) {
      // Of these there is only one; bounded changes to another staleness.
      if (from == to && from != proto::Mode::NAME_BOUNDED) continue;
      for (uint32_t fault = 0; fault < kSurvivable; ++fault) {
        row(from, to, static_cast<int>(fault));
      }
    }
  }
}

}  // namespace

void Coverage::Add(const Coverage& other) {
  for (const auto& [cell, count] : other.struck) struck[cell] += count;
  runs += other.runs;
  switches += other.switches;
  faults += other.faults;
  lost += other.lost;
  scheduled += other.scheduled;
  left_out += other.left_out;
  checkpoints += other.checkpoints;
  killed += other.killed;
  in_vain += other.in_vain;
  diverged += other.diverged;
  went_back += other.went_back;
  went_back_again += other.went_back_again;
  kept += other.kept;
  lost_power += other.lost_power;
  continued += other.continued;
  scripts += other.scripts;
  resumed += other.resumed;
  resumed_on_arrival += other.resumed_on_arrival;
  stopped += other.stopped;
  stopped_in_pauses += other.stopped_in_pauses;
  met_targets += other.met_targets;
  reached_times += other.reached_times;
  given_ahead += other.given_ahead;
  longest = std::max(longest, other.longest);
}

std::string Coverage::ToString() const {
  std::string text = absl::StrFormat("%-18s %-10s", "modes", "fault");
  const int messages = static_cast<int>(SimMessage::kKindNames.size());
  for (const absl::string_view name : SimMessage::kKindNames) {
    absl::StrAppend(&text, absl::StrFormat(" %16s", name));
  }
  absl::StrAppend(&text, "\n");
  ForEachRow([&](int from, int to, int fault) {
    absl::StrAppend(
        &text, absl::StrFormat("%-18s %-10s", absl::StrCat(kModeNames[from], " ", kModeNames[to]),
                               Fault::kKindNames[fault]));
    for (int message = 0; message < messages; ++message) {
      const auto cell = struck.find({from, to, fault, message});
      absl::StrAppend(&text, absl::StrFormat(" %16d", cell == struck.end() ? 0 : cell->second));
    }
    absl::StrAppend(&text, "\n");
  });
  return absl::StrCat(
      text, runs, " runs, ", switches, " switches (", scheduled, " scheduled), ", faults,
      " faults, ", lost, " workers lost, ", left_out, " steps and contributions left out, ",
      checkpoints, " checkpoints, ", resumed, " runs that went on from one under faults, ",
      resumed_on_arrival, " from one on arrival, ", killed, " runs that ended with a server, ",
      in_vain, " of them after going back in vain, ", diverged, " that diverged, ", went_back,
      " that went back after one was lost, ", went_back_again, " of them more than once, ", kept,
      " that went on from what the shards had kept, ", lost_power,
      " whose coordinator lost power, ", continued, " that were started again after a signal, ",
      scripts, " of scripts, ", stopped, " that were stopped, ", stopped_in_pauses,
      " of them in a pause, ", met_targets, " by a test that met its target and ", reached_times,
      " by their time, ", given_ahead,
      " in which workers were given several contributions at once; after the last fault at most ",
      absl::StrFormat("%.0f %%", 100 * longest), " of the time given was taken\n");
}

std::vector<std::string> Coverage::Empty() const {
  std::vector<std::string> empty;
  if (resumed_on_arrival == 0) empty.push_back("goes on from a checkpoint on arrival");
  if (went_back_again == 0) empty.push_back("goes back more than once");
  if (in_vain == 0) empty.push_back("goes back in vain");
  if (diverged == 0) empty.push_back("diverges");
  if (kept == 0) empty.push_back("goes on from what the shards have kept");
  if (lost_power == 0) empty.push_back("the coordinator's machine loses power");
  if (continued == 0) empty.push_back("is started again after a signal");
  if (scripts == 0) empty.push_back("a script's model");
  if (met_targets == 0) empty.push_back("stopped by a test that met its target");
  if (reached_times == 0) empty.push_back("stopped by its time");
  if (given_ahead < runs / kGivenAheadIn) empty.push_back("several contributions at once");
  ForEachRow([&](int from, int to, int fault) {
    for (int message = 0; message < static_cast<int>(SimMessage::kKindNames.size()); ++message) {
      if (struck.count({from, to, fault, message}) != 0) continue;
      empty.push_back(absl::StrFormat("%s to %s, %s at %s", kModeNames[from], kModeNames[to],
                                      Fault::kKindNames[fault], SimMessage::kKindNames[message]));
    }
  });
  return empty;
}

}  // namespace rubato
