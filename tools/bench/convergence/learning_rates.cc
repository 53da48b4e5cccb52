#include "tools/bench/convergence/learning_rates.h"

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace rubato {
namespace {

RateTrials TrialsOfRate(const std::vector<const CellResult*>& results) {
  RateTrials trials;
  double logarithms = 0;
  int reached = 0, ended = 0;
  for (const CellResult* result : results) {
    ++trials.runs;
    if (result->error.empty() && result->outcome.reached) {
      ++reached;
      logarithms += std::log(result->outcome.seconds);
    } else {
      ++trials.misses;
    }
    if (!result->outcome.last.has_value()) {
      ++trials.diverged;
    } else {
      ++ended;
      trials.best += result->outcome.best.value_or(*result->outcome.last);
    }
  }
  if (reached > 0) trials.seconds = std::exp(logarithms / reached);
  if (ended > 0) trials.best /= ended;
  return trials;
}

double RateOf(const std::string& text) {
  double rate = 0;
  return absl::SimpleAtod(text, &rate) ? rate : 0;
}

}  // namespace

size_t BestRate(absl::Span<const RateTrials> rates, const Target& target) {
  size_t best = 0;
  for (size_t i = 1; i < rates.size(); ++i) {
    const RateTrials &one = rates[i], &other = rates[best];
    if (one.misses != other.misses) {
      if (one.misses < other.misses) best = i;
    } else if (one.misses < one.runs) {
      if (one.seconds < other.seconds) best = i;
    } else if (one.diverged != other.diverged) {
      if (one.diverged < other.diverged) best = i;
    } else if (target.higher_is_better ? one.best > other.best : one.best < other.best) {
      best = i;
    }
  }
  return best;
}

RateSearch SearchRates(const Study& study, const std::vector<DoneCell>& cells) {
  // By workers, speeds and mode, then by rate.
  std::map<std::tuple<int, size_t, size_t>, std::map<std::string, std::vector<const CellResult*>>>
      results;
  for (const auto& [cell, result] : cells) {
    if (!cell.is_trial) continue;
    results[{cell.workers, cell.speeds, cell.mode}][cell.learning_rate].push_back(&result);
  }
  RateSearch search;
  for (auto& [key, by_rate] : results) {
    RateSearch::OfMode of_mode;
    std::tie(of_mode.workers, of_mode.speeds, of_mode.mode) = key;
    for (const std::string& rate : study.learning_rates) {
      of_mode.rates.push_back(TrialsOfRate(by_rate[rate]));
    }
    of_mode.taken = BestRate(of_mode.rates, study.target);
    search.modes.push_back(std::move(of_mode));
  }
  return search;
}

LearningRates TakenRates(const Study& study, const RateSearch& search) {
  LearningRates rates;
  for (const RateSearch::OfMode& of_mode : search.modes) {
    rates[{of_mode.workers, of_mode.speeds, of_mode.mode}] = study.learning_rates[of_mode.taken];
  }
  return rates;
}

std::string RatesMarkdown(const Study& study, const RateSearch& search) {
  if (search.modes.empty()) return "";
  std::string text = absl::StrCat(
      "\n## Learning rates\n\nEach mode is judged at the rate at which it reached the target first "
      "in ",
      kTrialSeeds,
      " runs with seeds of their own: the fewest misses, then the least mean seconds (geometric) "
      "of the runs that reach it.\n"
      "\n| mode | workers | ",
      absl::StrJoin(study.learning_rates, " | "), " |\n|---|---|");
  for (size_t i = 0; i < study.learning_rates.size(); ++i) absl::StrAppend(&text, "---|");
  absl::StrAppend(&text, "\n");
  std::string hints;
  for (const RateSearch::OfMode& of_mode : search.modes) {
    absl::StrAppend(&text, "| ", study.modes[of_mode.mode], " | ",
                    ClusterColumn(study, of_mode.workers, of_mode.speeds), " |");
    double least = RateOf(study.learning_rates[of_mode.taken]), most = least;
    for (size_t i = 0; i < of_mode.rates.size(); ++i) {
      const RateTrials& trials = of_mode.rates[i];
      const std::string figure =
          trials.misses == 0 ? absl::StrFormat("%.4g s", trials.seconds)
                             : absl::StrFormat("misses %d of %d", trials.misses, trials.runs);
      absl::StrAppend(&text, i == of_mode.taken ? absl::StrCat(" **", figure, "**") : " " + figure,
                      " |");
      least = std::min(least, RateOf(study.learning_rates[i]));
      most = std::max(most, RateOf(study.learning_rates[i]));
    }
    absl::StrAppend(&text, "\n");
    const double taken = RateOf(study.learning_rates[of_mode.taken]);
    if (least == most || (taken != least && taken != most)) continue;
    absl::StrAppendFormat(&hints,
                          "\nWith %s %s took the %s rate of the list: a still %s one may "
                          "suit it better.\n",
                          ClusterText(study, of_mode.workers, of_mode.speeds),
                          study.modes[of_mode.mode], taken == least ? "lowest" : "highest",
                          taken == least ? "lower" : "higher");
  }
  return text + hints;
}

}  // namespace rubato
