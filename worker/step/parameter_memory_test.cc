#include "worker/step/parameter_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/wire/arena_space.h"
#include "common/wire/shared_arena.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Each;

constexpr int64_t kBlock = kSharedPage / sizeof(float), kLast = 100;

// Two whole blocks and a part of one, lent by an arena or brought along.
class ParameterMemoryTest : public ::testing::Test {
 protected:
  ParameterMemoryTest() : memory_(FlatSpace(2 * kBlock + kLast, kBlock)) {
    auto arena = SharedArena::Create();
    RUBATO_EXPECT_OK(arena);
    arena_ = *std::move(arena);
    auto view = SharedArenaView::Open(arena_->Offer());
    RUBATO_EXPECT_OK(view);
    view_ = *std::move(view);
  }

  static int64_t SizeOf(int64_t block) { return block < 2 ? kBlock : kLast; }

  // Of a block as it lies at the server.
  absl::Span<float> Place(int64_t block, float value) {
    pieces_.push_back(arena_->Allocate(kSharedPage));
    const absl::Span<float> floats(reinterpret_cast<float*>(pieces_.back().get()), SizeOf(block));
    std::fill(floats.begin(), floats.end(), value);
    return floats;
  }
  // Fills the block in with what lies there, and returns what tells when it is given back.
  std::weak_ptr<const void> Lend(int64_t block, absl::Span<const float> floats,
                                 bool may_borrow = true) {
    const char* const bytes = reinterpret_cast<const char*>(floats.data());
    ReceivedValues values(floats);
    auto loan = std::make_shared<int>(0);
    std::weak_ptr<const void> watch = loan;
    values.SetLent({view_, *arena_->Find({bytes, kSharedPage}), std::move(loan)});
    memory_.Fill(block, values, may_borrow);
    return watch;
  }
  absl::Span<const float> ValuesOf(int64_t block) const {
    return memory_.values().subspan(block * kBlock, SizeOf(block));
  }

  ParameterMemory memory_;
  std::shared_ptr<SharedArena> arena_;
  std::shared_ptr<SharedArenaView> view_;
  std::vector<std::shared_ptr<char>> pieces_;
};

TEST_F(ParameterMemoryTest, CopiesWhatIsNotLent) {
  memory_.Begin(1);
  std::vector<float> values(kBlock, 3);
  memory_.Fill(0, absl::MakeConstSpan(values), true);
  values.assign(kBlock, 4);
  EXPECT_THAT(ValuesOf(0), Each(3.0f));
}

TEST_F(ParameterMemoryTest, ReadsWhatIsLentWhereItLiesUntilTheNextPull) {
  memory_.Begin(1);
  const absl::Span<float> there = Place(2, 5);
  const auto loan = Lend(2, there);
  EXPECT_THAT(ValuesOf(2), Each(5.0f));
  EXPECT_FALSE(loan.expired());
  std::fill(there.begin(), there.end(), 6.0f);  // what an honest server does only after the loan
  EXPECT_THAT(ValuesOf(2), Each(6.0f));
  memory_.Begin(2);
  EXPECT_TRUE(loan.expired());
}

TEST_F(ParameterMemoryTest, CopiesWhatIsLentIfItMayNotBorrow) {
  memory_.Begin(1);
  const absl::Span<float> there = Place(0, 5);
  EXPECT_TRUE(Lend(0, there, /*may_borrow=*/false).expired());
  std::fill(there.begin(), there.end(), 6.0f);
  EXPECT_THAT(ValuesOf(0), Each(5.0f));
}

// A device reads it by itself: what it has pinned stays where it is.
TEST(PinnedParameterMemory, IsCopiedToWhatIsLentOrNotAndUnpinnedBeforeItGoes) {
  auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  auto view = SharedArenaView::Open((*arena)->Offer());
  RUBATO_ASSERT_OK(view);
  const std::shared_ptr<char> piece = (*arena)->Allocate(kSharedPage);
  const absl::Span<float> there(reinterpret_cast<float*>(piece.get()), kBlock);
  std::fill(there.begin(), there.end(), 5.0f);
  const float* pinned = nullptr;
  int64_t bytes = 0;
  float last_seen = 0;
  {
    ParameterMemory memory(FlatSpace(2 * kBlock + kLast, kBlock), [&](void* begin, int64_t size) {
      pinned = static_cast<const float*>(begin);
      bytes = size;
      return std::shared_ptr<const void>(begin, [&](const void*) { last_seen = pinned[0]; });
    });
    EXPECT_EQ(bytes, 3 * static_cast<int64_t>(kSharedPage));
    for (const int64_t version : {1, 2}) {
      memory.Begin(version);
      EXPECT_EQ(memory.values().data(), pinned);
      ReceivedValues values((absl::MakeConstSpan(there)));
      values.SetLent(
          {*view, *(*arena)->Find({piece.get(), kSharedPage}), std::make_shared<int>(0)});
      memory.Fill(0, values, /*may_borrow=*/true);
      std::fill(there.begin(), there.end(), 6.0f);
      EXPECT_THAT(memory.values().first(kBlock), Each(version == 1 ? 5.0f : 6.0f));
    }
  }
  EXPECT_EQ(last_seen, 6.0f);
}

