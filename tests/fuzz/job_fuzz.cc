// Any bytes as a job's file. What is accepted, is written and read back as the same.
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "common/job/job.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<proto::Job> job = LoadJob(FuzzFile("job.yaml", bytes), {}, Environment());
  if (!job.ok()) {
    RUBATO_CHECK(!job.status().message().empty());
    return 0;
  }
  const absl::StatusOr<proto::Job> again =
      LoadJob(FuzzFile("again.yaml", ResolvedYaml(*job)), {}, Environment());
  RUBATO_CHECK(again.ok() && JobDigest(*again) == JobDigest(*job));
  return 0;
}
