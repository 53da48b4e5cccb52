#include "tools/bench/convergence/verdict.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "tools/bench/convergence/sign_flip.h"

namespace rubato {
namespace {

// So large a share of a mode's runs without the target, or with it from the first evaluation on,
// and no time is told of it.
constexpr double kUntoldShare = 0.2;

double Mean(absl::Span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Mean less three standard deviations of the samples that plain sync needs; nothing if too few of
// its runs have come to the target.
std::optional<double> FewestSamples(const std::vector<RunOutcome>& sync) {
  std::vector<double> samples;
  for (const RunOutcome& run : sync) {
    if (run.reached) samples.push_back(run.samples);
  }
  if (samples.size() < 3) return std::nullopt;
  const double mean = Mean(samples);
  double squares = 0;
  for (const double value : samples) squares += (value - mean) * (value - mean);
  return mean - 3 * std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

// log(the mode's time / the baseline's), by seed. A run that diverged ended early, and would never
// have reached the target: it counts as no shorter than its partner.
std::vector<double> LogRatios(const std::vector<RunOutcome>& mode,
                              const std::vector<RunOutcome>& baseline) {
  std::vector<double> differences;
  for (size_t i = 0; i < mode.size(); ++i) {
    const bool both_miss = !mode[i].reached && !baseline[i].reached;
    double ratio = both_miss ? 0 : std::log(mode[i].seconds / baseline[i].seconds);
    if (!mode[i].last.has_value()) ratio = std::max(ratio, 0.0);
    if (!baseline[i].last.has_value()) ratio = std::min(ratio, 0.0);
    differences.push_back(ratio);
  }
  return differences;
}

int Misses(const std::vector<RunOutcome>& runs) {
  return static_cast<int>(
      std::count_if(runs.begin(), runs.end(), [](const RunOutcome& run) { return !run.reached; }));
}

// What the mode's metric at the end is better by, of pairs in which both have one.
std::vector<double> QualityDifferences(const std::vector<RunOutcome>& mode,
                                       const std::vector<RunOutcome>& baseline,
                                       const Target& target) {
  std::vector<double> differences;
  for (size_t i = 0; i < mode.size(); ++i) {
    if (!mode[i].last.has_value() || !baseline[i].last.has_value()) continue;
    const double difference = *mode[i].last - *baseline[i].last;
    differences.push_back(target.higher_is_better ? difference : -difference);
  }
  return differences;
}

Finding FindingOf(const HolmResult& result, absl::Span<const double> differences) {
  if (!result.rejected) return Finding::kCannotTell;
  return Mean(differences) > 0 ? Finding::kMore : Finding::kLess;
}

// What a mode's runs tell by themselves; `fewest`: samples, with fewer of which a run is
// suspicious.
ModeVerdict VerdictAlone(const std::vector<RunOutcome>& runs, const Target& target,
                         std::optional<double> fewest) {
  ModeVerdict verdict;
  verdict.pairs = static_cast<int>(runs.size());
  verdict.misses = Misses(runs);
  for (size_t seed = 0; seed < runs.size(); ++seed) {
    const RunOutcome& run = runs[seed];
    if (!run.reached && run.last.has_value()) {
      const double best = run.best.value_or(*run.last);
      const double nearest = verdict.nearest_miss.value_or(best);
      verdict.nearest_miss =
          target.higher_is_better ? std::max(nearest, best) : std::min(nearest, best);
    }
    if (!run.last.has_value()) ++verdict.diverged;
    if (run.at_first) ++verdict.at_first;
    if (run.reached && fewest.has_value() && run.samples < *fewest) {
      verdict.suspicious.push_back(static_cast<int>(seed));
    }
  }
  return verdict;
}

// `longer`: what is found of the mode's time beside the baseline's.
ModeVerdict::Speed SpeedOf(const ModeVerdict& verdict, const ModeVerdict& baseline, int needed,
                           Finding longer) {
  if (verdict.pairs < needed) return ModeVerdict::Speed::kTooFewSeeds;
  const double untold = kUntoldShare * verdict.pairs;
  if (verdict.misses >= untold) return ModeVerdict::Speed::kNotReached;
  if (std::max(verdict.at_first, baseline.at_first) >= untold) return ModeVerdict::Speed::kTooEasy;
  if (longer == Finding::kLess && verdict.misses == 0) return ModeVerdict::Speed::kFaster;
  if (baseline.misses >= untold) return ModeVerdict::Speed::kBaselineNotReached;
  if (longer == Finding::kMore && baseline.misses == 0) return ModeVerdict::Speed::kSlower;
  return ModeVerdict::Speed::kCannotTell;
}

}  // namespace

RunOutcome OutcomeOf(absl::Span<const Evaluation> evaluations, const Target& target) {
  RunOutcome outcome;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const Evaluation& now = evaluations[i];
    if (!std::isfinite(now.value)) {
      outcome.last.reset();
      continue;
    }
    const bool is_better =
        target.higher_is_better ? now.value > outcome.best : now.value < outcome.best;
    if (!outcome.best.has_value() || is_better) outcome.best = now.value;
    outcome.last = now.value;
    if (outcome.reached) continue;
    outcome.seconds = now.seconds;
    outcome.samples = now.samples;
    if (!target.IsReachedBy(now.value)) continue;
    outcome.reached = true;
    outcome.at_first = i == 0;
    if (i == 0 || !std::isfinite(evaluations[i - 1].value)) continue;
    const Evaluation& before = evaluations[i - 1];
    const double share = (target.value - before.value) / (now.value - before.value);
    outcome.seconds = before.seconds + share * (now.seconds - before.seconds);
    outcome.samples = before.samples + share * (now.samples - before.samples);
  }
  if (!evaluations.empty() && !outcome.last.has_value()) {
    outcome.reached = outcome.at_first = false;
    outcome.seconds = evaluations.back().seconds;
    outcome.samples = evaluations.back().samples;
  }
  return outcome;
}

std::vector<ModeVerdict> Judge(const std::vector<std::vector<RunOutcome>>& modes, size_t baseline,
                               std::optional<size_t> sync, const Target& target) {
  std::vector<ModeVerdict> verdicts(modes.size());
  std::vector<size_t> compared;
  std::vector<std::vector<double>> times, qualities;
  std::vector<double> time_p, quality_p;
  const std::optional<double> fewest =
      sync.has_value() ? FewestSamples(modes[*sync]) : std::nullopt;
  for (size_t i = 0; i < modes.size(); ++i) {
    RUBATO_CHECK(modes[i].size() == modes[baseline].size() && !modes[i].empty());
    verdicts[i] = VerdictAlone(modes[i], target, i == sync ? std::nullopt : fewest);
    if (i == baseline) {
      verdicts[i].speed = ModeVerdict::Speed::kBaseline;
      continue;
    }
    compared.push_back(i);
    times.push_back(LogRatios(modes[i], modes[baseline]));
    qualities.push_back(QualityDifferences(modes[i], modes[baseline], target));
    time_p.push_back(SignFlipP(times.back()));
    quality_p.push_back(SignFlipP(qualities.back()));
  }
  const std::vector<HolmResult> time_results = Holm(time_p, kAlpha);
  const std::vector<HolmResult> quality_results = Holm(quality_p, kAlpha);
  const int needed = compared.empty() ? 0 : PairsNeeded(static_cast<int>(compared.size()), kAlpha);
  for (size_t k = 0; k < compared.size(); ++k) {
    ModeVerdict& verdict = verdicts[compared[k]];
    verdict.p = time_p[k];
    verdict.level = time_results[k].level;
    const auto [low, high] = SignFlipInterval(times[k], verdict.level);
    verdict.speedup_mean = std::exp(-Mean(times[k]));
    verdict.speedup = {std::exp(-high), std::exp(-low)};
    verdict.quality_mean = Mean(qualities[k]);
    verdict.quality_difference = SignFlipInterval(qualities[k], quality_results[k].level);
    verdict.quality = FindingOf(quality_results[k], qualities[k]);
    verdict.speed =
        SpeedOf(verdict, verdicts[baseline], needed, FindingOf(time_results[k], times[k]));
  }
  return verdicts;
}

}  // namespace rubato
