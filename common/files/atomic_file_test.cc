#include "common/files/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() : folder_(testing::TempDir() + "/atomic_file_XXXXXX") {
    EXPECT_NE(mkdtemp(&folder_[0]), nullptr);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::vector<std::string> FolderNames() const {
    std::vector<std::string> names;
    DIR* folder = opendir(folder_.c_str());
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(folder);
    return names;
  }

  std::string Contents(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  ino_t FileNumber(const std::string& name) const {
    struct stat file = {};
    EXPECT_EQ(stat(Path(name).c_str(), &file), 0);
    return file.st_ino;
  }

  std::string folder_;
};

TEST_F(AtomicFileTest, AppearsWholeAtCommit) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
  RUBATO_ASSERT_OK(file);
  RUBATO_EXPECT_OK(file->Append("one "));
  RUBATO_EXPECT_OK(file->Append(std::string(100000, 'x')));
  EXPECT_NE(access(Path("a").c_str(), F_OK), 0);
  RUBATO_EXPECT_OK(file->Commit());
  EXPECT_EQ(Contents("a"), "one " + std::string(100000, 'x'));
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, WithoutCommitTheOldFileStays) {
  std::ofstream(Path("a")) << "old";
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
    RUBATO_ASSERT_OK(file);
    RUBATO_EXPECT_OK(file->Append("new"));
    const AtomicFile moved = *std::move(file);
  }
  EXPECT_EQ(Contents("a"), "old");
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, ReplacesTheOldFile) {
  std::ofstream(Path("a")) << "old and longer";
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
  RUBATO_ASSERT_OK(file);
  RUBATO_EXPECT_OK(file->Append("new"));
  RUBATO_EXPECT_OK(file->Commit());
  EXPECT_EQ(Contents("a"), "new");
  EXPECT_THAT(file->Append("more"), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("a")));
}

// A limit on the size of files stands in for the full disk: write() fails in the middle of the
// file.
TEST_F(AtomicFileTest, FullDiskLeavesNothingBehind) {
  std::ofstream(Path("a")) << "old";
  rlimit unlimited = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  rlimit small = unlimited;
  small.rlim_cur = 1000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = file->Append(std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted,
                              AllOf(HasSubstr(Path("a")), HasSubstr("too large"))));
  EXPECT_EQ(Contents("a"), "old");
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
  EXPECT_THAT(file->Commit(), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("a")));
  EXPECT_EQ(Contents("a"), "old");
}

TEST_F(AtomicFileTest, ReplaceFileShowsTheOldContentsOrTheNew) {
  for (const std::string contents : {"first", "second, longer", "third", ""}) {
    std::ifstream reader(Path("a"));
    const std::string before = Contents("a");
    RUBATO_ASSERT_OK(ReplaceFile(Path("a"), contents, Flush::kName));
    EXPECT_EQ(Contents("a"), contents);
    std::ostringstream read;
    read << reader.rdbuf();
    EXPECT_EQ(read.str(), before);  // by one who had opened it
  }
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
  EXPECT_THAT(ReplaceFile("missing/a", "x", Flush::kNothing),
              IsError(absl::StatusCode::kNotFound, HasSubstr("missing/")));
}

