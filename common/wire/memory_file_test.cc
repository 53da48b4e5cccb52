#include "common/wire/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

}  // namespace
}  // namespace rubato