// Blocks in any places, borrowed and copied as it happens, against a plain vector.
TEST_F(ParameterMemoryTest, BorrowedAndCopiedBlocksMakeOneVector) {
  for (int version = 1; version <= 40; ++version) {
    memory_.Begin(version % 7 == 0 ? version + 1 : version);
    for (int64_t block = 0; block < 3; ++block) {
      const float value = static_cast<float>(10 * version + block);
      const int way = (version * 5 + static_cast<int>(block) * 3) % 4;
      if (way == 0) {
        const std::vector<float> values(SizeOf(block), value);
        memory_.Fill(block, absl::MakeConstSpan(values), true);
      } else if (way == 1 && pieces_.size() > 20) {  // a place where others have been
        const absl::Span<float> there(
            reinterpret_cast<float*>(pieces_[static_cast<size_t>(version % 5 + 5 * block)].get()),
            SizeOf(block));
        std::fill(there.begin(), there.end(), value);
        Lend(block, there);
      } else {
        Lend(block, Place(block, value), way != 2);
      }
    }
    for (int64_t block = 0; block < 3; ++block) {
      ASSERT_THAT(ValuesOf(block), Each(static_cast<float>(10 * version + block)));
    }
  }
}

TEST(ParameterMemory, CopiesBlocksThatAreNoWholePages) {
  ParameterMemory memory(FlatSpace(3000, 1500));
  auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  auto view = SharedArenaView::Open((*arena)->Offer());
  RUBATO_ASSERT_OK(view);
  const auto piece = (*arena)->Allocate(1500 * sizeof(float));
  const absl::Span<float> floats(reinterpret_cast<float*>(piece.get()), 1500);
  memory.Begin(1);
  for (int64_t block = 0; block < 2; ++block) {
    std::fill(floats.begin(), floats.end(), static_cast<float>(block + 1));
    ReceivedValues values{absl::Span<const float>(floats)};
    values.SetLent({*view, *(*arena)->Find({piece.get(), 6000}), std::make_shared<int>(0)});
    memory.Fill(block, values, true);
  }
  EXPECT_THAT(memory.values().first(1500), Each(1.0f));
  EXPECT_THAT(memory.values().subspan(1500), Each(2.0f));
}

// Of a reader that gives its memory where `gives` says so.
class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest()
      : reads_(static_cast<size_t>(kBlocks * kBlock), -1.0f),
        memory_(FlatSpace(kBlocks * kBlock, kBlock), nullptr, [this] {
          ++asked_;
          return gives_ ? absl::MakeSpan(reads_) : absl::Span<float>();
        }) {}

  void Fill(int64_t block, float value) {
    const std::vector<float> values(kBlock, value);
    memory_.Fill(block, absl::MakeConstSpan(values), true);
  }

  static constexpr int64_t kBlocks = 8;
  std::vector<float> reads_;
  bool gives_ = true;
  std::atomic<int> asked_{0};
  ParameterMemory memory_;
};

TEST_F(ReaderTest, FillsTheReadersMemoryOrItsOwnAndNeverBothInOnePull) {
  for (const bool gives : {true, false, true}) {
    gives_ = gives;
    std::fill(reads_.begin(), reads_.end(), -1.0f);
    memory_.Begin(1);
    asked_ = 0;
    for (int64_t block = 0; block < kBlocks; ++block) {
      Fill(block, 5);
      gives_ = !gives;  // it changes its mind
    }
    EXPECT_EQ(asked_, 1);
    EXPECT_THAT(memory_.values(), Each(5.0f));
    EXPECT_EQ(memory_.values().data() == reads_.data(), gives);
    EXPECT_THAT(reads_, Each(gives ? 5.0f : -1.0f));
  }
}

