#include "common/wire/shared_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// What happens while memory is reserved, and what comes of it.
std::function<int()>* while_reserving = nullptr;

}  // namespace
}  // namespace rubato

// In place of the C library's.
extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) {
  if (rubato::while_reserving != nullptr) {
    if (const int error = (*rubato::while_reserving)(); error != 0) return error;
  }
  return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 100000;

absl::Span<const char> BytesOf(const std::shared_ptr<char>& piece) { return {piece.get(), kBytes}; }

std::shared_ptr<SharedArena> NewArena() {
  auto arena = SharedArena::Create();
  RUBATO_EXPECT_OK(arena);
  return *std::move(arena);
}

std::shared_ptr<SharedArenaView> ViewOf(const SharedArena& arena) {
  auto view = SharedArenaView::Open(arena.Offer());
  RUBATO_EXPECT_OK(view);
  return *std::move(view);
}

// More than one slab, so that the arena grows while it is being viewed.
TEST(SharedArena, AViewReadsWhatIsWrittenLater) {
  const auto arena = NewArena();
  const auto view = ViewOf(*arena);
  std::vector<std::shared_ptr<char>> pieces;
  for (int i = 0; i < 1000; ++i) {
    pieces.push_back(arena->Allocate(kBytes));
    ASSERT_NE(pieces.back(), nullptr);
    std::memset(pieces.back().get(), i, kBytes);
  }
  for (int i = 0; i < 1000; ++i) {
    const auto offset = arena->Find(BytesOf(pieces[i]));
    ASSERT_TRUE(offset.has_value());
    EXPECT_EQ(*offset % kSharedPage, 0u);
    const char* seen = view->At(*offset, kBytes);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(std::string(seen, kBytes), std::string(kBytes, static_cast<char>(i)));
  }
  pieces[7].get()[kBytes - 1] = 'x';
  EXPECT_EQ(view->At(*arena->Find(BytesOf(pieces[7])), kBytes)[kBytes - 1], 'x');
}

TEST(SharedArena, KeepsWhatIsLargerThanASlabInOnePiece) {
  const auto arena = NewArena();
  const auto view = ViewOf(*arena);
  constexpr size_t kLarge = 150 << 20;
  const auto piece = arena->Allocate(kLarge);
  ASSERT_NE(piece, nullptr);
  for (size_t at = 0; at + 8 <= kLarge; at += 1 << 20) {
    std::memcpy(piece.get() + at, &at, 8);
    const char* seen = view->At(*arena->Find({piece.get() + at, 8}), 8);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(std::memcmp(seen, &at, 8), 0);
  }
}

TEST(SharedArena, GivesWhatNobodyHasAnyMoreToTheNext) {
  const auto arena = NewArena();
  auto piece = arena->Allocate(kBytes);
  const auto other = arena->Allocate(kBytes);
  char* const place = piece.get();
  piece = nullptr;
  EXPECT_NE(arena->Allocate(2 * kBytes).get(), place);
  EXPECT_EQ(arena->Allocate(kBytes).get(), place);
}

// Gigabytes take seconds.
TEST(SharedArena, WhileMemoryIsReservedOthersUseTheArena) {
  const auto arena = NewArena();
  const auto piece = arena->Allocate(kBytes);
  auto free = arena->Allocate(2 * kBytes);
  free = nullptr;
  std::function<int()> use = [&] {
    std::thread([&] {
      EXPECT_TRUE(arena->Find(BytesOf(piece)).has_value());
      free = arena->Allocate(2 * kBytes);
    }).join();
    return 0;
  };
  while_reserving = &use;
  const auto other = arena->Allocate(kBytes);
  while_reserving = nullptr;
  ASSERT_NE(other, nullptr);
  ASSERT_NE(free, nullptr);
  EXPECT_NE(arena->Find(BytesOf(other)), arena->Find(BytesOf(free)));
}

TEST(SharedArena, APieceThatGetsNoMemoryIsNotGiven) {
  const auto arena = NewArena();
  std::function<int()> fail = [] { return ENOSPC; };
  while_reserving = &fail;
  EXPECT_EQ(arena->Allocate(kBytes), nullptr);
  while_reserving = nullptr;
  const auto piece = arena->Allocate(kBytes);
  ASSERT_NE(piece, nullptr);
  std::memset(piece.get(), 1, kBytes);
}

TEST(SharedArena, FindsOnlyItsOwn) {
  const auto arena = NewArena(), other = NewArena();
  const std::vector<char> heap(kBytes);
  EXPECT_EQ(arena->Find(heap), std::nullopt);
  EXPECT_EQ(arena->Find(BytesOf(other->Allocate(kBytes))), std::nullopt);
}

TEST(SharedArenaView, GivesOnlyWhatTheArenaHolds) {
  const auto arena = NewArena();
  const auto view = ViewOf(*arena);
  constexpr uint64_t kSize = 64 << 20;
  EXPECT_NE(view->At(kSize - 10, 10), nullptr);
  EXPECT_EQ(view->At(kSize - 10, 11), nullptr);
  EXPECT_EQ(view->At(~uint64_t{0}, 1), nullptr);
  EXPECT_EQ(view->At(~uint64_t{0} - 5, 10), nullptr);
  EXPECT_EQ(view->At(0, kMaxLent + 1), nullptr);
}

// Bytes that this process holds of shared memory.
size_t SharedResident() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("RssShmem:", 0) == 0) return std::stoul(line.substr(9)) * 1024;
  }
  ADD_FAILURE() << "no RssShmem";
  return 0;
}

