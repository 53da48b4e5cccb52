// Any bytes as a safetensors file, as model.init_from and the commands that show parameters read
// it.
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/files/init_from.h"
#include "common/files/safetensors.h"
#include "common/space/flat_space.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string path = FuzzFile("model.safetensors", bytes);
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) {
    RUBATO_CHECK(reader.status().message().find(path) != std::string::npos);
    return 0;
  }
  RUBATO_CHECK(TensorsDigest(*reader).ok());
  // The layout that fits it, as far as there is one.
  proto::Layout layout;
  for (const TensorInfo& tensor : reader->tensors()) {
    proto::Parameter* parameter = layout.add_parameters();
    parameter->set_name(tensor.name);
    for (const int64_t extent : tensor.shape) parameter->add_shape(extent);
  }
  const absl::StatusOr<SafetensorsReader> initial = OpenInitialParameters(path, layout);
  if (!initial.ok()) return 0;
  std::vector<float> values(ValueCount(layout));
  RUBATO_CHECK(ReadInitialValues(*initial, layout, 0, absl::MakeSpan(values)).ok());
  RUBATO_CHECK(FirstNonFinite(values) == values.size());
  return 0;
}
