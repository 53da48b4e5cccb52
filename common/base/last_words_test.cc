#include "common/base/last_words.h"

#include <sys/resource.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "common/base/exit_code.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

void LimitMemory() {
  const rlimit limit = {1 << 20, 1 << 20};  // less than it has
  setrlimit(RLIMIT_AS, &limit);
}

TEST(LastWordsTest, AFailedNewIsOneSentence) {
  EXPECT_EXIT(
      {
        InstallLastWords();
        LimitMemory();
        ::operator delete(::operator new(1 << 30));
      },
      testing::ExitedWithCode(kExitFailure), "^error: out of memory: [^\n]*\n$");
}

// As std::thread does where there is no memory or no number for another.
[[gnu::noinline]] void ThrowAsAThread() {
  throw std::system_error(EAGAIN, std::generic_category());
}

TEST(LastWordsTest, AThreadThatCannotBeStartedIsOneSentence) {
  EXPECT_EXIT(
      {
        InstallLastWords();
        []() noexcept { ThrowAsAThread(); }();
      },
      testing::ExitedWithCode(kExitFailure),
      "^error: the system refuses what this process needs: Resource temporarily "
      "unavailable[^\n]*\n$");
}

}  // namespace
}  // namespace rubato
