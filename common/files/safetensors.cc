#include "common/files/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace rubato {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are stored as they lie in memory");

constexpr int64_t kLengthBytes = 8;  // of the length before the header
// The reference implementation refuses longer ones too.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

std::string DigestLine(const TensorInfo& info) {
  return absl::StrCat(info.name.size(), ":", info.name, " ", DtypeName(info.dtype), " [",
                      absl::StrJoin(info.shape, ","), "]\n");
}

// The places of the tensors in the order of their names.
template <typename InfoOf>
std::vector<size_t> ByName(size_t count, InfoOf info_of) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return info_of(a).name < info_of(b).name; });
  return order;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(AtomicFile file, int64_t data_bytes)
    : file_(std::move(file)), data_bytes_(data_bytes) {}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(std::string path,
                                                            absl::Span<const TensorInfo> tensors,
                                                            const Metadata& metadata) {
  RUBATO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(std::move(path)));
  return Create(std::move(file), tensors, metadata);
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(AtomicFile file,
                                                            absl::Span<const TensorInfo> tensors,
                                                            const Metadata& metadata) {
  const absl::StatusOr<SafetensorsHeader> header = MakeSafetensorsHeader(tensors, metadata);
  if (!header.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", file.path(), ": ", header.status().message()));
  }
  RUBATO_RETURN_IF_ERROR(file.Append(SafetensorsHeaderBytes(*header)));
  return SafetensorsWriter(std::move(file), header->data_bytes);
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  const int64_t room = data_bytes_ - appended_bytes_;
  if (static_cast<int64_t>(bytes.size()) > room) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", file_.path(), ": found ",
                                                   bytes.size(), " more bytes of data; expected ",
                                                   room, " at most"));
  }
  RUBATO_RETURN_IF_ERROR(file_.Append(bytes));
  appended_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish(Flush flush) {
  if (appended_bytes_ != data_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", file_.path(), ": found ",
                                                   appended_bytes_, " bytes of data; expected ",
                                                   data_bytes_));
  }
  return file_.Commit(flush);
}

absl::Status WriteSafetensors(std::string path, absl::Span<const TensorView> tensors,
                              const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorView& tensor : tensors) infos.push_back(tensor.info);
  RUBATO_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(std::move(path), infos, metadata));
  for (const TensorView& tensor : tensors) {
    RUBATO_CHECK(static_cast<int64_t>(tensor.bytes.size()) == tensor.info.Bytes());
    RUBATO_RETURN_IF_ERROR(writer.Append(tensor.bytes));
  }
  return writer.Finish();
}

// Closes itself.
class SafetensorsReader::File {
 public:
  static absl::StatusOr<std::shared_ptr<const File>> Open(std::string path) {
    // Not blocking: a named pipe is refused below, not waited for.
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      const int error = errno;
      return absl::Status(
          error == ENOENT || error == ENOTDIR ? absl::StatusCode::kNotFound
                                              : absl::StatusCode::kFailedPrecondition,
          absl::StrCat("cannot open ", path, ": ", std::generic_category().message(error)));
    }
    return std::make_shared<const File>(std::move(path), descriptor);
  }

  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~File() { close(descriptor_); }
  File(const File&) = delete;

  const std::string& path() const { return path_; }

  absl::Status Read(int64_t offset, absl::Span<char> out) const {
    while (!out.empty()) {
      const ssize_t bytes = pread(descriptor_, out.data(), out.size(), offset);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) {
        return absl::UnavailableError(absl::StrCat(
            "cannot read ", path_, " at byte ", offset, ": ",
            bytes == 0 ? "it has become shorter" : std::generic_category().message(errno)));
      }
      out.remove_prefix(bytes);
      offset += bytes;
    }
    return absl::OkStatus();
  }

  // `data_begin`: where the data begin.
  absl::StatusOr<SafetensorsHeader> ReadHeader(int64_t* data_begin) const;

 private:
  const std::string path_;
  const int descriptor_;
};

