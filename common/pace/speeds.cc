#include "common/pace/speeds.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"

namespace rubato {
namespace {

// So that times stay numbers of nanoseconds.
constexpr double kMaxFactor = 1e6;
constexpr double kMaxSigma = 10;
constexpr double kMaxSeconds = 1e6;
constexpr double kTau = 6.283185307179586;

// Uniform in (0, 1), 52 bits.
double Open(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

// Of a distribution, by name.
using Settings = std::map<absl::string_view, double>;

// Takes `setting`, as "sigma=0.5", into `settings`, which have all names. What was expected, if it
// is a mistake.
std::string Set(absl::string_view setting, Settings* settings) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(setting, absl::MaxSplits('=', 1));
  if (settings->count(pair.first) == 0) {
    return settings->empty()
               ? "no setting"
               : absl::StrJoin(*settings, " or ", [](std::string* out, const auto& entry) {
                   absl::StrAppend(out, entry.first, "=NUMBER");
                 });
  }
  double value = 0;
  const bool is_number = absl::SimpleAtod(pair.second, &value) && std::isfinite(value);
  if (pair.first == "worker") {
    int worker = 0;
    if (!absl::SimpleAtoi(pair.second, &worker) || worker < 0) {
      return "the number of a worker, from 0 on";
    }
  } else if (pair.first == "factor") {
    if (!is_number || value <= 0 || value > kMaxFactor) {
      return "a number above 0 and not above 1000000";
    }
  } else {
    const double max = pair.first == "sigma" ? kMaxSigma : 1;
    if (!is_number || value < 0 || value > max)
      return absl::StrFormat("a number from 0 to %g", max);
  }
  (*settings)[pair.first] = value;
  return "";
}

}  // namespace

absl::StatusOr<Speeds> Speeds::Parse(absl::string_view text, uint64_t seed) {
  Speeds speeds;
  speeds.seed_ = seed;
  for (const absl::string_view part : absl::StrSplit(text, '+')) {
    if (part == "fixed") continue;
    if (absl::string_view path = part; absl::ConsumePrefix(&path, "trace:")) {
      if (path.empty()) {
        return absl::InvalidArgumentError(
            "speeds: found trace: without a file, expected trace:FILE");
      }
      RUBATO_RETURN_IF_ERROR(speeds.ReadTrace(std::string(path)));
      speeds.terms_.push_back({Term::Kind::kTrace});
      continue;
    }
    RUBATO_ASSIGN_OR_RETURN(const Term term, ParseTerm(part));
    speeds.terms_.push_back(term);
  }
  return speeds;
}

absl::StatusOr<Speeds::Term> Speeds::ParseTerm(absl::string_view text) {
  struct Known {
    Term::Kind kind;
    Settings defaults;
  };
  static const auto& known = *new std::map<absl::string_view, Known>{
      {"exponential", {Term::Kind::kExponential, {}}},
      {"lognormal", {Term::Kind::kLogNormal, {{"sigma", 0.5}}}},
      {"jitter", {Term::Kind::kJitter, {{"width", 0.01}}}},
      {"transient", {Term::Kind::kTransient, {{"p", 0.05}, {"factor", 10}}}},
      {"straggler", {Term::Kind::kStraggler, {{"factor", 4}, {"worker", 0}}}},
  };
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto found = known.find(parts.first);
  if (found == known.end()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "speeds: found %s; expected fixed, exponential, lognormal, jitter, transient, straggler or "
        "trace:FILE, or several with + between them",
        text.empty() ? "nothing" : text));
  }
  Settings settings = found->second.defaults;
  for (const absl::string_view setting : absl::StrSplit(parts.second, ',', absl::SkipEmpty())) {
    if (const std::string expected = Set(setting, &settings); !expected.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("speeds: found %s in %s; expected %s", setting, text, expected));
    }
  }
  Term term{found->second.kind};
  for (const auto& [name, value] : settings) {
    if (name == "p") {
      term.probability = value;
    } else if (name == "worker") {
      term.worker = static_cast<int>(value);
    } else {
      term.value = value;
    }
  }
  return term;
}

absl::Status Speeds::CheckWorkers(int workers) const {
  for (const Term& term : terms_) {
    if (term.kind != Term::Kind::kStraggler || term.worker < workers) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("speeds: found straggler:worker=%d, expected a number from 0 to %d: the "
                        "job has %d workers",
                        term.worker, workers - 1, workers));
  }
  return absl::OkStatus();
}

absl::Status Speeds::ReadTrace(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
    int worker = 0;
    double seconds = 0;
    if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &worker) || worker < 0 ||
        worker > (1 << 20) || !absl::SimpleAtod(fields[1], &seconds) || !(seconds > 0) ||
        seconds > kMaxSeconds) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s:%d: found %s, expected `worker,seconds`, as 3,0.125, of not more than 1000000 s",
          path, number, line.substr(0, 40)));
    }
    if (static_cast<size_t>(worker) >= traces_.size()) traces_.resize(worker + 1);
    traces_[worker].push_back(seconds);
  }
  for (size_t worker = 0; worker < traces_.size(); ++worker) {
    if (traces_[worker].empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: there is no line of worker %d; workers are numbered from 0 without "
                          "gaps",
                          path, worker));
    }
  }
  if (traces_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found no line `worker,seconds`"));
  }
  return absl::OkStatus();
}

double Speeds::Seconds(int worker, int64_t n, double seconds) const {
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (terms_[i].kind == Term::Kind::kTrace) {
      const std::vector<double>& trace = traces_[worker % traces_.size()];
      seconds = trace[n % trace.size()];
    }
  }
  for (size_t i = 0; i < terms_.size(); ++i) {
    seconds *= Factor(terms_[i], Key(seed_, "speed", i, static_cast<uint64_t>(worker)), worker, n);
  }
  return seconds;
}

double Speeds::Factor(const Term& term, uint64_t key, int worker, int64_t n) const {
  switch (term.kind) {
    case Term::Kind::kTrace:
      return 1;
    case Term::Kind::kStraggler:
      return worker == term.worker ? term.value : 1;
    default:
      break;
  }
  const std::array<uint32_t, 4> bits = Philox(key, static_cast<uint64_t>(n));
  const double u = Open(bits[0], bits[1]);
  switch (term.kind) {
    case Term::Kind::kExponential:
      return -std::log(u);
    case Term::Kind::kLogNormal: {
      // Box and Muller 1958. exp(sigma z - sigma^2 / 2) has mean 1.
      const double z = std::sqrt(-2 * std::log(u)) * std::cos(kTau * Open(bits[2], bits[3]));
      return std::exp(term.value * z - term.value * term.value / 2);
    }
    case Term::Kind::kJitter:
      return 1 + term.value * (2 * u - 1);
    default:  // transient
      return u < term.probability ? term.value : 1;
  }
}

}  // namespace rubato
