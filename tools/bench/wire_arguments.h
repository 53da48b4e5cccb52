// What is typed after `rubato bench wire`.
#ifndef RUBATO_TOOLS_BENCH_WIRE_ARGUMENTS_H_
#define RUBATO_TOOLS_BENCH_WIRE_ARGUMENTS_H_

#include <string>

#include "absl/status/status.h"
#include "tools/bench/wire.h"

namespace rubato {

struct WireArguments {
  // Lists with commas; empty: what `bench` has by itself.
  std::string sizes, path, codecs, workers;
  bool quick = false;

  // InvalidArgument with what was found and what was expected.
  absl::Status ApplyTo(WireBench* bench) const;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_ARGUMENTS_H_
