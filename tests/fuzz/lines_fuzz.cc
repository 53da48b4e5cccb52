// Any bytes as the lines that others have written of a run: metrics.jsonl, as `rubato plot`, the
// progress of `rubato train` and TensorBoard's file read it, and the log of a process that ended.
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "server/run/tensorboard_file.h"
#include "tests/fuzz/input.h"
#include "tools/command/launcher.h"
#include "tools/command/progress.h"
#include "tools/plot/curves.h"
#include "tools/plot/page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const RunCurves run = ParseCurves(bytes);
  for (const auto& [kind, curves] : run.kinds) {
    for (const auto& [name, values] : curves) {
      RUBATO_CHECK(values.size() == curves.at("step").size());
    }
  }
  RUBATO_CHECK(!PlotPage({run}).empty());
  absl::StatusOr<TensorboardFile> events =
      TensorboardFile::Create(FuzzFolder(), absl::UnixEpoch(), "fuzz");
  RUBATO_CHECK(events.ok());
  Progress progress(1000, 100);
  for (const absl::string_view line : absl::StrSplit(bytes, '\n')) {
    progress.OnLine(line);
    RUBATO_CHECK(events->AppendJson(ParseJson(line), absl::UnixEpoch()).ok());
    RUBATO_CHECK(progress.LiveLine(80).size() < 80);
    progress.Fields();
  }
  std::filesystem::remove(events->path());
  RUBATO_CHECK(!FailureReason(bytes, /*wait_status=*/1 << 8).empty());
  return 0;
}
