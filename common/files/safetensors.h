// Named tensors in one file, in the safetensors format (see safetensors_header.h).
#ifndef RUBATO_COMMON_FILES_SAFETENSORS_H_
#define RUBATO_COMMON_FILES_SAFETENSORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/bytes.h"
#include "common/files/atomic_file.h"
#include "common/files/safetensors_header.h"

namespace rubato {

// A tensor whose bytes lie in memory.
struct TensorView {
  TensorInfo info;
  absl::string_view bytes;  // info.Bytes() of them
};

// Writes a file whose tensors are known from the start and whose bytes arrive in order, in pieces
// of any size, so that the whole model never has to be in memory. The file appears under its name
// at Finish(), whole (see AtomicFile, which also says the codes of the errors of the disk).
class SafetensorsWriter {
 public:
  // The data are laid out in the order of `tensors`. InvalidArgument as MakeSafetensorsHeader.
  static absl::StatusOr<SafetensorsWriter> Create(std::string path,
                                                  absl::Span<const TensorInfo> tensors,
                                                  const Metadata& metadata);
  // The same to a file that has been begun, with nothing in it.
  static absl::StatusOr<SafetensorsWriter> Create(AtomicFile file,
                                                  absl::Span<const TensorInfo> tensors,
                                                  const Metadata& metadata);

  // The next bytes of the data. InvalidArgument if they are more than the tensors hold.
  absl::Status Append(absl::string_view bytes);
  // InvalidArgument if bytes are missing.
  absl::Status Finish(Flush flush = Flush::kName);

 private:
  SafetensorsWriter(AtomicFile file, int64_t data_bytes);

  AtomicFile file_;
  int64_t data_bytes_;
  int64_t appended_bytes_ = 0;
};

// Writes tensors that lie in memory.
absl::Status WriteSafetensors(std::string path, absl::Span<const TensorView> tensors,
                              const Metadata& metadata);

// An open file, or several that hold the tensors together. Open() reads and checks the header only;
// the data are read piece by piece on demand, by positioned reads, so that several threads may
// share it. (It is not memory-mapped, because truncating a mapped file kills its reader.)
class SafetensorsReader {
 public:
  // NotFound if there is no such file, FailedPrecondition if it cannot be opened, InvalidArgument,
  // in one sentence, if it is not a whole and well-formed safetensors file: every name once, the
  // sizes those of the shapes, the data without gaps or overlap up to the end of the file.
  static absl::StatusOr<SafetensorsReader> Open(std::string path);

  // A reader of `tensors` whose data are the concatenated data of `parts`; the tensor names inside
  // the parts are ignored. Error messages call it `path`. InvalidArgument if the parts hold more
  // bytes or fewer.
  static absl::StatusOr<SafetensorsReader> Join(std::string path,
                                                absl::Span<const TensorInfo> tensors,
                                                std::vector<SafetensorsReader> parts);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return header_.metadata; }
  // In the order of their bytes in the file.
  absl::Span<const TensorInfo> tensors() const { return header_.tensors; }

  // The tensor's place in tensors(), if the file has it.
  std::optional<size_t> Find(absl::string_view name) const;

  // Fills `out` with the bytes of tensors()[tensor] that begin at `offset`. They must lie within
  // the tensor. Unavailable if the disk fails or the file has shrunk.
  absl::Status Read(size_t tensor, int64_t offset, absl::Span<char> out) const;
  // The same for numbers: `begin` counts elements. InvalidArgument if the tensor is not F32.
  absl::Status ReadFloats(size_t tensor, int64_t begin, absl::Span<float> out) const;

 private:
  class File;
  // Data in the order of the tensors.
  struct Run {
    std::shared_ptr<const File> file;
    int64_t begin = 0;  // in the file
    int64_t bytes = 0;
  };

  SafetensorsReader(std::string path, SafetensorsHeader header, std::vector<Run> runs);

  std::string path_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // places in tensors(), in the order of their names
  std::vector<Run> runs_;
};

// SHA-256, in hexadecimal, of names, types, shapes and bits: over the tensors in the order of their
// names, each as one line of text "NAME DTYPE [D0,D1]\n" in which NAME is preceded by its length
// and ':', followed by its bytes. The digest does not depend on the order in the file, metadata,
// padding or the cluster that trained the model.
std::string TensorsDigest(absl::Span<const TensorView> tensors);
absl::StatusOr<std::string> TensorsDigest(const SafetensorsReader& file);
// Of the file at `path`. Also the errors of SafetensorsReader::Open.
absl::StatusOr<std::string> FileDigest(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_SAFETENSORS_H_
