#include "common/wire/arena_space.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr uint64_t kSlab = ArenaSpace::kSlab;

// Finds a piece and takes it.
ArenaSpace::Piece Take(uint64_t bytes, ArenaSpace* space) {
  const ArenaSpace::Piece piece = space->Find(bytes);
  if (piece.slab_bytes > 0) space->Grow(piece.slab_bytes);
  space->Take(piece);
  return piece;
}

TEST(ArenaSpaceTest, PiecesAreWholePagesOneBehindTheOther) {
  ArenaSpace space;
  const ArenaSpace::Piece first = Take(1, &space);
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.bytes, kSharedPage);
  EXPECT_EQ(first.slab_bytes, kSlab);
  EXPECT_EQ(Take(kSharedPage + 1, &space).offset, kSharedPage);
  const ArenaSpace::Piece third = Take(0, &space);
  EXPECT_EQ(third.offset, 3 * kSharedPage);
  EXPECT_EQ(third.slab_bytes, 0u);
}

TEST(ArenaSpaceTest, NoPieceCrossesASlab) {
  ArenaSpace space;
  Take(kSlab - kSharedPage, &space);
  const ArenaSpace::Piece piece = Take(2 * kSharedPage, &space);
  EXPECT_EQ(piece.offset, kSlab);
  EXPECT_EQ(piece.slab_bytes, kSlab);
  const ArenaSpace::Piece large = Take(kSlab + 1, &space);
  EXPECT_EQ(large.offset, 2 * kSlab);
  EXPECT_EQ(large.slab_bytes, 2 * kSlab);
}

TEST(ArenaSpaceTest, WhatIsGivenBackIsForTheNextThatIsAsLarge) {
  ArenaSpace space;
  const ArenaSpace::Piece first = Take(kSharedPage, &space);
  Take(kSharedPage, &space);
  space.GiveBack(first);
  EXPECT_NE(space.Find(2 * kSharedPage).offset, first.offset);
  const ArenaSpace::Piece again = Take(100, &space);
  EXPECT_EQ(again.offset, first.offset);
  EXPECT_TRUE(again.is_reserved);
  EXPECT_NE(space.Find(100).offset, first.offset);
}

// There was no memory for it.
TEST(ArenaSpaceTest, WhatIsFoundAndNotTakenIsFoundAgain) {
  ArenaSpace space;
  const ArenaSpace::Piece piece = space.Find(kSharedPage);
  space.Grow(piece.slab_bytes);
  const ArenaSpace::Piece again = space.Find(kSharedPage);
  EXPECT_EQ(again.offset, piece.offset);
  EXPECT_EQ(again.slab_bytes, 0u);
}

TEST(ResidentBytesTest, DropsAllWhenItWouldBeTooMuch) {
  ResidentBytes resident(100);
  EXPECT_FALSE(resident.MustDropFor(0, 60));
  EXPECT_FALSE(resident.MustDropFor(0, 50));  // it is there
  EXPECT_FALSE(resident.MustDropFor(1000, 40));
  EXPECT_TRUE(resident.MustDropFor(0, 61));
  EXPECT_FALSE(resident.MustDropFor(1000, 39));
  EXPECT_TRUE(resident.MustDropFor(1000, 40));
}

}  // namespace
}  // namespace rubato
