// Files that a test writes and then reads through the code under test.
#ifndef RUBATO_WORKER_DATA_TEST_FILES_H_
#define RUBATO_WORKER_DATA_TEST_FILES_H_

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace rubato {

// A folder of its own for each process.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : folder_(absl::StrCat(::testing::TempDir(), "/", name, ".", getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TestFolder() { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  std::string WriteGzip(const std::string& name, const std::string& bytes) const {
    gzFile file = gzopen(Path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), bytes.size()), static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return Path(name);
  }

 private:
  const std::string folder_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_TEST_FILES_H_
