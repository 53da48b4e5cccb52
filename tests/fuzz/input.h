// The bytes of a fuzz target's input, taken from the front; at the end all are 0.
#ifndef RUBATO_TESTS_FUZZ_INPUT_H_
#define RUBATO_TESTS_FUZZ_INPUT_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rubato {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  // A small number, or one of those at which arithmetic breaks.
  uint64_t Number() {
    constexpr uint64_t kEdges[] = {uint64_t{1} << 16, uint64_t{1} << 31, (uint64_t{1} << 32) - 1,
                                   uint64_t{1} << 40, uint64_t{1} << 48, (uint64_t{1} << 63) - 1,
                                   uint64_t{1} << 63, ~uint64_t{0}};
    const uint8_t byte = Byte();
    return byte < 248 ? byte : kEdges[byte - 248];
  }
  absl::string_view Bytes(size_t size) {
    const absl::string_view bytes = rest_.substr(0, std::min(size, rest_.size()));
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  absl::string_view Rest() { return Bytes(rest_.size()); }

 private:
  absl::string_view rest_;
};

// A folder of this process for targets that read files, in memory where there is some.
inline const std::string& FuzzFolder() {
  static const std::string& folder = *new std::string([] {
    const char* const given = std::getenv("TEST_TMPDIR");
    std::error_code error;
    const std::string parent = given != nullptr                                   ? given
                               : std::filesystem::is_directory("/dev/shm", error) ? "/dev/shm"
                                                                                  : "/tmp";
    const std::string path = absl::StrCat(parent, "/rubato_fuzz_", getpid());
    std::filesystem::create_directories(path);
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(FuzzFolder(), ignored);
    });
    return path;
  }());
  return folder;
}

inline std::string FuzzFile(absl::string_view name, absl::string_view bytes) {
  const std::string path = absl::StrCat(FuzzFolder(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace rubato

#endif  // RUBATO_TESTS_FUZZ_INPUT_H_
