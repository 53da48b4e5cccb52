#include "common/wire/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// A file that can have no seals answers -1, in which every bit is set.
TEST(HasSealsTest, OnlyOfFilesThatHaveThemAll) {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_FALSE(HasSeals(file, F_SEAL_SHRINK));
  close(file);
  const int sealed = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(HasSeals(sealed, F_SEAL_SHRINK));
  EXPECT_FALSE(HasSeals(sealed, F_SEAL_SHRINK | F_SEAL_SEAL));
  close(sealed);
}

// Root's processes may open what is any user's: they are not to map it.
TEST(OpenMemoryFileTest, OnlyOfTheSameUser) {
  const int file = memfd_create("mine", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  const std::string path = DescriptorPath(getpid(), file);
  const absl::StatusOr<int> opened = OpenMemoryFile(path, "mine", O_RDWR, 0);
  ASSERT_THAT(opened, IsOk());
  close(*opened);
  if (fchown(file, 4711, 4711) != 0) GTEST_SKIP() << "only root can give a file away";
  EXPECT_THAT(OpenMemoryFile(path, "mine", O_RDWR, 0),
              IsError(absl::StatusCode::kUnavailable, testing::HasSubstr("another user's")));
  close(file);
}

}  // namespace
}  // namespace rubato
