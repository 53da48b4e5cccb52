#include "common/files/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/files/checkpoint_part.h"
#include "common/files/run_folder.h"
#include "common/space/flat_space.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "/manifest.json";
constexpr char kJob[] = "/job.yaml";
constexpr char kComplete[] = "/COMPLETE";
constexpr char kPrefix[] = "step-";

// Makes a file's contents, or the names in a folder, survive a loss of power.
absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot sync ", path));
  return absl::OkStatus();
}

// The files in a folder, and their names.
absl::Status SyncFiles(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    RUBATO_RETURN_IF_ERROR(Sync(it->path().string()));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", folder));
  return Sync(folder);
}

// All but the parts.
absl::Status WriteFiles(const std::string& path, proto::Manifest manifest,
                        const std::string& job_yaml) {
  manifest.set_job_file_digest(Sha256Hex(job_yaml));
  RUBATO_RETURN_IF_ERROR(WriteManifest(path + kManifest, std::move(manifest)));
  // In a folder that is used again it is there.
  if (const auto before = ReadSmallFile(path + kJob); !before.ok() || *before != job_yaml) {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(path + kJob, job_yaml, Flush::kNothing));
  }
  if (access((path + kComplete).c_str(), F_OK) == 0) return absl::OkStatus();
  return WriteFileAtomically(path + kComplete, "", Flush::kNothing);
}

// Writes part number `part` of a whole state, and what the manifest says of it.
absl::Status WritePart(const std::string& folder, const TrainingState& state, int part,
                       proto::Manifest* manifest) {
  const FlatSpace space = SpaceOf(*manifest);
  const Range blocks = PlaceOf(*manifest, part).blocks;
  RUBATO_ASSIGN_OR_RETURN(CheckpointPart files, CreatePart(folder, *manifest, part));
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const Range values = space.BlockValues(block);
    for (size_t vector = 0; vector <= state.slots.size(); ++vector) {
      const std::vector<float>& all = vector == 0 ? state.parameters : state.slots[vector - 1];
      RUBATO_RETURN_IF_ERROR(
          files.Append(vector, absl::MakeConstSpan(all).subspan(values.begin, values.size())));
    }
  }
  AddChecksums(blocks, files.checksums(), manifest);
  return files.Finish();
}

// Whether what the manifest names is there. To read the headers would take a tenth of all that a
// small checkpoint takes.
absl::Status FindParts(const std::string& folder, const proto::Manifest& manifest) {
  const FlatSpace space = SpaceOf(manifest);
  for (int i = 0; i < manifest.parts_size(); ++i) {
    const PartPlace place = PlaceOf(manifest, i);
    if (place.blocks.empty()) continue;
    for (const std::string& vector : VectorsOf(manifest)) {
      if (HasPart(folder, vector, space, place)) continue;
      return Damaged(folder, absl::StrFormat("part %d is missing or not whole", i));
    }
  }
  return absl::OkStatus();
}

// Gives the whole checkpoint `temporary` its name. If it is to replace one of that name they change
// places, so that at no moment there is none.
absl::Status Publish(const std::string& temporary, const std::string& path, bool replaces) {
  if (replaces) {
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
      return absl::OkStatus();
    }
    RUBATO_RETURN_IF_ERROR(RemoveCheckpoint(path));  // a file system that knows no exchange
  }
  if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", temporary, " to ", path));
}

// The step that a checkpoint's folder is named after; nothing if it has another name.
std::optional<int64_t> StepOfName(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  int64_t step;
  if (!absl::StartsWith(name, kPrefix)) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(sizeof kPrefix - 1), &step)) return std::nullopt;
  return step;
}

}  // namespace

absl::Status BeginCheckpoint(const std::string& folder, const std::string& temporary) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
  }
  // The folder may be new, and the run's as well: their names must be on the disk, too.
  (void)Sync(fs::path(folder).parent_path().string());
  (void)Sync(fs::path(folder).parent_path().parent_path().string());
  fs::create_directories(temporary, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", temporary));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BeginParts(const std::string& parts, uint32_t snapshot) {
  std::string folder = absl::StrCat(parts, "/", snapshot);
  // To ask first takes a tenth of what it takes to be refused.
  if (access(folder.c_str(), F_OK) == 0) return folder;
  if (mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) return folder;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", folder));
}

absl::StatusOr<std::string> PublishCheckpoint(const std::string& folder,
                                              const std::string& temporary,
                                              proto::Manifest manifest, const std::string& job_yaml,
                                              bool flushes) {
  const std::string path = absl::StrFormat("%s/%s%08d", folder, kPrefix, manifest.step());
  manifest.set_format(kManifestFormat);
  const bool replaces = access(path.c_str(), F_OK) == 0;
  // What it replaces may be on the disk, and the only one there.
  flushes = flushes || replaces;
  absl::Status status = [&] {
    RUBATO_RETURN_IF_ERROR(FindParts(temporary, manifest));
    RUBATO_RETURN_IF_ERROR(WriteFiles(temporary, manifest, job_yaml));
    if (flushes) RUBATO_RETURN_IF_ERROR(SyncFiles(temporary));
    RUBATO_RETURN_IF_ERROR(Publish(temporary, path, replaces));
    return flushes ? Sync(folder) : absl::OkStatus();
  }();
  std::error_code error;
  if (replaces || !status.ok()) fs::remove_all(temporary, error);
  if (!status.ok()) return status;
  return path;
}

