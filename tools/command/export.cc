#include "tools/command/export.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/files/safetensors.h"
#include "tools/command/parameters_file.h"

namespace rubato {

absl::StatusOr<std::string> ExportParameters(const std::string& from, const std::string& to) {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(to, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(to, " exists; expected the name of a new file, as none is overwritten"));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::string path, FindParametersFile(from));
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader file, SafetensorsReader::Open(path));
  Metadata metadata = file.metadata();
  metadata["format"] = "pt";  // which Hugging Face's loaders ask for
  RUBATO_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(to, file.tensors(), metadata));
  std::vector<char> piece(kPieceBytes);
  int64_t elements = 0;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    elements += tensor.Elements();
    for (int64_t offset = 0; offset < tensor.Bytes(); offset += kPieceBytes) {
      const int64_t size = std::min(kPieceBytes, tensor.Bytes() - offset);
      RUBATO_RETURN_IF_ERROR(file.Read(i, offset, absl::MakeSpan(piece.data(), size)));
      RUBATO_RETURN_IF_ERROR(writer.Append(absl::string_view(piece.data(), size)));
    }
  }
  RUBATO_RETURN_IF_ERROR(writer.Finish());
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader written, SafetensorsReader::Open(to));
  RUBATO_ASSIGN_OR_RETURN(const std::string digest, TensorsDigest(written));
  return absl::StrCat(to, ": ", file.tensors().size(), " tensors, ", elements,
                      " parameters, digest ", digest, ", from ", path);
}

}  // namespace rubato
