// Writes checkpoints of manifest format 1, as versions before 2 did, for tests.
#ifndef RUBATO_COMMON_FILES_OLD_CHECKPOINT_H_
#define RUBATO_COMMON_FILES_OLD_CHECKPOINT_H_

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/files/checkpoint_part.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "gtest/gtest.h"

namespace rubato {

inline std::vector<TensorView> OldTensors(const proto::Layout& layout, const std::string& slot,
                                          const std::vector<float>& values) {
  std::vector<TensorView> tensors;
  size_t begin = 0;
  for (TensorInfo& info : VectorTensors(layout, slot)) {
    const auto count = static_cast<size_t>(info.Elements());
    tensors.push_back({info, AsBytes(absl::MakeConstSpan(values).subspan(begin, count))});
    begin += count;
  }
  return tensors;
}

// Writes no digest of the manifest, as the oldest versions did, and one slot.
inline std::string WriteOldCheckpoint(const std::string& folder, proto::Manifest manifest,
                                      const std::string& job_yaml, const proto::Layout& layout,
                                      const TrainingState& state) {
  const std::string path = absl::StrFormat("%s/step-%08d", folder, manifest.step());
  std::filesystem::create_directories(path);
  const auto parameters = OldTensors(layout, "", state.parameters);
  const auto slots = OldTensors(layout, manifest.slots(0), state.slots[0]);
  RUBATO_EXPECT_OK(WriteSafetensors(path + "/parameters.safetensors", parameters, {}));
  RUBATO_EXPECT_OK(WriteSafetensors(path + "/optimizer.safetensors", slots, {}));
  manifest.set_format(1);
  manifest.set_parameters_digest(TensorsDigest(parameters));
  manifest.set_optimizer_digest(TensorsDigest(slots));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(manifest, &json, options).ok());
  RUBATO_EXPECT_OK(WriteFileAtomically(path + "/manifest.json", json));
  RUBATO_EXPECT_OK(WriteFileAtomically(path + "/job.yaml", job_yaml));
  RUBATO_EXPECT_OK(WriteFileAtomically(path + "/COMPLETE", ""));
  return path;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_OLD_CHECKPOINT_H_
