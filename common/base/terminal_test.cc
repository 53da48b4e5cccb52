#include "common/base/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(TerminalTest, ColorsOnlyOnATerminalAndIfWanted) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(master, 0);
  ASSERT_EQ(grantpt(master), 0);
  ASSERT_EQ(unlockpt(master), 0);
  const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);

  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(IsTerminal(terminal));
  EXPECT_TRUE(UsesColor(terminal));
  EXPECT_FALSE(IsTerminal(pipe_ends[1]));
  EXPECT_FALSE(UsesColor(pipe_ends[1]));
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(UsesColor(terminal));
  setenv("NO_COLOR", "0", 1);  // any value, as no-color.org has it
  EXPECT_FALSE(UsesColor(terminal));
  EXPECT_TRUE(IsTerminal(terminal));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(UsesColor(terminal));
}

}  // namespace
}  // namespace rubato
