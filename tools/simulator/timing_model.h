// The number of the way in which the simulator counts time.
#ifndef RUBATO_TOOLS_SIMULATOR_TIMING_MODEL_H_
#define RUBATO_TOOLS_SIMULATOR_TIMING_MODEL_H_

namespace rubato {

// Raised whenever the same setting takes another time than before: runs of two timing models are
// not compared (tools/bench/convergence/study.h).
constexpr int kTimingModel = 2;

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_TIMING_MODEL_H_