TEST_F(ReaderTest, IsAskedOnceByThreadsThatBringBlocksTogether) {
  for (int version = 1; version <= 100; ++version) {
    gives_ = version % 2 == 0;
    memory_.Begin(version);
    asked_ = 0;
    std::vector<std::thread> threads;
    for (int64_t first = 0; first < 4; ++first) {
      threads.emplace_back([this, first, version] {
        for (int64_t block = first; block < kBlocks; block += 4) {
          Fill(block, static_cast<float>(version));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(asked_, 1);
    EXPECT_THAT(memory_.values(), Each(static_cast<float>(version)));
  }
}

TEST_F(ReaderTest, FreesItsOwnMemoryWhereTheReadersIsFilledInstead) {
  gives_ = false;
  memory_.Begin(1);
  Fill(0, 5);
  auto* const own = const_cast<float*>(memory_.values().data());
  const auto is_resident = [own] {
    unsigned char page = 0;
    EXPECT_EQ(mincore(own, kSharedPage, &page), 0);
    return (page & 1) != 0;
  };
  EXPECT_TRUE(is_resident());
  gives_ = true;
  memory_.Begin(2);
  Fill(0, 6);
  EXPECT_FALSE(is_resident());
  gives_ = false;
  memory_.Begin(3);
  Fill(0, 7);
  EXPECT_THAT(memory_.values().first(kBlock), Each(7.0f));
}

TEST_F(ParameterMemoryTest, WhatTheReaderHasIsNotBorrowed) {
  std::vector<float> reads(2 * kBlock + kLast);
  bool gives = false;
  ParameterMemory memory(FlatSpace(2 * kBlock + kLast, kBlock), nullptr,
                         [&] { return gives ? absl::MakeSpan(reads) : absl::Span<float>(); });
  for (const bool borrows : {true, false, true}) {
    gives = !borrows;
    memory.Begin(1);
    const absl::Span<float> there = Place(0, 5);
    ReceivedValues values(there);
    auto loan = std::make_shared<int>(0);
    const std::weak_ptr<const void> watch = loan;
    values.SetLent({view_,
                    *arena_->Find({reinterpret_cast<const char*>(there.data()), kSharedPage}),
                    std::move(loan)});
    memory.Fill(0, values, /*may_borrow=*/true);
    values = {};
    EXPECT_EQ(watch.expired(), !borrows);
    std::fill(there.begin(), there.end(), 6.0f);
    EXPECT_THAT(memory.values().first(kBlock), Each(borrows ? 6.0f : 5.0f));
  }
}

// Each place may take one of the mappings that the system allows a process.
TEST(ParameterMemoryLimitTest, BorrowsSomeThousandPlacesAndCopiesTheRest) {
  constexpr int64_t kBlocks = 16100;
  auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  const std::shared_ptr<char> piece = (*arena)->Allocate(kSharedPage);
  const absl::Span<float> floats(reinterpret_cast<float*>(piece.get()), kBlock);
  std::fill(floats.begin(), floats.end(), 7.0f);
  auto view = SharedArenaView::Open((*arena)->Offer());
  RUBATO_ASSERT_OK(view);
  ParameterMemory memory(FlatSpace(kBlocks * kBlock, kBlock));
  // Of the third version, in the other vector, none: the places of the first stay as they are.
  const std::vector<std::pair<int64_t, int>> borrowed = {{1, 16000}, {2, 16000}, {3, 0}};
  for (const auto& [version, expected] : borrowed) {
    memory.Begin(version);
    std::vector<std::weak_ptr<const void>> loans;
    for (int64_t block = 0; block < kBlocks; ++block) {
      ReceivedValues values(floats);
      auto loan = std::make_shared<int>(0);
      loans.push_back(loan);
      values.SetLent({*view, *(*arena)->Find({piece.get(), kSharedPage}), std::move(loan)});
      memory.Fill(block, values, true);
    }
    EXPECT_EQ(
        std::count_if(loans.begin(), loans.end(), [](const auto& loan) { return !loan.expired(); }),
        expected);
    EXPECT_TRUE(std::all_of(memory.values().begin(), memory.values().end(),
                            [](float value) { return value == 7.0f; }));
  }
}

}  // namespace
}  // namespace rubato
