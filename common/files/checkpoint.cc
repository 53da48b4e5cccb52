#include "common/files/checkpoint.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/base/finite.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "common/space/flat_space.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

constexpr char kParameters[] = "/parameters.safetensors";
constexpr char kOptimizer[] = "/optimizer.safetensors";
constexpr char kManifest[] = "/manifest.json";
constexpr char kJob[] = "/job.yaml";
constexpr char kComplete[] = "/COMPLETE";
constexpr char kPrefix[] = "step-";

std::string SlotName(const std::string& parameter, const std::string& slot) {
  return absl::StrCat(parameter, ".", slot);
}

// The tensors of one flat vector, appended to `out`.
void AppendTensors(const proto::Layout& layout, const std::string& slot,
                   const std::vector<float>& values, std::vector<TensorView>* out) {
  size_t begin = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    TensorView tensor;
    tensor.info.name = slot.empty() ? parameter.name() : SlotName(parameter.name(), slot);
    tensor.info.shape.assign(parameter.shape().begin(), parameter.shape().end());
    const size_t count = ValueCount(parameter);
    tensor.bytes = AsBytes(absl::MakeConstSpan(values).subspan(begin, count));
    begin += count;
    out->push_back(std::move(tensor));
  }
}

absl::StatusOr<std::string> WriteTensors(const std::string& path,
                                         const std::vector<TensorView>& tensors) {
  RUBATO_RETURN_IF_ERROR(WriteSafetensors(path, tensors, {{"format", "pt"}}));
  return TensorsDigest(tensors);
}

// Makes the names in a folder survive a loss of power.
absl::Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot sync ", path));
  return absl::OkStatus();
}

// Of all that the manifest says.
std::string DigestOf(proto::Manifest manifest) {
  manifest.clear_digest();
  return Sha256Hex(manifest.SerializeAsString());
}

absl::Status Damaged(const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, " is damaged: ", what));
}

// What a manifest says must hold together, whoever wrote it: what goes on from it computes with it
// unchecked.
absl::Status CheckManifest(const std::string& file, const proto::Manifest& manifest) {
  if (manifest.has_digest() && manifest.digest() != DigestOf(manifest)) {
    return Damaged(file, "what it says has another digest than it names");
  }
  for (const auto& [name, number] : {std::pair("step", manifest.step()),
                                     {"samples", manifest.samples()},
                                     {"samples_per_epoch", manifest.samples_per_epoch()},
                                     {"origin_unit", manifest.origin_unit()},
                                     {"origin_samples", manifest.origin_samples()},
                                     {"unit_samples", manifest.unit_samples()},
                                     {"block_values", manifest.block_values()},
                                     {"residuals", manifest.residuals()}}) {
    if (number < 0 || number > kMaxCount) {
      return Damaged(file, absl::StrFormat("%s is %d, expected 0 to %d", name, number, kMaxCount));
    }
  }
  for (const auto& [name, number] :
       {std::pair("epoch", manifest.epoch()), {"seconds", manifest.seconds()}}) {
    if (!(number >= 0 && number <= static_cast<double>(kMaxCount))) {
      return Damaged(file, absl::StrFormat("%s is %g", name, number));
    }
  }
  if (manifest.blocks().empty()) return Damaged(file, "it has no blocks");
  if (manifest.origin_unit() > manifest.step()) {
    return Damaged(file, absl::StrFormat("step is %d, before origin_unit, which is %d",
                                         manifest.step(), manifest.origin_unit()));
  }
  int64_t samples = 0;
  for (int i = 0; i < manifest.blocks_size(); ++i) {
    const proto::BlockState& block = manifest.blocks(i);
    bool fits = block.block() == i;
    for (const int64_t number :
         {block.version(), block.samples(), block.units_below(), block.skipped()}) {
      fits = fits && 0 <= number && number <= kMaxCount;
    }
    for (const int64_t unit : block.units_above()) {
      fits = fits && 0 <= unit && unit < std::max(manifest.step(), int64_t{1});
    }
    if (manifest.mode() == proto::Manifest::MODE_SYNC) {  // all blocks are at one version
      fits = fits && block.version() == manifest.step();
    } else {
      fits = fits && block.units_below() <= manifest.step();
    }
    if (!fits) {
      return Damaged(file, absl::StrFormat("of block %d it says what cannot be", i));
    }
    samples = std::max(samples, block.samples());
  }
  if (samples != manifest.samples()) {
    return Damaged(file,
                   absl::StrFormat("samples is %d, of the blocks %d", manifest.samples(), samples));
  }
  return absl::OkStatus();
}

