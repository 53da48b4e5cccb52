// Any bytes in place of a file of a whole checkpoint, which the first byte chooses: the manifest as
// it is today or as it was before it had a digest, or a file of tensors. What is accepted, a job
// can go on from.
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/base/check.h"
#include "common/files/checkpoint.h"
#include "google/protobuf/text_format.h"
#include "server/coordinator/work.h"
#include "tests/fuzz/input.h"

namespace rubato {
namespace {

constexpr char kJob[] =
    "cluster { servers: 1 workers { start: 1 min: 1 max: 1 } } "
    "optimizer { learning_rate: 0.1 } consistency { mode { mode: NAME_ASYNC } } "
    "train { batch_size: 8 micro_batches: 1 until { epochs: 20 } } wire { chunk: 64 }";

proto::Layout SmallLayout() {
  proto::Layout layout;
  layout.add_parameters()->set_name("w");
  layout.mutable_parameters(0)->add_shape(20);
  return layout;
}

std::string Whole() {
  proto::Manifest manifest;
  manifest.set_format(1);
  manifest.set_mode(proto::Manifest::MODE_ASYNC);
  manifest.set_step(7);
  manifest.set_samples_per_epoch(60);
  manifest.set_unit_samples(8);
  manifest.set_block_values(16);
  manifest.add_slots("momentum");
  for (int64_t block = 0; block < 2; ++block) manifest.add_blocks()->set_block(block);
  TrainingState state;
  state.parameters.assign(20, 1);
  state.slots.emplace_back(20, 2);
  const auto path =
      WriteCheckpoint(FuzzFolder() + "/checkpoints", manifest, "name: x\n", SmallLayout(), state);
  RUBATO_CHECK(path.ok());
  return *path;
}

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  static const std::string& whole = *new std::string(Whole());
  static const proto::Job& job = *[] {
    auto* parsed = new proto::Job;
    RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(kJob, parsed));
    return parsed;
  }();
  FuzzInput input(data, size);
  constexpr const char* kFiles[] = {"manifest.json", "parameters.safetensors",
                                    "momentum.safetensors", "job.yaml"};
  const std::string path = FuzzFolder() + "/damaged";
  std::error_code error;
  do {  // the fuzzer's alarm interrupts
    std::filesystem::remove_all(path);
    std::filesystem::copy(whole, path, error);
  } while (error == std::errc::interrupted);
  RUBATO_CHECK(!error);
  const char* const name = kFiles[input.Byte() % 4];
  const absl::string_view bytes = input.Rest();
  FuzzFile(absl::StrCat("damaged/", name), bytes);
  const absl::StatusOr<proto::Manifest> manifest = CheckCheckpoint(path);
  if (!manifest.ok()) {
    const std::string reason(manifest.status().message());
    RUBATO_CHECK(reason.find(path) != std::string::npos && reason.find('\n') == std::string::npos);
    return 0;
  }
  ReadTrainingState(path, *manifest, SmallLayout()).status().IgnoreError();
  if (manifest->samples_per_epoch() == 0 || manifest->step() > 1000) return 0;
  Work work(job, 60, *manifest, proto::Lasting(), BuiltInPolicy);
  RUBATO_CHECK(work.ledger().next() >= 0);
  return 0;
}
