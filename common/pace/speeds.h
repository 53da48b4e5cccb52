// How long workers take to compute: random or recorded, as pure functions of (seed, worker, how
// many computations it has made).
#ifndef RUBATO_COMMON_PACE_SPEEDS_H_
#define RUBATO_COMMON_PACE_SPEEDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// A factor of the time that a computation takes by itself; a product of
//   fixed                       1
//   exponential                 exponential, of mean 1
//   lognormal[:sigma=0.5]       log-normal, of mean 1
//   jitter[:width=0.01]         uniform in [1 - width, 1 + width)
//   transient[:p=0.05,factor=10]  `factor` with probability p, else 1: a normal one takes 1
//   straggler[:factor=4,worker=0] `factor` for that worker, else 1
//   trace:FILE                  lines `worker,seconds`: the times themselves, in turn and from the
//                               start again; worker w of more workers than traces takes that of w
//                               modulo their number
class Speeds {
 public:
  // Terms as above, joined by +: "lognormal:sigma=0.3+straggler:worker=2". InvalidArgument, or the
  // error of reading the trace.
  static absl::StatusOr<Speeds> Parse(absl::string_view text, uint64_t seed);

  // InvalidArgument if the terms name a worker that a job with `workers` workers does not have.
  absl::Status CheckWorkers(int workers) const;

  // Seconds of the n-th computation (from 0) of `worker`, which takes `seconds` by itself.
  double Seconds(int worker, int64_t n, double seconds) const;

 private:
  struct Term {
    enum class Kind { kExponential, kLogNormal, kJitter, kTransient, kStraggler, kTrace } kind;
    double value = 0;  // sigma, width, factor
    double probability = 0;
    int worker = 0;
  };

  static absl::StatusOr<Term> ParseTerm(absl::string_view text);
  absl::Status ReadTrace(const std::string& path);
  double Factor(const Term& term, uint64_t key, int worker, int64_t n) const;

  uint64_t seed_ = 0;
  std::vector<Term> terms_;
  std::vector<std::vector<double>> traces_;  // seconds, by worker
};

}  // namespace rubato

#endif  // RUBATO_COMMON_PACE_SPEEDS_H_