// On a file system of 64 KiB of its own, in a process of its own; false where that may not be.
bool OnSmallDisk(const std::string& folder, const std::function<void()>& run) {
  constexpr int kNoDisk = 77;
  const pid_t child = fork();
  if (child == 0) {
    const std::string user = absl::StrCat("0 ", getuid(), " 1");
    const std::string group = absl::StrCat("0 ", getgid(), " 1");
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kNoDisk);
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user;
    std::ofstream("/proc/self/gid_map") << group;
    if (mount("none", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(kNoDisk);
    }
    run();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_THAT(WEXITSTATUS(status), AnyOf(0, kNoDisk));
  return WEXITSTATUS(status) != kNoDisk;
}

TEST_F(AtomicFileTest, ReplaceFileTakesNoSpaceOfADiskThatIsFull) {
  const bool could = OnSmallDisk(folder_, [this] {
    RUBATO_ASSERT_OK(ReplaceFile(Path("a"), "old", Flush::kNothing));
    std::ofstream(Path("rest")) << std::string(1 << 20, 'x');
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
    RUBATO_ASSERT_OK(file);
    ASSERT_THAT(file->Append("new"),
                IsError(absl::StatusCode::kResourceExhausted, HasSubstr("No space left")));
    const ino_t first = FileNumber("a"), second = FileNumber(".a");
    for (const std::string contents : {"new", "newer, and longer", "newest"}) {
      RUBATO_ASSERT_OK(ReplaceFile(Path("a"), contents, Flush::kName));
      EXPECT_EQ(Contents("a"), contents);
      // Nobody else gets the space in between.
      EXPECT_THAT(std::vector({FileNumber("a"), FileNumber(".a")}),
                  UnorderedElementsAre(first, second));
    }
    EXPECT_THAT(ReplaceFile(Path("a"), std::string(10000, 'x'), Flush::kName),
                IsError(absl::StatusCode::kResourceExhausted, HasSubstr("No space left")));
    EXPECT_EQ(Contents("a"), "newest");
    std::ofstream(Path("more")) << std::string(1 << 20, 'x');  // takes what that gave back
    RUBATO_EXPECT_OK(ReplaceFile(Path("a"), "last", Flush::kName));
    EXPECT_EQ(Contents("a"), "last");
  });
  if (!could) GTEST_SKIP() << "no file system can be mounted here";
}

TEST_F(AtomicFileTest, SaysWhyItCannotBeCreated) {
  EXPECT_THAT(AtomicFile::Create(Path("missing/a")),
              IsError(absl::StatusCode::kNotFound,
                      AllOf(HasSubstr("missing/a"), HasSubstr("No such file or directory"))));
  std::ofstream(Path("file")) << "";
  EXPECT_THAT(AtomicFile::Create(Path("file/a")),
              IsError(absl::StatusCode::kNotFound, HasSubstr("Not a directory")));
}

TEST_F(AtomicFileTest, CannotReplaceAFolder) {
  ASSERT_EQ(mkdir(Path("a").c_str(), 0777), 0);
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
  RUBATO_ASSERT_OK(file);
  EXPECT_THAT(file->Commit(),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("Is a directory")));
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
}

ino_t NumberOf(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 ? file.st_ino : 0;
}