TEST(SharedArenaView, HoldsLittleOfWhatItHasRead) {
  const auto arena = NewArena();
  const auto view = ViewOf(*arena);
  constexpr size_t kPiece = 1 << 20, kPieces = 50;
  std::vector<std::shared_ptr<char>> pieces;
  for (size_t i = 0; i < kPieces; ++i) {
    pieces.push_back(arena->Allocate(kPiece));
    std::memset(pieces.back().get(), static_cast<int>(i), kPiece);
  }
  const size_t before = SharedResident();
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kPieces; ++i) {
      const char* seen = view->At(*arena->Find({pieces[i].get(), kPiece}), kPiece);
      ASSERT_NE(seen, nullptr);
      for (size_t at = 0; at < kPiece; at += 512) ASSERT_EQ(seen[at], static_cast<char>(i));
    }
  }
  EXPECT_GE(SharedResident() - before, kPiece);
  // The kernel counts a little late.
  EXPECT_LE(SharedResident() - before, SharedArenaView::kMaxResident + (1 << 20));
}

TEST(SharedArenaView, MapsWhatIsLentOverTheCallersMemory) {
  const auto arena = NewArena();
  const auto view = ViewOf(*arena);
  const auto piece = arena->Allocate(kSharedPage);
  piece.get()[5] = 'a';
  void* place =
      mmap(nullptr, 2 * kSharedPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  char* const own = static_cast<char*>(place);
  own[kSharedPage] = 'b';
  ASSERT_TRUE(view->MapTo(own, *arena->Find({piece.get(), kSharedPage}), kSharedPage));
  EXPECT_EQ(own[5], 'a');
  piece.get()[5] = 'c';
  EXPECT_EQ(own[5], 'c');
  EXPECT_EQ(own[kSharedPage], 'b');
  munmap(place, 2 * kSharedPage);
}

TEST(SharedArenaView, OutlivesTheArena) {
  auto arena = NewArena();
  const auto view = ViewOf(*arena);
  auto piece = arena->Allocate(kBytes);
  piece.get()[1] = 'z';
  const uint64_t offset = *arena->Find(BytesOf(piece));
  piece = nullptr;
  arena = nullptr;
  EXPECT_EQ(view->At(offset, kBytes)[1], 'z');
}

TEST(SharedArenaView, OpensNothingElse) {
  const auto arena = NewArena();
  const auto expect = [](const std::string& offer, const char* why) {
    EXPECT_THAT(SharedArenaView::Open(offer),
                IsError(absl::StatusCode::kUnavailable, HasSubstr(why)));
  };
  expect("", "not understood");
  expect("1 2", "not understood");
  const std::string offer = arena->Offer();
  expect(offer.substr(0, offer.rfind(' ')) + " 5", "of another process");  // it has another number
  expect(absl::StrCat(getpid(), " 0 1"), "of another process");
  expect(absl::StrCat(getpid(), " 99999 1"), "/fd/99999");
  const int fd = memfd_create("lent-rubato", 0);  // could shrink
  expect(absl::StrCat(getpid(), " ", fd, " 1"), "not what was offered");
  close(fd);
  // Less addresses than a view reserves.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlim_t pages = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages);
  const rlimit little = {pages * 4096 + (rlim_t{16} << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const auto view = SharedArenaView::Open(offer);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_THAT(view, IsError(absl::StatusCode::kUnavailable, HasSubstr("cannot be mapped")));
}

}  // namespace
}  // namespace rubato