absl::Status WriteFiles(const std::string& path, proto::Manifest manifest,
                        const std::string& job_yaml, const proto::Layout& layout,
                        const TrainingState& state) {
  std::vector<TensorView> parameters, slots;
  AppendTensors(layout, "", state.parameters, &parameters);
  for (size_t i = 0; i < state.slots.size(); ++i) {
    AppendTensors(layout, manifest.slots(static_cast<int>(i)), state.slots[i], &slots);
  }
  RUBATO_ASSIGN_OR_RETURN(*manifest.mutable_parameters_digest(),
                          WriteTensors(path + kParameters, parameters));
  if (!slots.empty()) {
    RUBATO_ASSIGN_OR_RETURN(*manifest.mutable_optimizer_digest(),
                            WriteTensors(path + kOptimizer, slots));
  }
  manifest.set_job_file_digest(Sha256Hex(job_yaml));
  manifest.set_digest(DigestOf(manifest));
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(manifest, &json, options).ok()) {
    return absl::InternalError("cannot write the manifest as JSON");
  }
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(path + kManifest, json));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(path + kJob, job_yaml));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(path + kComplete, ""));
  return SyncFolder(path);
}

absl::StatusOr<SafetensorsReader> OpenChecked(const std::string& path, const std::string& digest) {
  RUBATO_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
  RUBATO_ASSIGN_OR_RETURN(const std::string found, TensorsDigest(reader));
  if (found != digest) {
    return Damaged(path, absl::StrFormat("its digest is %s, the manifest says %s",
                                         found.substr(0, 12), digest.substr(0, 12)));
  }
  return reader;
}

// Fills `out` from the tensors named for `slot`.
absl::Status ReadVector(const SafetensorsReader& reader, const proto::Layout& layout,
                        const std::string& slot, std::vector<float>* out) {
  out->resize(ValueCount(layout));
  int64_t begin = 0;
  std::vector<std::string> wrong;
  size_t known = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const std::string name = slot.empty() ? parameter.name() : SlotName(parameter.name(), slot);
    const int64_t count = ValueCount(parameter);
    const std::optional<size_t> index = reader.Find(name);
    const std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
    if (!index.has_value()) {
      wrong.push_back(absl::StrCat(name, " is missing"));
    } else if (reader.tensors()[*index].shape != shape) {
      wrong.push_back(absl::StrFormat("%s has shape (%s), the model's is (%s)", name,
                                      absl::StrJoin(reader.tensors()[*index].shape, ", "),
                                      absl::StrJoin(shape, ", ")));
    } else {
      ++known;
      RUBATO_RETURN_IF_ERROR(
          reader.ReadFloats(*index, 0, absl::MakeSpan(*out).subspan(begin, count)));
    }
    begin += count;
  }
  if (wrong.empty() && slot.empty() && known < reader.tensors().size()) {
    wrong.push_back(absl::StrFormat("%d more tensors", reader.tensors().size() - known));
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s does not fit the model: %s", reader.path(), absl::StrJoin(wrong, "; ")));
}

// Gives the whole checkpoint `temporary` its name. If there is one of that name they change places,
// so that at no moment there is none.
absl::Status Publish(const std::string& temporary, const std::string& path) {
  const auto rename_with = [&](unsigned flags) {
    return renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), flags) == 0;
  };
  if (rename_with(RENAME_EXCHANGE)) return absl::OkStatus();
  if (errno != ENOENT) {
    // A file system that knows no exchange.
    std::error_code error;
    if (fs::exists(path, error)) RUBATO_RETURN_IF_ERROR(RemoveCheckpoint(path));
  }
  if (rename_with(0)) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", temporary, " to ", path));
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& folder, proto::Manifest manifest,
                                            const std::string& job_yaml,
                                            const proto::Layout& layout,
                                            const TrainingState& state) {
  // Sums that are finite may not be so together: nobody wants to go on from what comes of that.
  std::vector<absl::Span<const float>> vectors = {state.parameters};
  vectors.insert(vectors.end(), state.slots.begin(), state.slots.end());
  for (const absl::Span<const float> vector : vectors) {
    const size_t index = FirstNonFinite(vector);
    if (index < vector.size()) {
      return absl::DataLossError(
          absl::StrCat(ParameterAt(layout, static_cast<int64_t>(index)), " is not finite"));
    }
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
  }
  const std::string name = absl::StrFormat("%s%08d", kPrefix, manifest.step());
  const std::string path = absl::StrCat(folder, "/", name);
  const std::string temporary = absl::StrFormat("%s/.%s.%d.tmp", folder, name, getpid());
  // The folder may be new, and the run's as well: their names must be on the disk, too.
  (void)SyncFolder(fs::path(folder).parent_path().string());
  (void)SyncFolder(fs::path(folder).parent_path().parent_path().string());
  fs::remove_all(temporary, error);
  fs::create_directory(temporary, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", temporary));
  }
  absl::Status status = WriteFiles(temporary, std::move(manifest), job_yaml, layout, state);
  if (status.ok()) status = Publish(temporary, path);
  if (status.ok()) status = SyncFolder(folder);
  // What is left under the temporary name: a failure, or an older checkpoint of the same step.
  fs::remove_all(temporary, error);
  if (!status.ok()) return status;
  return path;
}

