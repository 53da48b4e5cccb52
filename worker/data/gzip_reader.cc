#include "worker/data/gzip_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status.h"

namespace rubato {

absl::StatusOr<GzipReader> GzipReader::Open(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  gzbuffer(file, 128 << 10);
  return GzipReader(path, file);
}

GzipReader::GzipReader(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}

absl::Status GzipReader::Append(size_t bytes, std::vector<uint8_t>* out) {
  return AppendTo(bytes, out);
}

absl::Status GzipReader::Append(size_t bytes, std::string* out) { return AppendTo(bytes, out); }

template <typename Bytes>
absl::Status GzipReader::AppendTo(size_t bytes, Bytes* out) {
  // In growing pieces, so that memory grows with what is there and not with what a header
  // announces.
  constexpr size_t kSmallest = 64 << 10, kLargest = 4 << 20;
  while (bytes > 0) {
    const size_t before = out->size();
    const size_t piece = std::min(bytes, std::clamp(before, kSmallest, kLargest));
    out->resize(before + piece);
    const int got = gzread(file_.get(), out->data() + before, static_cast<unsigned>(piece));
    out->resize(before + std::max(got, 0));
    if (got < static_cast<int>(piece)) return AtEnd();
    bytes -= piece;
  }
  return absl::OkStatus();
}

absl::Status GzipReader::AtEnd() const {
  int error = Z_OK;
  const char* message = gzerror(file_.get(), &error);
  if (error == Z_ERRNO) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be read"));
  }
  if (error == Z_BUF_ERROR) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": is cut off: its gzip data has no end"));
  }
  if (error != Z_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": has damaged gzip data (", message, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  }
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a folder, expected a file"));
  }
  RUBATO_ASSIGN_OR_RETURN(GzipReader reader, GzipReader::Open(path));
  std::string text;
  RUBATO_RETURN_IF_ERROR(reader.Append(std::numeric_limits<size_t>::max(), &text));
  if (text.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": is empty, expected data"));
  return text;
}

absl::StatusOr<std::string> ReadWholeText(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(std::string text, ReadWhole(path));
  if (absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found text in UTF-16, expected UTF-8 (iconv -f UTF-16 -t UTF-8)"));
  }
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.erase(0, 3);
  return text;
}

absl::StatusOr<std::string> ReadWholeLines(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(std::string text, ReadWholeText(path));
  if (absl::StrContains(text, '\r') && !absl::StrContains(text, '\n')) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": found lines that end by CR alone, expected LF or CRLF (tr '\\r' '\\n')"));
  }
  if (const size_t length = Utf8Prefix(text); length < text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", 1 + std::count(text.begin(), text.begin() + length, '\n'),
                     ": found the byte 0x", absl::BytesToHexString(text.substr(length, 1)),
                     ", expected text in UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)"));
  }
  return text;
}

}  // namespace rubato
