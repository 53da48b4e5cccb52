// How many operations a model's step needs, and how many a thread could reach.
#ifndef RUBATO_TOOLS_BENCH_OPERATIONS_H_
#define RUBATO_TOOLS_BENCH_OPERATIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/graph.h"

namespace rubato {

// Additions and multiplications of the layers' products for one example: forward, and backward by
// parameters and, but for the first layer that has any, by the input.
double OperationsOf(const Graph& graph);

// What products of matrices reach on one thread of this CPU, in operations a second.
absl::StatusOr<double> PeakOfAThread();

// "63 %". It says so where the peak cannot be one: the cores were another's when it was measured.
std::string ShareOfPeak(double speed, double peak);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_OPERATIONS_H_