std::vector<std::string> ListCheckpoints(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, kPrefix) && fs::exists(it->path().string() + kComplete, error)) {
      paths.push_back(it->path().string());
    }
  }
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    // Names are padded to eight digits; longer ones are later.
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return paths;
}

absl::Status RemoveCheckpoint(const std::string& path) {
  if (unlink((path + kComplete).c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path));
  }
  (void)SyncFolder(path);  // the mark goes before the rest, whatever happens
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

absl::StatusOr<proto::Manifest> ReadManifest(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint ", path));
  }
  if (!fs::exists(path + kComplete, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", path, " is half-written: it has no file COMPLETE"));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(path + kManifest));
  proto::Manifest manifest;
  if (!google::protobuf::util::JsonStringToMessage(json, &manifest).ok()) {
    return Damaged(path + kManifest, "it is no JSON of a manifest");
  }
  if (manifest.format() != 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has format %d; this version reads format 1", path + kManifest, manifest.format()));
  }
  RUBATO_RETURN_IF_ERROR(CheckManifest(path + kManifest, manifest));
  if (manifest.has_job_file_digest()) {
    RUBATO_ASSIGN_OR_RETURN(const std::string job, ReadSmallFile(path + kJob));
    if (Sha256Hex(job) != manifest.job_file_digest()) {
      return Damaged(path + kJob, "its digest is another than the manifest's");
    }
  }
  return manifest;
}

absl::StatusOr<proto::Manifest> CheckCheckpoint(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(proto::Manifest manifest, ReadManifest(path));
  RUBATO_RETURN_IF_ERROR(OpenChecked(path + kParameters, manifest.parameters_digest()).status());
  if (manifest.slots_size() > 0) {
    RUBATO_RETURN_IF_ERROR(OpenChecked(path + kOptimizer, manifest.optimizer_digest()).status());
  }
  return manifest;
}

absl::StatusOr<std::string> FindCheckpoint(const std::string& path,
                                           std::vector<std::string>* warnings) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("there is no run or checkpoint ", path));
  }
  const std::string inside = absl::StrCat(path, "/checkpoints");
  if (fs::is_directory(inside, error)) {
    std::vector<std::string> paths = ListCheckpoints(inside);
    while (!paths.empty()) {
      const absl::Status status = CheckCheckpoint(paths.back()).status();
      if (status.ok()) return paths.back();
      warnings->push_back(absl::StrCat("passed over: ", status.message()));
      paths.pop_back();
    }
    return absl::NotFoundError(absl::StrCat("run ", path, " has no whole checkpoint"));
  }
  const absl::Status status = CheckCheckpoint(path).status();
  if (status.ok()) return path;
  std::string before;
  for (const std::string& other : ListCheckpoints(fs::path(path).parent_path().string())) {
    if (fs::path(other).filename() < fs::path(path).filename() && CheckCheckpoint(other).ok()) {
      before = other;
    }
  }
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   before.empty() ? "; there is none before it"
                                                  : absl::StrCat("; the one before is ", before)));
}

absl::StatusOr<TrainingState> ReadTrainingState(const std::string& path,
                                                const proto::Manifest& manifest,
                                                const proto::Layout& layout) {
  TrainingState state;
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader parameters,
                          OpenChecked(path + kParameters, manifest.parameters_digest()));
  RUBATO_RETURN_IF_ERROR(ReadVector(parameters, layout, "", &state.parameters));
  if (manifest.slots_size() == 0) return state;
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader slots,
                          OpenChecked(path + kOptimizer, manifest.optimizer_digest()));
  for (const std::string& slot : manifest.slots()) {
    RUBATO_RETURN_IF_ERROR(ReadVector(slots, layout, slot, &state.slots.emplace_back()));
  }
  return state;
}

absl::StatusOr<std::vector<float>> ReadParameters(const std::string& path,
                                                  const proto::Layout& layout) {
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  std::vector<float> parameters;
  RUBATO_RETURN_IF_ERROR(ReadVector(reader, layout, "", &parameters));
  return parameters;
}

std::vector<int64_t> UnitsNotWhole(const proto::Manifest& checkpoint) {
  const auto holds = [](const proto::BlockState& block, int64_t unit) {
    return unit < block.units_below() ||
           std::count(block.units_above().begin(), block.units_above().end(), unit) > 0;
  };
  int64_t below = checkpoint.step();
  for (const proto::BlockState& block : checkpoint.blocks()) {
    below = std::min(below, block.units_below());
  }
  std::vector<int64_t> units;
  for (int64_t unit = below; unit < checkpoint.step(); ++unit) {
    if (!std::all_of(checkpoint.blocks().begin(), checkpoint.blocks().end(),
                     [&](const proto::BlockState& block) { return holds(block, unit); })) {
      units.push_back(unit);
    }
  }
  return units;
}

}  // namespace rubato
