#include "tools/command/export.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/checkpoint_reader.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "tools/command/parameters_file.h"

namespace rubato {

namespace {

absl::Status Copy(const SafetensorsReader& file, SafetensorsWriter* writer) {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::vector<char> piece(kPieceBytes);
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const int64_t bytes = file.tensors()[i].Bytes();
    for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
      const int64_t size = std::min(kPieceBytes, bytes - offset);
      RUBATO_RETURN_IF_ERROR(file.Read(i, offset, absl::MakeSpan(piece.data(), size)));
      RUBATO_RETURN_IF_ERROR(writer->Append(absl::string_view(piece.data(), size)));
    }
  }
  return absl::OkStatus();
}

// The files of the slots; of format 1 all are in one.
absl::StatusOr<std::vector<SafetensorsReader>> OpenSlots(const FoundParameters& found) {
  if (!found.manifest.has_value() || found.manifest->slots().empty()) {
    if (found.manifest.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat(found.folder, " holds no state of an optimizer: that of its job has none"));
    }
    const std::vector<std::string> all =
        ListCheckpoints(RunFolder(found.folder).CheckpointFolder());
    return absl::FailedPreconditionError(
        absl::StrCat(found.folder, " holds no state of an optimizer; look for it in a checkpoint",
                     all.empty() ? "" : absl::StrCat(", such as ", all.back())));
  }
  std::vector<SafetensorsReader> files;
  for (const std::string& slot : found.manifest->slots()) {
    RUBATO_ASSIGN_OR_RETURN(SafetensorsReader file,
                            OpenVector(found.folder, *found.manifest, slot));
    files.push_back(std::move(file));
    if (found.manifest->format() == 1) break;
  }
  return files;
}

}  // namespace

absl::StatusOr<std::string> ExportParameters(const std::string& from, const std::string& to,
                                             bool optimizer) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(to, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(to, " exists; expected the name of a new file, as none is overwritten"));
  }
  RUBATO_ASSIGN_OR_RETURN(FoundParameters found, FindParameters(from));
  const std::string path = optimizer ? found.folder : found.file.path();
  std::vector<SafetensorsReader> files;
  if (optimizer) {
    RUBATO_ASSIGN_OR_RETURN(files, OpenSlots(found));
  } else {
    files.push_back(std::move(found.file));
  }
  Metadata metadata = files[0].metadata();
  metadata["format"] = "pt";  // which Hugging Face's loaders ask for
  std::vector<TensorInfo> tensors;
  int64_t elements = 0;
  for (const SafetensorsReader& file : files) {
    for (const TensorInfo& tensor : file.tensors()) {
      tensors.push_back(tensor);
      elements += tensor.Elements();
    }
  }
  RUBATO_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(to, tensors, metadata));
  for (const SafetensorsReader& file : files) RUBATO_RETURN_IF_ERROR(Copy(file, &writer));
  RUBATO_RETURN_IF_ERROR(writer.Finish());
  RUBATO_ASSIGN_OR_RETURN(const std::string digest, FileDigest(to));
  return absl::StrCat(to, ": ", tensors.size(), " tensors, ", elements,
                      optimizer ? " numbers" : " parameters", ", digest ", digest, ", from ", path);
}

}  // namespace rubato
