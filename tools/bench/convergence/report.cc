#include "tools/bench/convergence/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "tools/bench/convergence/band.h"
#include "tools/bench/convergence/learning_rates.h"
#include "tools/bench/convergence/sign_flip.h"
#include "tools/bench/convergence/tables.h"
#include "tools/bench/median.h"

namespace rubato {
namespace {

size_t IndexOf(const Study& study, const std::string& mode) {
  return static_cast<size_t>(std::find(study.modes.begin(), study.modes.end(), mode) -
                             study.modes.begin());
}

std::optional<size_t> PlainSync(const Study& study) {
  const size_t index = IndexOf(study, "sync");
  return index < study.modes.size() ? std::optional<size_t>(index) : std::nullopt;
}

}  // namespace

std::vector<Group> GroupsOf(const Study& study, const std::vector<DoneCell>& cells) {
  // By workers, speeds and scale, then by seed.
  std::map<std::tuple<int, size_t, size_t>, std::map<int, std::vector<const DoneCell*>>> by_cluster;
  for (const DoneCell& cell : cells) {
    if (cell.cell.is_trial) continue;
    by_cluster[{cell.cell.workers, cell.cell.speeds, cell.cell.scale}][cell.cell.seed].push_back(
        &cell);
  }
  std::vector<Group> groups;
  for (auto& [key, seeds] : by_cluster) {
    Group group;
    std::tie(group.workers, group.speeds, group.scale) = key;
    group.modes.resize(study.modes.size());
    for (auto& [seed, of_seed] : seeds) {
      const auto failed = std::find_if(of_seed.begin(), of_seed.end(), [](const DoneCell* cell) {
        return !cell->result.error.empty();
      });
      if (failed != of_seed.end() || of_seed.size() < study.modes.size()) {
        group.left_out.push_back(
            failed == of_seed.end()
                ? absl::StrCat("seed ", seed, ": not all of its runs are there")
                : absl::StrCat((*failed)->cell.name, ": ", (*failed)->result.error));
        continue;
      }
      group.seeds.push_back(seed);
      for (const DoneCell* cell : of_seed) group.modes[cell->cell.mode].push_back(cell->result);
    }
    if (!group.seeds.empty()) {
      std::vector<std::vector<RunOutcome>> outcomes(group.modes.size());
      for (size_t mode = 0; mode < group.modes.size(); ++mode) {
        for (const CellResult& result : group.modes[mode]) {
          outcomes[mode].push_back(result.outcome);
        }
      }
      group.verdicts =
          Judge(outcomes, IndexOf(study, study.baseline), PlainSync(study), study.target);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

namespace {

std::string TargetText(const Target& target) {
  return absl::StrFormat("eval/%s %s %g", target.metric,
                         target.higher_is_better ? "of at least" : "of at most", target.value);
}

std::string MissesText(const Study& study, const ModeVerdict& verdict) {
  std::string text = absl::StrFormat("does not reach %s in %d of %d runs", TargetText(study.target),
                                     verdict.misses, verdict.pairs);
  if (verdict.diverged > 0) absl::StrAppend(&text, ", ", verdict.diverged, " of which diverge");
  if (verdict.nearest_miss.has_value()) {
    absl::StrAppendFormat(&text, "; the nearest is %.4g", *verdict.nearest_miss);
  }
  return text;
}

// For runs that miss the target.
std::string Advice(const ModeVerdict& verdict) {
  return verdict.misses > 0 && verdict.diverged == verdict.misses
             ? "set a lower learning rate"
             : "train longer or set an easier target";
}

// Two digits behind the point, or as many as tell it from 1, where a verdict changes.
std::string RatioText(double ratio) {
  const double beyond = std::abs(ratio - 1);
  int digits = 2;
  while (beyond > 1e-6 && beyond < 0.5 * std::pow(10, -digits)) ++digits;
  return absl::StrFormat("%.*f", digits, ratio);
}

std::string IntervalText(std::pair<double, double> interval) {
  return absl::StrCat(RatioText(interval.first), " to ", RatioText(interval.second));
}

// Of a mode that is neither faster nor slower: `baseline` is the verdict of the study's baseline.
std::string NoVerdictText(const Study& study, const ModeVerdict& verdict,
                          const ModeVerdict& baseline) {
  const auto [low, high] = verdict.speedup;
  const bool has_misses = verdict.misses + baseline.misses > 0;
  if (has_misses && (low > 1 || high < 1)) {
    return absl::StrFormat(
        "was %s times as fast as %s, but %d of %d runs missed the target (of %s %d of %d): no "
        "verdict; %s",
        IntervalText(verdict.speedup), study.baseline, verdict.misses, verdict.pairs,
        study.baseline, baseline.misses, baseline.pairs,
        Advice(verdict.misses > 0 ? verdict : baseline));
  }
  return absl::StrFormat("cannot be told from %s: its speed is %s of that%s", study.baseline,
                         IntervalText(verdict.speedup),
                         verdict.misses > 0
                             ? absl::StrFormat(", and %d of %d runs miss the target; %s",
                                               verdict.misses, verdict.pairs, Advice(verdict))
                             : "");
}

std::string SpeedText(const Study& study, const ModeVerdict& verdict, const ModeVerdict& baseline) {
  switch (verdict.speed) {
    case ModeVerdict::Speed::kBaseline:
      return "is the baseline";
    case ModeVerdict::Speed::kTooFewSeeds:
      return absl::StrFormat("cannot be judged by %d seeds: %d are needed", verdict.pairs,
                             SeedsNeeded(study));
    case ModeVerdict::Speed::kNotReached:
      return absl::StrCat(MissesText(study, verdict), "; ", Advice(verdict));
    case ModeVerdict::Speed::kTooEasy:
      return absl::StrFormat(
          "reaches %s by the first evaluation in %d of %d runs (%s in %d), so when is not known: "
          "set a harder target, or %s",
          TargetText(study.target), verdict.at_first, verdict.pairs, study.baseline,
          baseline.at_first, study.target.is_script ? "test more often" : "more --evaluations");
    case ModeVerdict::Speed::kBaselineNotReached:
      return absl::StrFormat(
          "reaches %s in %d of %d runs; %s, with which it would be compared, in "
          "%d: %s",
          TargetText(study.target), verdict.pairs - verdict.misses, verdict.pairs, study.baseline,
          baseline.pairs - baseline.misses, Advice(baseline));
    case ModeVerdict::Speed::kFaster:
      return absl::StrCat("is faster than ", study.baseline, " by ", IntervalText(verdict.speedup),
                          " times");
    case ModeVerdict::Speed::kSlower:
      return absl::StrCat("is slower than ", study.baseline, " by ",
                          IntervalText({1 / verdict.speedup.second, 1 / verdict.speedup.first}),
                          " times");
    case ModeVerdict::Speed::kCannotTell:
      return NoVerdictText(study, verdict, baseline);
  }
  return "";
}

std::string QualityText(const ModeVerdict& verdict, const Target& target) {
  if (verdict.quality == Finding::kCannotTell) return "";
  const auto [low, high] = verdict.quality_difference;
  const bool is_better = verdict.quality == Finding::kMore;
  return absl::StrFormat("; at the end its %s is %s by %.3g to %.3g", target.metric,
                         is_better ? "better" : "worse", is_better ? low : -high,
                         is_better ? high : -low);
}

// "and 0.5 times the computing time "; "" for the first scale.
std::string AtScale(const Study& study, size_t scale) {
  return scale == 0
             ? ""
             : absl::StrFormat("and %g times the computing time ", study.compute_scales[scale]);
}

bool IsJudged(const ModeVerdict& verdict) {
  return verdict.speed != ModeVerdict::Speed::kTooFewSeeds;
}

std::string Sentence(const Study& study, const Group& group, size_t mode) {
  const ModeVerdict& verdict = group.verdicts[mode];
  std::string text =
      absl::StrCat("With ", ClusterText(study, group.workers, group.speeds), " ",
                   AtScale(study, group.scale), study.modes[mode], " ",
                   SpeedText(study, verdict, group.verdicts[IndexOf(study, study.baseline)]),
                   QualityText(verdict, study.target), ".");
  if (!verdict.suspicious.empty()) {
    std::vector<int> seeds;
    for (const int at : verdict.suspicious) seeds.push_back(group.seeds[at]);
    absl::StrAppend(&text, " It needs suspiciously few samples with seeds ",
                    absl::StrJoin(seeds, ", "),
                    ": fewer than sync's mean less three standard deviations.");
  }
  return text;
}

// "" if none of the baseline's runs misses the target.
std::string BaselineMisses(const Study& study, const Group& group, size_t mode) {
  const ModeVerdict& verdict = group.verdicts[mode];
  if (verdict.misses == 0) return "";
  return absl::StrCat("With ", ClusterText(study, group.workers, group.speeds), " ", study.baseline,
                      ", the baseline, ", MissesText(study, verdict),
                      ". So no mode is called slower.");
}

// The same as a word, for the table.
std::string SpeedWord(ModeVerdict::Speed speed) {
  switch (speed) {
    case ModeVerdict::Speed::kBaseline:
      return "baseline";
    case ModeVerdict::Speed::kTooFewSeeds:
      return "too few seeds";
    case ModeVerdict::Speed::kNotReached:
      return "misses the target";
    case ModeVerdict::Speed::kTooEasy:
      return "target too easy";
    case ModeVerdict::Speed::kBaselineNotReached:
      return "baseline misses";
    case ModeVerdict::Speed::kFaster:
      return "faster";
    case ModeVerdict::Speed::kSlower:
      return "slower";
    case ModeVerdict::Speed::kCannotTell:
      return "not certain";
  }
  return "";
}

// Of the table of modes.
std::vector<std::string> Row(const Study& study, const Group& group, size_t mode) {
  std::vector<double> seconds, samples, last, test, staleness;
  for (const CellResult& result : group.modes[mode]) {
    if (result.outcome.reached) {
      seconds.push_back(result.outcome.seconds);
      samples.push_back(result.outcome.samples);
    }
    if (result.outcome.last.has_value()) last.push_back(*result.outcome.last);
    if (result.test.has_value()) test.push_back(*result.test);
    if (result.staleness.has_value()) staleness.push_back(*result.staleness);
  }
  const auto median = [](const std::vector<double>& values, const char* format) {
    return values.empty() ? std::string("–")
                          : absl::StrFormat(*absl::ParsedFormat<'g'>::New(format), Median(values));
  };
  const ModeVerdict& verdict = group.verdicts[mode];
  const bool is_baseline = verdict.speed == ModeVerdict::Speed::kBaseline;
  std::string speed = is_baseline ? "1" : "–", better = is_baseline ? "0" : "–";
  if (verdict.speed == ModeVerdict::Speed::kFaster ||
      verdict.speed == ModeVerdict::Speed::kSlower ||
      verdict.speed == ModeVerdict::Speed::kCannotTell) {
    speed = absl::StrCat(RatioText(verdict.speedup_mean), " (", IntervalText(verdict.speedup), ")");
  }
  const auto [low, high] = verdict.quality_difference;
  if (!is_baseline && std::isfinite(low) && std::isfinite(high)) {
    better = absl::StrFormat("%.3g (%.3g to %.3g)", verdict.quality_mean, low, high);
  }
  const std::string scale =
      group.scale == 0 ? ""
                       : absl::StrFormat(" (computing × %g)", study.compute_scales[group.scale]);
  return {absl::StrCat(study.modes[mode], scale),
          ClusterColumn(study, group.workers, group.speeds),
          SpeedWord(verdict.speed),
          speed,
          better,
          absl::StrCat(verdict.pairs - verdict.misses, " of ", verdict.pairs),
          median(seconds, "%.4g"),
          median(samples, "%.6g"),
          median(last, "%.4g"),
          median(test, "%.4g"),
          median(staleness, "%.3g")};
}

}  // namespace

std::string ResultLineBegin(const Study& study, const Cell& cell) {
  nlohmann::ordered_json json;
  json["mode"] = study.modes[cell.mode];
  json["workers"] = cell.workers;
  if (study.speeds.size() > 1) json["speeds"] = study.speeds[cell.speeds];
  if (cell.scale > 0) json["compute_scale"] = study.compute_scales[cell.scale];
  json["seed"] = cell.seed;
  if (!cell.learning_rate.empty()) json["learning_rate"] = cell.learning_rate;
  if (cell.is_trial) json["trial"] = true;
  const std::string text = JsonText(json);
  return absl::StrCat(text.substr(0, text.size() - 1), ",");
}

std::string ResultLine(const Study& study, const DoneCell& cell) {
  return absl::StrCat(ResultLineBegin(study, cell.cell), ResultJson(cell.result).substr(1));
}

std::string ResultsJsonl(const Study& study, const std::vector<DoneCell>& cells) {
  std::string text;
  for (const DoneCell& cell : cells) {
    absl::StrAppend(&text, ResultLine(study, cell), "\n");
  }
  return text;
}

std::string ResultsCsv(const Study& study, const std::vector<DoneCell>& cells) {
  std::string text =
      "mode,workers,speeds,compute_scale,seed,learning_rate,trial,reached,seconds,samples,best,"
      "last,test,"
      "end_seconds,"
      "updates,staleness,computing_seconds,waiting_seconds,diverged,"
      "error\n";
  const auto quoted = [](const std::string& value) {
    std::string field = "\"";
    for (const char c : value) field += c == '"' ? "\"\"" : std::string(1, c);
    return field + "\"";
  };
  const auto number = [](std::optional<double> value) {
    return value.has_value() ? absl::StrFormat("%.17g", *value) : std::string();
  };
  for (const auto& [cell, result] : cells) {
    absl::StrAppend(&text, quoted(study.modes[cell.mode]), ",", cell.workers, ",",
                    quoted(study.speeds.empty() ? "fixed" : study.speeds[cell.speeds]), ",",
                    study.compute_scales[cell.scale], ",", cell.seed, ",", cell.learning_rate, ",",
                    cell.is_trial ? "1," : "0,");
    if (!result.error.empty()) {
      absl::StrAppend(&text, ",,,,,,,,,,,,", quoted(result.error), "\n");
      continue;
    }
    absl::StrAppend(&text, result.outcome.reached ? "1," : "0,", number(result.outcome.seconds),
                    ",", number(result.outcome.samples), ",", number(result.outcome.best), ",",
                    number(result.outcome.last), ",", number(result.test), ",");
    WorkerTime workers;
    for (const WorkerTime& worker : result.workers) {
      workers.computing += worker.computing;
      workers.waiting += worker.waiting;
    }
    absl::StrAppend(&text, number(result.end_seconds), ",",
                    result.updates.has_value() ? absl::StrCat(*result.updates) : "", ",",
                    number(result.staleness), ",", number(workers.computing), ",",
                    number(workers.waiting), ",",
                    result.diverged.empty() ? "" : quoted(result.diverged), ",\n");
  }
  return text;
}

namespace {

// Where the cores were busy, by the runs or by others, what real processes took is time that they
// waited for them. "" where they were not.
std::string BusyText(const Study& study, const std::vector<DoneCell>& cells) {
  if (!study.processes) return "";
  std::vector<double> busy;
  for (const DoneCell& cell : cells) {
    if (cell.result.busy.has_value()) busy.push_back(*cell.result.busy);
  }
  if (busy.empty() || Median(busy) < kBusyShare) return "";
  return absl::StrFormat(
      "Do not trust the times: the cores of this machine were busy for %.0f %% of them, so "
      "processes waited for cores, as they would not on machines of their own. Samples to the "
      "target and the metric at the end depend on times only by the staleness of updates.",
      100 * Median(busy));
}

}  // namespace

std::vector<std::string> Verdicts(const Study& study, const std::vector<DoneCell>& cells) {
  std::vector<std::string> sentences, flips;
  std::set<double> repeated_at;  // other computing times, at which something was judged again
  const std::vector<Group> groups = GroupsOf(study, cells);
  for (const Group& group : groups) {
    const auto first = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return other.workers == group.workers && other.speeds == group.speeds && other.scale == 0;
    });
    for (size_t mode = 0; mode < group.verdicts.size(); ++mode) {
      if (study.modes[mode] == study.baseline) {
        const std::string missed = BaselineMisses(study, group, mode);
        if (group.scale == 0 && !missed.empty()) sentences.push_back(missed);
        continue;
      }
      const std::string sentence = Sentence(study, group, mode);
      if (group.scale == 0) {
        sentences.push_back(sentence);
      } else if (first != groups.end() && !first->verdicts.empty() &&
                 IsJudged(first->verdicts[mode]) && IsJudged(group.verdicts[mode])) {
        repeated_at.insert(study.compute_scales[group.scale]);
        if (first->verdicts[mode].speed == group.verdicts[mode].speed) continue;
        flips.push_back(absl::StrCat("The verdict flips: ", sentence));
      }
    }
    const std::string idle = IdleInSync(study, group.workers);
    if (group.scale == 0 && !idle.empty() && !group.verdicts.empty()) {
      sentences.push_back(absl::StrCat(idle, ": that is part of the verdict."));
    }
    if (group.verdicts.empty()) {
      sentences.push_back(absl::StrCat("With ", ClusterText(study, group.workers, group.speeds),
                                       " ", AtScale(study, group.scale),
                                       "no seed has run in every mode: there is nothing to "
                                       "compare."));
    }
  }
  if (!repeated_at.empty() && flips.empty()) {
    sentences.push_back(absl::StrCat("No verdict flips at ", absl::StrJoin(repeated_at, " or "),
                                     " times the computing time."));
  }
  sentences.insert(sentences.end(), flips.begin(), flips.end());
  if (const std::string busy = BusyText(study, cells); !busy.empty()) sentences.push_back(busy);
  return sentences;
}

int SeedsNeeded(const Study& study) {
  return PairsNeeded(static_cast<int>(study.modes.size()) - 1, kAlpha);
}

std::string Certainty(const std::vector<Group>& groups) {
  const bool is_judged = std::any_of(groups.begin(), groups.end(), [](const Group& group) {
    return !group.verdicts.empty() &&
           std::all_of(group.verdicts.begin(), group.verdicts.end(), IsJudged);
  });
  if (!is_judged) return "";
  return absl::StrFormat(
      "Verdicts have %g %% confidence, those on times and those on the metric at the end each: "
      "with it, no mode of a cluster that equals the baseline is called faster or slower (better "
      "or worse) at one computing time. As the modes share the other %g %% (Holm's correction), "
      "the interval of one has that confidence or more.",
      100 * (1 - kAlpha), 100 * kAlpha);
}

std::string TableNote(const Study& study) {
  return absl::StrCat(
      "\"Times as fast\" and \"better by\" compare each run with that of ", study.baseline,
      " with the same seed: the mean over the seeds (of times as fast, the geometric mean of the "
      "baseline's time divided by the mode's) and, in brackets, its interval; a mode is faster "
      "(better) if that is above 1 (0), slower (worse) if it is below, and else nothing is "
      "certain, nor where a miss decides. \"Better by\" leaves out runs that diverged. The columns "
      "behind \"runs that reach it\" are medians of a mode's own runs, seconds and samples of "
      "those that reach the target: no seeds are paired there, so the difference of two medians "
      "may lie outside the interval, or point the other way. The tests are exact sign-flip tests, "
      "of times by their logarithms. A run that misses the target enters with its end; if it "
      "diverged, as no shorter than its partner.");
}

std::string ReportTitle(const Study& study) {
  return absl::StrCat("Which mode reaches ", TargetText(study.target), " first");
}

std::string Conditions(const Study& study) {
  const auto or_default = [](const std::string& value, const char* otherwise) {
    return value.empty() ? std::string(otherwise) : value;
  };
  const std::string speeds = or_default(absl::StrJoin(study.speeds, " and "), "fixed");
  if (study.processes) {
    return absl::StrCat(
        "In real processes of one machine: ",
        study.compute.empty()
            ? "not delayed"
            : absl::StrCat(study.compute, " of delay for a micro-batch, speeds ", speeds),
        ". Seconds are of training, and differ from run to run",
        study.target.is_script ? "; a test of the script takes the time of the worker that runs it."
                               : ".");
  }
  return absl::StrCat("In virtual time: speeds ", speeds, ", ", or_default(study.compute, "10ms"),
                      " for a micro-batch, ", or_default(study.apply, "unlimited"),
                      " a second that a shard sums and applies, ",
                      or_default(study.latency, "100us"), " of latency, ",
                      or_default(study.bandwidth, "10Gbit"),
                      " a machine. Seconds are of training, without the time of evaluations.");
}

std::string Repeatable(const Study& study) {
  if (study.target.is_script) {
    return "Its bits are those of the script's libraries, which are not known.";
  }
  return study.processes ? absl::StrCat("It computed on ", study.numerics, ".")
                         : absl::StrCat("results.jsonl is the same wherever workers compute on ",
                                        study.numerics, ".");
}

ReportTable TableOf(const Study& study, const std::vector<Group>& groups) {
  ReportTable table;
  table.titles = {"mode",
                  "workers",
                  "verdict",
                  absl::StrCat("times as fast as ", study.baseline),
                  absl::StrCat(study.target.metric, " better by"),
                  "runs that reach it",
                  "seconds",
                  "samples",
                  absl::StrCat(study.target.metric, " at the end"),
                  "of the test split",
                  "staleness"};
  for (const Group& group : groups) {
    for (size_t mode = 0; mode < group.verdicts.size(); ++mode) {
      table.rows.push_back(Row(study, group, mode));
    }
  }
  return table;
}

std::string ReportMarkdown(const Study& study, const std::vector<DoneCell>& cells,
                           const std::string& command) {
  const std::vector<Group> groups = GroupsOf(study, cells);
  std::string text = absl::StrCat("# ", ReportTitle(study), "\n\n", Conditions(study), "\n\n");
  for (const std::string& sentence : Verdicts(study, cells)) {
    absl::StrAppend(&text, "* ", sentence, "\n");
  }
  if (const std::string certainty = Certainty(groups); !certainty.empty()) {
    absl::StrAppend(&text, "\n", certainty, "\n");
  }
  const ReportTable table = TableOf(study, groups);
  absl::StrAppend(&text, "\n| ", absl::StrJoin(table.titles, " | "), " |\n|");
  for (size_t i = 0; i < table.titles.size(); ++i) absl::StrAppend(&text, "---|");
  absl::StrAppend(&text, "\n");
  for (const std::vector<std::string>& row : table.rows) {
    absl::StrAppend(&text, "| ", absl::StrJoin(row, " | "), " |\n");
  }
  absl::StrAppend(&text, "\n", TableNote(study), "\n");
  for (const Group& group : groups) {
    for (const std::string& seed : group.left_out) {
      absl::StrAppend(&text, "\nLeft out: ", seed, "\n");
    }
  }
  absl::StrAppend(&text, StalenessMarkdown(study, cells), TimesMarkdown(study, cells));
  absl::StrAppend(&text, RatesMarkdown(study, SearchRates(study, cells)));
  absl::StrAppend(&text, "\nRepeat it with\n\n    ", command, "\n\n", Repeatable(study), "\n");
  return text;
}

}  // namespace rubato
