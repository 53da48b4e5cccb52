#include "common/files/record_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>
#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(RecordFileTest, GoesOnAtTheEnd) {
  const std::string path = testing::TempDir() + "/records";
  for (const char* record : {"first\n", "second\n"}) {
    absl::StatusOr<RecordFile> file = RecordFile::Open(path);
    RUBATO_ASSERT_OK(file);
    RUBATO_EXPECT_OK(file->Append(record));
  }
  EXPECT_EQ(Contents(path), "first\nsecond\n");
}

// Lines that a loss of power has left, and what may stand behind them.
TEST(RecordFileTest, ATornLastLineIsCutOff) {
  const std::string path = testing::TempDir() + "/torn";
  for (const std::string& torn :
       {std::string(), std::string("{\"ki"), std::string(5000, '\0'), std::string(4096, 'x')}) {
    for (const std::string& whole : {std::string(), std::string("first\n")}) {
      std::ofstream(path, std::ios::binary) << whole << torn;
      absl::StatusOr<RecordFile> file = RecordFile::OpenLines(path);
      RUBATO_ASSERT_OK(file);
      RUBATO_EXPECT_OK(file->Append("next\n"));
      EXPECT_EQ(Contents(path), whole + "next\n");
    }
  }
}

TEST(RecordFileTest, PiecesMakeOneRecord) {
  const std::string path = testing::TempDir() + "/pieces";
  absl::StatusOr<RecordFile> file = RecordFile::Open(path);
  RUBATO_ASSERT_OK(file);
  RUBATO_EXPECT_OK(file->Append({"one, ", "", "two\n"}));
  EXPECT_EQ(Contents(path), "one, two\n");
}

// A limit on the size of files takes part of a record, as a full disk may.
TEST(RecordFileTest, ARecordThatDoesNotFitIsCutOffAgain) {
  const std::string path = testing::TempDir() + "/limited";
  absl::StatusOr<RecordFile> file = RecordFile::Open(path);
  RUBATO_ASSERT_OK(file);
  signal(SIGXFSZ, SIG_IGN);
  rlimit previous;
  getrlimit(RLIMIT_FSIZE, &previous);
  const rlimit limit = {20, previous.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status first = file->Append("0123456789\n");
  const absl::Status too_long = file->Append("abcdefghijklmnopqrst\n");
  const absl::Status short_enough = file->Append("0123\n");
  setrlimit(RLIMIT_FSIZE, &previous);
  RUBATO_EXPECT_OK(first);
  EXPECT_FALSE(too_long.ok());
  EXPECT_THAT(std::string(too_long.message()), HasSubstr("cannot write " + path));
  RUBATO_EXPECT_OK(short_enough);
  EXPECT_EQ(Contents(path), "0123456789\n0123\n");
}

TEST(RecordFileTest, OneThatHasBecomeTooLargeIsRenamedAndANewOneBegun) {
  const std::string path = testing::TempDir() + "/rotated";
  absl::StatusOr<RecordFile> file = RecordFile::Open(path, /*max_bytes=*/10);
  RUBATO_ASSERT_OK(file);
  for (const char* record :
       {"one\n", "two\n", "three\n", "four\n", "longer than ten\n", "five\n"}) {
    RUBATO_EXPECT_OK(file->Append(record));
    // Together they are all that was written last, without a gap.
    EXPECT_THAT(Contents(path), testing::EndsWith(record));
  }
  EXPECT_EQ(Contents(path + ".1"), "longer than ten\n");
  EXPECT_EQ(Contents(path), "five\n");
}

TEST(RecordFileTest, ErrorsNameTheFile) {
  EXPECT_THAT(RecordFile::Open("/nowhere/x").status(),
              IsError(absl::StatusCode::kNotFound, HasSubstr("cannot write /nowhere/x")));
  absl::StatusOr<RecordFile> full = RecordFile::Open("/dev/full");
  RUBATO_ASSERT_OK(full);
  EXPECT_THAT(full->Append("x"),
              IsError(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/full")));
}

}  // namespace
}  // namespace rubato