absl::StatusOr<SafetensorsHeader> SafetensorsReader::File::ReadHeader(int64_t* data_begin) const {
  const auto damaged = [&](absl::string_view reason) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " is not a whole safetensors file: ", reason));
  };
  struct stat file = {};
  if (fstat(descriptor_, &file) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot read ", path_, ": ", std::generic_category().message(errno)));
  }
  if (!S_ISREG(file.st_mode)) return damaged("it is a folder or a device");
  if (file.st_size < kLengthBytes) {
    return damaged(absl::StrCat("it has ", file.st_size, " bytes"));
  }
  uint64_t length = 0;
  RUBATO_RETURN_IF_ERROR(Read(0, absl::MakeSpan(reinterpret_cast<char*>(&length), kLengthBytes)));
  const uint64_t room = file.st_size - kLengthBytes;
  if (length > room || length > kMaxHeaderBytes) {
    char first = '{';  // of a header
    if (room > 0) RUBATO_RETURN_IF_ERROR(Read(kLengthBytes, absl::MakeSpan(&first, 1)));
    if (first != '{') {
      return absl::InvalidArgumentError(absl::StrCat(path_, " is not a safetensors file"));
    }
    return damaged(absl::StrCat("its header takes ", length, " bytes; expected at most ",
                                std::min<uint64_t>(room, kMaxHeaderBytes)));
  }
  std::string text(length, '\0');
  RUBATO_RETURN_IF_ERROR(Read(kLengthBytes, absl::MakeSpan(&text[0], text.size())));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) return damaged(header.status().message());
  const int64_t data_bytes = room - length;
  if (header->data_bytes != data_bytes) {
    return damaged(absl::StrCat("its tensors take ", header->data_bytes,
                                " bytes of data and it holds ", data_bytes));
  }
  *data_begin = kLengthBytes + length;
  return header;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(std::string path) {
  RUBATO_ASSIGN_OR_RETURN(std::shared_ptr<const File> file, File::Open(path));
  Run run{file};
  RUBATO_ASSIGN_OR_RETURN(SafetensorsHeader header, file->ReadHeader(&run.begin));
  run.bytes = header.data_bytes;
  return SafetensorsReader(std::move(path), std::move(header), {std::move(run)});
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Join(std::string path,
                                                          absl::Span<const TensorInfo> tensors,
                                                          std::vector<SafetensorsReader> parts) {
  RUBATO_ASSIGN_OR_RETURN(SafetensorsHeader header, MakeSafetensorsHeader(tensors, {}));
  std::vector<Run> runs;
  int64_t bytes = 0;
  for (const SafetensorsReader& part : parts) {
    for (const Run& run : part.runs_) {
      bytes += run.bytes;
      runs.push_back(run);
    }
    header.metadata.insert(part.metadata().begin(), part.metadata().end());
  }
  if (bytes != header.data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " are not whole: their tensors take ",
                                                   header.data_bytes,
                                                   " bytes of data and they hold ", bytes));
  }
  return SafetensorsReader(std::move(path), std::move(header), std::move(runs));
}

SafetensorsReader::SafetensorsReader(std::string path, SafetensorsHeader header,
                                     std::vector<Run> runs)
    : path_(std::move(path)),
      header_(std::move(header)),
      by_name_(header_.tensors.size()),
      runs_(std::move(runs)) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [this](size_t a, size_t b) {
    return header_.tensors[a].name < header_.tensors[b].name;
  });
}

std::optional<size_t> SafetensorsReader::Find(absl::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name, [this](size_t place, absl::string_view wanted) {
        return absl::string_view(header_.tensors[place].name) < wanted;
      });
  if (found == by_name_.end() || header_.tensors[*found].name != name) return std::nullopt;
  return *found;
}

absl::Status SafetensorsReader::Read(size_t tensor, int64_t offset, absl::Span<char> out) const {
  RUBATO_CHECK(tensor < header_.tensors.size());
  const int64_t bytes = header_.tensors[tensor].Bytes();
  RUBATO_CHECK(0 <= offset && offset <= bytes);
  RUBATO_CHECK(static_cast<int64_t>(out.size()) <= bytes - offset);
  int64_t begin = header_.offsets[tensor] + offset;  // in the data from `run` on
  for (const Run& run : runs_) {
    if (out.empty()) break;
    if (begin < run.bytes) {
      const auto size = std::min<int64_t>(run.bytes - begin, out.size());
      RUBATO_RETURN_IF_ERROR(run.file->Read(run.begin + begin, out.first(size)));
      out.remove_prefix(size);
      begin += size;
    }
    begin -= run.bytes;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::ReadFloats(size_t tensor, int64_t begin,
                                           absl::Span<float> out) const {
  RUBATO_CHECK(tensor < header_.tensors.size());
  const TensorInfo& info = header_.tensors[tensor];
  if (info.dtype != Dtype::kF32) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedName(info.name), " of ", path_,
                                                   " has dtype ", DtypeName(info.dtype),
                                                   "; expected F32"));
  }
  return Read(tensor, begin * sizeof(float),
              absl::MakeSpan(reinterpret_cast<char*>(out.data()), out.size() * sizeof(float)));
}

std::string TensorsDigest(absl::Span<const TensorView> tensors) {
  Sha256 sha256;
  for (size_t i :
       ByName(tensors.size(), [&](size_t i) -> const TensorInfo& { return tensors[i].info; })) {
    sha256.Update(DigestLine(tensors[i].info));
    sha256.Update(tensors[i].bytes);
  }
  return sha256.FinishHex();
}

absl::StatusOr<std::string> TensorsDigest(const SafetensorsReader& file) {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::vector<char> piece(kPieceBytes);
  Sha256 sha256;
  for (size_t i : ByName(file.tensors().size(),
                         [&](size_t i) -> const TensorInfo& { return file.tensors()[i]; })) {
    const TensorInfo& info = file.tensors()[i];
    sha256.Update(DigestLine(info));
    for (int64_t offset = 0; offset < info.Bytes(); offset += kPieceBytes) {
      const size_t size = std::min(kPieceBytes, info.Bytes() - offset);
      RUBATO_RETURN_IF_ERROR(file.Read(i, offset, absl::MakeSpan(piece.data(), size)));
      sha256.Update(absl::string_view(piece.data(), size));
    }
  }
  return sha256.FinishHex();
}

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader file, SafetensorsReader::Open(path));
  return TensorsDigest(file);
}

}  // namespace rubato
