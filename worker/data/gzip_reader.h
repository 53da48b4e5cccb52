// A file's bytes, decompressed if gzip has compressed them.
#ifndef RUBATO_WORKER_DATA_GZIP_READER_H_
#define RUBATO_WORKER_DATA_GZIP_READER_H_

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rubato {

class GzipReader {
 public:
  // FailedPrecondition if it cannot be opened.
  static absl::StatusOr<GzipReader> Open(const std::string& path);

  // Appends up to `bytes` bytes to `out`; fewer only where the file ends. InvalidArgument, naming
  // the file, if its compression shows that it is damaged.
  absl::Status Append(size_t bytes, std::vector<uint8_t>* out);
  absl::Status Append(size_t bytes, std::string* out);

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  GzipReader(std::string path, gzFile file);
  template <typename Bytes>
  absl::Status AppendTo(size_t bytes, Bytes* out);
  // OK if the file is complete, as far as gzip can tell.
  absl::Status AtEnd() const;

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

// The whole of a file. NotFound if there is none; InvalidArgument if it is a folder, is empty or
// damaged.
absl::StatusOr<std::string> ReadWhole(const std::string& path);

// Likewise of a text in UTF-8, without the byte order mark that may stand before it.
// InvalidArgument for UTF-16.
absl::StatusOr<std::string> ReadWholeText(const std::string& path);
// Of a text of lines too: InvalidArgument if they end by CR alone, or are not UTF-8.
absl::StatusOr<std::string> ReadWholeLines(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_GZIP_READER_H_