absl::Status FlushCheckpoint(const std::string& path) {
  RUBATO_RETURN_IF_ERROR(SyncFiles(path));
  return Sync(fs::path(path).parent_path().string());
}

absl::StatusOr<std::string> WriteCheckpoint(const std::string& folder, proto::Manifest manifest,
                                            const std::string& job_yaml,
                                            const proto::Layout& layout,
                                            const TrainingState& state) {
  const std::string temporary =
      absl::StrFormat("%s/.%s%08d.%d.tmp", folder, kPrefix, manifest.step(), getpid());
  std::error_code error;
  fs::remove_all(temporary, error);
  RUBATO_RETURN_IF_ERROR(BeginCheckpoint(folder, temporary));
  *manifest.mutable_layout() = layout;
  if (manifest.parts().empty()) manifest.add_parts()->set_end(manifest.blocks_size());
  for (int part = 0; part < manifest.parts_size(); ++part) {
    if (absl::Status status = WritePart(temporary, state, part, &manifest); !status.ok()) {
      fs::remove_all(temporary, error);
      return status;
    }
  }
  return PublishCheckpoint(folder, temporary, std::move(manifest), job_yaml, /*flushes=*/true);
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
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

absl::Status RecycleCheckpoint(const std::string& path, const std::string& parts,
                               uint32_t snapshot) {
  const std::string folder = absl::StrCat(parts, "/", snapshot);
  if (rename(path.c_str(), folder.c_str()) == 0) return absl::OkStatus();
  return RemoveCheckpoint(path);
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
  RUBATO_ASSIGN_OR_RETURN(proto::Manifest manifest, ReadManifestFile(path + kManifest));
  // One that was written over another may have, after a loss of power, all that the other had.
  if (const auto step = StepOfName(path); step.has_value() && *step != manifest.step()) {
    return Damaged(path, absl::StrFormat("its manifest is of step %d", manifest.step()));
  }
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
  if (manifest.format() == 1) {
    RUBATO_RETURN_IF_ERROR(CheckDigests(path, manifest));
    return manifest;
  }
  RUBATO_ASSIGN_OR_RETURN(const CheckpointReader reader,
                          CheckpointReader::Open(path, manifest, manifest.layout()));
  const FlatSpace space = SpaceOf(manifest);
  std::vector<float> block(std::min(space.block_values(), space.values()));
  for (int vector = 0; vector <= manifest.slots_size(); ++vector) {
    for (int64_t i = 0; i < space.blocks(); ++i) {
      const Range values = space.BlockValues(i);
      RUBATO_RETURN_IF_ERROR(
          reader.Read(vector, values.begin, absl::MakeSpan(block).first(values.size())));
    }
  }
  return manifest;
}

absl::StatusOr<std::string> FindCheckpoint(const std::string& path,
                                           std::vector<std::string>* warnings) {
  RUBATO_RETURN_IF_ERROR(CheckAccess(path));
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("there is no run or checkpoint ", path));
  }
  const RunFolder run(path);
  // A run that has ended soon has no checkpoints, nor a place for them.
  if (fs::is_directory(run.CheckpointFolder(), error) || fs::exists(run.TermFile(), error) ||
      fs::is_directory(path + "/logs", error)) {
    std::vector<std::string> paths = ListCheckpoints(run.CheckpointFolder());
    std::string reasons;
    while (!paths.empty()) {
      const absl::Status status = CheckCheckpoint(paths.back()).status();
      if (status.ok()) return paths.back();
      warnings->push_back(absl::StrCat("passed over: ", status.message()));
      absl::StrAppend(&reasons, reasons.empty() ? ": " : "; ", status.message());
      paths.pop_back();
    }
    return absl::NotFoundError(absl::StrCat("run ", path, " has no whole checkpoint", reasons));
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
  RUBATO_ASSIGN_OR_RETURN(const CheckpointReader reader,
                          CheckpointReader::Open(path, manifest, layout));
  TrainingState state;
  state.slots.resize(manifest.slots_size());
  for (int vector = 0; vector <= manifest.slots_size(); ++vector) {
    std::vector<float>& values = vector == 0 ? state.parameters : state.slots[vector - 1];
    values.resize(ValueCount(layout));
    RUBATO_RETURN_IF_ERROR(reader.Read(vector, 0, absl::MakeSpan(values)));
  }
  return state;
}

}  // namespace rubato
