#include "common/wire/shared_segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRing = 64 << 10;

TEST(SharedSegmentTest, WhatOneEndWritesTheOtherReads) {
  const auto created = SharedSegment::Create(kRing);
  RUBATO_ASSERT_OK(created);
  const auto opened = SharedSegment::Open((*created)->Offer(), kRing);
  RUBATO_ASSERT_OK(opened);
  EXPECT_EQ((*created)->end(), 0);
  EXPECT_EQ((*opened)->end(), 1);
  EXPECT_EQ((*opened)->ring_bytes(), kRing);
  (*created)->words()->ends[0].written = 77;
  EXPECT_EQ((*opened)->words()->ends[0].written, 77u);
  std::strcpy((*created)->ring(0) + kRing - 3, "across");  // the end
  EXPECT_STREQ((*opened)->ring(0) + kRing - 3, "across");
  EXPECT_STREQ((*opened)->ring(0), "oss");
  EXPECT_EQ((*opened)->ring(1)[0], 0);
}

// It has no name, so nothing of it can be left behind; and what is mapped stays, whoever dies.
TEST(SharedSegmentTest, StaysWhileOneMapsItAndHasNoName) {
  auto created = SharedSegment::Create(kRing);
  RUBATO_ASSERT_OK(created);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const std::string offer = (*created)->Offer();
  const pid_t child = fork();
  if (child == 0) {
    const auto opened = SharedSegment::Open(offer, kRing);
    char c = opened.ok() ? 'y' : 'n';
    if (opened.ok()) (*opened)->ring(1)[5] = 'w';
    if (write(ready[1], &c, 1) != 1) _exit(1);
    pause();
  }
  char c = 0;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_EQ(c, 'y');
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ((*created)->ring(1)[5], 'w');
  char target[64] = {};
  bool found = false;
  for (int fd = 3; fd < 100 && !found; ++fd) {
    std::memset(target, 0, sizeof(target));
    if (readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof(target) - 1) > 0) {
      found = std::string(target) == "/memfd:rubato (deleted)";
    }
  }
  EXPECT_TRUE(found) << "the segment is a file without a name";
  created->reset();
  EXPECT_THAT(SharedSegment::Open(offer, kRing).status(),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("cannot be opened")));
}

TEST(SharedSegmentTest, SaysWhatCannotBeHad) {
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit little = before;
  little.rlim_cur = kRing;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_THAT(SharedSegment::Create(kRing).status(),
              IsError(absl::StatusCode::kResourceExhausted, HasSubstr("cannot be had")));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, ignored);
  RUBATO_EXPECT_OK(SharedSegment::Create(kRing).status());
}

TEST(SharedSegmentTest, OpensNothingElse) {
  const auto created = SharedSegment::Create(kRing);
  RUBATO_ASSERT_OK(created);
  const std::string offer = (*created)->Offer();
  const auto error = [](const std::string& text) {
    return SharedSegment::Open(text, kRing).status();
  };
  EXPECT_THAT(error("nonsense"), IsError(absl::StatusCode::kUnavailable, HasSubstr("understood")));
  const absl::Status elsewhere = error(absl::StrCat("x", offer));
  EXPECT_TRUE(SharedSegment::IsFromAnotherHost(elsewhere));
  std::string wrong_nonce = offer;
  wrong_nonce.back() = wrong_nonce.back() == '1' ? '2' : '1';
  EXPECT_THAT(error(wrong_nonce),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("another process")));
  EXPECT_THAT(
      SharedSegment::Open(
          absl::StrReplaceAll(offer, {{absl::StrCat(kRing), absl::StrCat(kRing * 2)}}), kRing * 2)
          .status(),
      IsError(absl::StatusCode::kUnavailable, HasSubstr("not what was offered")));
  // One that holds no frame of a block.
  const auto tiny = SharedSegment::Create(4096);
  RUBATO_ASSERT_OK(tiny);
  EXPECT_THAT(SharedSegment::Open((*tiny)->Offer()).status(),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("rings of 4096 bytes")));

  // A file that is not sealed could be cut short under its reader.
  const int open_file = memfd_create("rubato", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(open_file, 4096 + 2 * kRing), 0);
  const std::string boot = offer.substr(0, offer.find(' '));
  EXPECT_THAT(error(absl::StrFormat("%s %d %d %d 1", boot, getpid(), open_file, kRing)),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("not what was offered")));
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(error(absl::StrFormat("%s %d %d %d 1", boot, getpid(), other, kRing)),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("another process")));
  close(open_file);
  close(other);
}

}  // namespace
}  // namespace rubato
