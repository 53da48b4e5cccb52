#include "common/base/printable.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(PrintableTest, LeavesTextAsItIs) {
  for (const char* text : {"", "worker 1 (host pid 7)", "a\\b\"c'", "Grüße, 世界 🎉", "\u00a0é"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

// A terminal would clear its screen, change its title, or show other than what is there.
TEST(PrintableTest, CommandsTerminalsNothing) {
  EXPECT_EQ(Printable("\x1b[2J\x07"), "\\x1b[2J\\x07");
  EXPECT_EQ(Printable("one\ntwo\r\t\x7f"), "one\\x0atwo\\x0d\\x09\\x7f");
  EXPECT_EQ(Printable("\u009b31m"), "\\xc2\\x9b31m");  // CSI in eight bits
  EXPECT_EQ(Printable("\u202e"), "\\xe2\\x80\\xae");   // from right to left
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
}

TEST(PrintableTest, BytesThatAreNoUtf8AreShownAsSuch) {
  EXPECT_EQ(Printable("\x9b"), "\\x9b");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                    // cut off
  EXPECT_EQ(Printable("\xc3x"), "\\xc3x");                  // not followed
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a");           // a newline, longer than need be
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

}  // namespace
}  // namespace rubato