TEST_F(AtomicFileTest, ReuseWritesOverTheFileThatWasThere) {
  std::ofstream(Path("a")) << "old and longer";
  const ino_t number = NumberOf(Path("a"));
  absl::StatusOr<AtomicFile> file = AtomicFile::Reuse(Path("a"));
  RUBATO_ASSERT_OK(file);
  RUBATO_EXPECT_OK(file->Append("new"));
  AtomicFile moved = *std::move(file);
  RUBATO_EXPECT_OK(moved.Commit(Flush::kNothing));
  EXPECT_EQ(Contents("a"), "new");
  EXPECT_EQ(NumberOf(Path("a")), number);
  EXPECT_THAT(FolderNames(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, ReuseMakesAFileWhereThereIsNone) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Reuse(Path("a"));
  RUBATO_ASSERT_OK(file);
  RUBATO_EXPECT_OK(file->Append("new"));
  RUBATO_EXPECT_OK(file->Commit());
  EXPECT_EQ(Contents("a"), "new");
}

TEST_F(AtomicFileTest, WithoutCommitWhatWasToBeReusedIsGone) {
  std::ofstream(Path("a")) << "old";
  { RUBATO_ASSERT_OK(AtomicFile::Reuse(Path("a"))); }
  EXPECT_THAT(FolderNames(), IsEmpty());
}

// By an open file, by a mapping of one that is closed again, by another name: whoever has it in
// one of these ways keeps its contents.
TEST_F(AtomicFileTest, ReuseLeavesToOthersWhatTheyHave) {
  for (const std::string how : {"open", "mapped", "linked"}) {
    std::ofstream(Path("a")) << "old";
    const int reader = open(Path("a").c_str(), O_RDONLY | O_CLOEXEC);
    const void* mapped = MAP_FAILED;
    if (how == "mapped") mapped = mmap(nullptr, 3, PROT_READ, MAP_PRIVATE, reader, 0);
    if (how != "open") close(reader);
    if (how == "linked") {
      ASSERT_EQ(link(Path("a").c_str(), Path("b").c_str()), 0);
    }
    absl::StatusOr<AtomicFile> file = AtomicFile::Reuse(Path("a"));
    RUBATO_ASSERT_OK(file) << how;
    RUBATO_EXPECT_OK(file->Append("new"));
    RUBATO_EXPECT_OK(file->Commit());
    EXPECT_EQ(Contents("a"), "new") << how;
    std::string kept(3, ' ');
    if (how == "open") {
      EXPECT_EQ(pread(reader, kept.data(), 3, 0), 3);
      close(reader);
    } else if (how == "mapped") {
      ASSERT_NE(mapped, MAP_FAILED);
      kept.assign(static_cast<const char*>(mapped), 3);
      munmap(const_cast<void*>(mapped), 3);
    } else {
      kept = Contents("b");
    }
    EXPECT_EQ(kept, "old") << how;
  }
}

// How many bytes of a file the kernel has in its memory.
size_t CachedBytes(const std::string& path, size_t size) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return size;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> cached((size + page - 1) / page);
  EXPECT_EQ(mincore(mapped, size, cached.data()), 0);
  munmap(mapped, size);
  return page * std::count_if(cached.begin(), cached.end(), [](int flags) { return flags & 1; });
}

// Whether a file of this folder can be written so at all.
bool CanBypassCache(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  void* const sector = std::aligned_alloc(4096, 4096);
  const bool can = pwrite(file, sector, 4096, 0) == 4096;
  std::free(sector);
  close(file);
  unlink(path.c_str());
  return can;
}

TEST_F(AtomicFileTest, BytesThatBypassTheCacheAreTheSame) {
  constexpr size_t kPiece = AtomicFile::kPiece;
  std::string bytes(2 * kPiece + 4097, ' ');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i ^ i >> 8 ^ i >> 16);
  for (const size_t size : {size_t{0}, size_t{5}, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece,
                            2 * kPiece + 4096, bytes.size()}) {
    for (const size_t step : {size_t{100'003}, size_t{3} << 20}) {
      std::ofstream(Path("a")) << std::string(size / 2 + 77, 'x');
      absl::StatusOr<AtomicFile> begun = AtomicFile::Reuse(Path("a"));
      RUBATO_ASSERT_OK(begun);
      begun->BypassCache();
      AtomicFile file = *std::move(begun);
      for (size_t at = 0; at < size; at += step) {
        RUBATO_ASSERT_OK(file.Append(absl::string_view(bytes).substr(0, size).substr(at, step)));
      }
      RUBATO_ASSERT_OK(file.Commit(Flush::kNothing));
      EXPECT_TRUE(Contents("a") == bytes.substr(0, size)) << size << " by " << step;
    }
  }
}

TEST_F(AtomicFileTest, WhatBypassesTheCacheIsNotInIt) {
  if (!CanBypassCache(Path("b"))) GTEST_SKIP() << "not on this file system";
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(Path("a"));
  RUBATO_ASSERT_OK(file);
  file->BypassCache();
  const size_t size = 3 * AtomicFile::kPiece + 100;
  RUBATO_ASSERT_OK(file->Append(std::string(size, 'x')));
  RUBATO_ASSERT_OK(file->Commit(Flush::kNothing));
  EXPECT_LT(CachedBytes(Path("a"), size), AtomicFile::kPiece) << "but for its end";
}

}  // namespace
}  // namespace rubato
