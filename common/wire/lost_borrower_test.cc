// Loans of memory to a process that dies, is frozen, or ends its link in the midst, and does not
// give them back: two real processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/status_matchers.h"
#include "common/wire/shared_link.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr size_t kRing = 64 << 10;
constexpr size_t kUnbounded = ~size_t{0};
constexpr uint64_t kBlocks = 20;
constexpr uint64_t kRead = 6;  // then the borrower's fate comes; it keeps every second loan
constexpr size_t kValues = 20000;

enum class Fate { kDies, kFreezes, kEnds };

void Tell(int fd, char what) {
  if (write(fd, &what, 1) != 1) _exit(3);
}
void Await(int fd) {
  char what;
  if (read(fd, &what, 1) != 1) _exit(4);
}

// The other process: tells of each frame, and after kRead of them waits for what becomes of it.
[[noreturn]] void Borrow(const std::string& offer, Fate fate, int tell, int hear) {
  auto segment = SharedSegment::Open(offer, kRing);
  if (!segment.ok()) _exit(2);
  std::vector<LentValues> kept;
  uint64_t seen = 0;
  absl::Notification ended;
  SharedLink::Callbacks callbacks;
  callbacks.on_frame = [&](const Frame& frame, const ReceivedValues& values) {
    std::vector<float> read(values.size());
    values.CopyTo(absl::MakeSpan(read));
    // What its peer has given up it may write over.
    const bool is_right = values.lent() != nullptr && read.back() == read.front() &&
                          read.front() == static_cast<float>(frame.block);
    if (seen < kRead && !is_right) _exit(5);
    if (values.lent() != nullptr && frame.block % 2 == 0) kept.push_back(*values.lent());
    if (++seen > kRead) return absl::OkStatus();
    Tell(tell, 'f');
    if (seen < kRead) return absl::OkStatus();
    if (fate == Fate::kEnds) return absl::InternalError("has enough");
    if (fate == Fate::kDies) pause();
    return absl::OkStatus();
  };
  callbacks.on_end = [&](const absl::Status&) { ended.Notify(); };
  auto link =
      std::make_unique<SharedLink>(*std::move(segment), nullptr, kUnbounded, std::move(callbacks));
  Tell(tell, 'r');
  if (fate == Fate::kEnds) ended.WaitForNotification();
  Tell(tell, 'w');
  Await(hear);
  link.reset();
  kept.clear();  // gives back to nobody
  _exit(0);
}

class LostBorrowerTest : public ::testing::TestWithParam<Fate> {};

TEST_P(LostBorrowerTest, KeepsWhatItHasUntilTheLinkEndsAndNoLonger) {
  const Fate fate = GetParam();
  auto segment = SharedSegment::Create(kRing);
  RUBATO_ASSERT_OK(segment);
  auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  (*segment)->Lend(**arena);
  const std::string offer = (*segment)->Offer();
  std::array<int, 2> from, to;
  ASSERT_EQ(pipe(from.data()), 0);
  ASSERT_EQ(pipe(to.data()), 0);
  const pid_t child = fork();  // before this process has other threads
  if (child == 0) Borrow(offer, fate, from[1], to[0]);
  Await(from[0]);  // it can borrow

  SharedLink::Callbacks callbacks;
  callbacks.on_frame = [](const Frame&, const ReceivedValues&) { return absl::OkStatus(); };
  callbacks.on_end = [](const absl::Status&) {};
  auto link = std::make_unique<SharedLink>(*std::move(segment), *arena, kUnbounded, callbacks);
  std::array<std::atomic<int>, kBlocks> released = {};
  const auto send = [&](uint64_t block) {
    const std::shared_ptr<char> piece = (*arena)->Allocate(kValues * sizeof(float));
    const absl::Span<float> values(reinterpret_cast<float*>(piece.get()), kValues);
    std::fill(values.begin(), values.end(), static_cast<float>(block));
    const std::shared_ptr<const void> owner(
        piece.get(), [piece, count = &released[block]](const void*) { ++*count; });
    Frame frame;
    frame.block = block;
    link->Send(frame, Payload(owner, values));
  };
  for (uint64_t block = 0; block < kRead; ++block) send(block);
  for (uint64_t i = 0; i < kRead + (fate == Fate::kDies ? 0 : 1); ++i) Await(from[0]);
  if (fate == Fate::kDies) {
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  } else if (fate == Fate::kFreezes) {
    ASSERT_EQ(kill(child, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  for (uint64_t block = kRead; block < kBlocks; ++block) send(block);
  // Owners are freed in the order in which they were lent: not before the first comes back.
  for (uint64_t block = 0; block < kRead; ++block) EXPECT_EQ(released[block], 0) << block;
  link.reset();
  for (uint64_t block = 0; block < kBlocks; ++block) EXPECT_EQ(released[block], 1) << block;
  // The memory is for others, whatever the borrower does.
  const std::shared_ptr<char> piece = (*arena)->Allocate(kValues * sizeof(float));
  std::fill_n(piece.get(), kValues * sizeof(float), 'x');
  if (fate == Fate::kDies) return;
  kill(child, SIGCONT);
  Tell(to[1], 'g');
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Fates, LostBorrowerTest,
                         ::testing::Values(Fate::kDies, Fate::kFreezes, Fate::kEnds));

}  // namespace
}  // namespace rubato
