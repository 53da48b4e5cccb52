#include "tools/command/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/base/log.h"
#include "common/base/status_matchers.h"
#include "common/files/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

TEST(LogFileTest, OneThatIsTooLargeBeginsAnewUnderItsWriter) {
  const std::string path = testing::TempDir() + "/worker-0.log";
  RUBATO_EXPECT_OK(CutLog(path, 10));  // there is none yet
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  for (const char* line : {"0123456789\n", "again this\n"}) {
    ASSERT_TRUE(WriteAll(fd, line));
    RUBATO_EXPECT_OK(CutLog(path, 11));  // it is no larger
    EXPECT_EQ(*ReadSmallFile(path), line);
    RUBATO_EXPECT_OK(CutLog(path, 10));
    EXPECT_EQ(*ReadSmallFile(path), "");
    EXPECT_EQ(*ReadSmallFile(path + ".1"), line);
  }
  close(fd);
}

TEST(LogFileTest, OneThatCannotBeKeptStaysAsItIs) {
  const std::string path = testing::TempDir() + "/worker-1.log";
  RUBATO_ASSERT_OK(WriteFileAtomically(path, "0123456789\n"));
  ASSERT_EQ(mkdir((path + ".1").c_str(), 0777), 0);  // cannot be replaced by a file
  EXPECT_THAT(CutLog(path, 10).message(), HasSubstr(path));
  EXPECT_EQ(*ReadSmallFile(path), "0123456789\n");
}

}  // namespace
}  // namespace rubato
