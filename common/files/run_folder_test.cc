#include "common/files/run_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/process_exit.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const absl::Time kTime = absl::FromUnixSeconds(1795247941);  // 2026-11-21T07:59:01Z

// Each test works in an empty folder of its own.
class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    std::string folder = testing::TempDir() + "/run_folder_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr || chdir(folder.c_str()) != 0) abort();
  }
};

TEST_F(RunFolderTest, IsNamedByJobTimeAndFourHexDigits) {
  const auto run = RunFolder::Create("quickstart", "", kTime);
  RUBATO_ASSERT_OK(run);
  EXPECT_THAT(run->path(), MatchesRegex("runs/quickstart-20261121T075901Z-[0-9a-f]{4}"));
  EXPECT_TRUE(fs::is_directory(run->path() + "/logs"));
  EXPECT_EQ(run->LogFile("worker", 1), run->path() + "/logs/worker-1.log");
}

TEST_F(RunFolderTest, IsItsOwnersUnlessOthersWereAskedIn) {
  umask(022);
  const auto mode = [](const std::string& path) {
    return static_cast<int>(fs::status(path).permissions());
  };
  EXPECT_EQ(mode(RunFolder::Create("job", "", kTime)->path()), 0700);
  EXPECT_EQ(mode(RunFolder::Create("job", "below/mine", kTime)->path()), 0700);
  EXPECT_EQ(mode("below"), 0755);
  EXPECT_EQ(mode(RunFolder::Create("job", "", kTime, Readers::kGroup)->path()), 0750);
  EXPECT_EQ(mode(RunFolder::Create("job", "all", kTime, Readers::kAll)->path()), 0755);
  fs::create_directory("there");
  EXPECT_EQ(mode(RunFolder::Create("job", "there", kTime)->path()), 0755);
}

TEST_F(RunFolderTest, LatestPointsToTheLastRunOfMany) {
  std::set<std::string> paths;
  for (int i = 0; i < 20; ++i) {
    const auto run = RunFolder::Create("job", "", kTime);
    RUBATO_ASSERT_OK(run);
    RUBATO_ASSERT_OK(RunFolder::Create("job", "", kTime));  // has never begun
    EXPECT_FALSE(i > 0 && fs::equivalent("runs/latest", run->path()));
    RUBATO_ASSERT_OK(run->BecomeLatest());
    paths.insert(run->path());
    EXPECT_TRUE(fs::equivalent("runs/latest", run->path()));
  }
  EXPECT_EQ(paths.size(), 20u);
  // The link is relative, so that the folder of all runs may be moved.
  EXPECT_TRUE(fs::read_symlink("runs/latest").is_relative());
}

TEST_F(RunFolderTest, GivenFolderIsTakenAsItIs) {
  const auto run = RunFolder::Create("job", "deep/below/", kTime);
  RUBATO_ASSERT_OK(run);
  EXPECT_EQ(run->path(), "deep/below");
  EXPECT_TRUE(fs::is_directory("deep/below/logs"));
  EXPECT_FALSE(fs::exists("runs"));
  RUBATO_EXPECT_OK(run->BecomeLatest());
  EXPECT_FALSE(fs::exists("runs"));
  fs::create_directory("empty");
  RUBATO_EXPECT_OK(RunFolder::Create("job", "empty", kTime));
}

TEST_F(RunFolderTest, AnExistingRunIsNeverOverwritten) {
  RUBATO_ASSERT_OK(RunFolder::Create("job", "run", kTime));
  const auto again = RunFolder::Create("job", "run", kTime);
  EXPECT_THAT(again, IsError(absl::StatusCode::kAlreadyExists,
                             "run folder run is not empty; an existing run is never overwritten"));
  EXPECT_EQ(ExitCode(again.status()), 2);
  std::ofstream("file") << "x";
  EXPECT_THAT(RunFolder::Create("job", "file", kTime),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("run folder file is a file")));
  EXPECT_THAT(RunFolder::Create("job", "file/below", kTime),
              IsError(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("cannot create the folder file/below")));
}

TEST_F(RunFolderTest, RefusalOfTheSystemIsOneSentence) {
  // No one, not even root, creates a folder there.
  const auto run = RunFolder::Create("job", "/sys/rubato-run", kTime);
  EXPECT_THAT(run, IsError(absl::StatusCode::kPermissionDenied,
                           HasSubstr("cannot create the folder /sys/rubato-run: ")));
  EXPECT_EQ(ExitCode(run.status()), 1);
}

TEST_F(RunFolderTest, SmallFilesAreReplacedWhole) {
  RUBATO_ASSERT_OK(WriteFileAtomically("address", "127.0.0.1:1\n"));
  RUBATO_ASSERT_OK(WriteFileAtomically("address", std::string(100000, 'x')));
  EXPECT_EQ(*ReadSmallFile("address"), std::string(100000, 'x'));
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()),
            1);  // nothing left beside it
}

TEST_F(RunFolderTest, LinesAreReadOneByOneHoweverLongTheyAre) {
  const std::string path = "lines";
  const auto lines = [&] {
    std::vector<std::string> found;
    RUBATO_EXPECT_OK(ForEachLine(path, [&](absl::string_view line) { found.emplace_back(line); }));
    return found;
  };
  RUBATO_ASSERT_OK(WriteFileAtomically(path, ""));
  EXPECT_THAT(lines(), IsEmpty());
  // The pieces that are read are shorter, and one ends with a newline.
  const std::vector<std::string> wanted = {"a", "", std::string(100000, 'b'),
                                           std::string((1 << 14) - 100005 % (1 << 14), 'c'), "d"};
  for (const char* end : {"", "\n"}) {
    RUBATO_ASSERT_OK(WriteFileAtomically(path, absl::StrJoin(wanted, "\n") + end));
    EXPECT_EQ(lines(), wanted);
  }
  EXPECT_TRUE(absl::IsNotFound(ForEachLine("none", [](absl::string_view) {})));
}

TEST_F(RunFolderTest, ATokenIsRandomAndForItsOwnerAlone) {
  const mode_t old_mask = umask(0);
  const auto token = OpenToken("token"), other = OpenToken("other");
  umask(old_mask);
  RUBATO_ASSERT_OK(token);
  RUBATO_ASSERT_OK(other);
  EXPECT_THAT(*token, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(*token, *other);
  EXPECT_EQ(*ReadSmallFile("token"), *token + "\n");
  EXPECT_EQ(fs::status("token").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  const auto again = OpenToken("token");
  RUBATO_ASSERT_OK(again);
  EXPECT_EQ(*again, *token);  // a run's token stays
}

TEST_F(RunFolderTest, FailuresNameTheFile) {
  EXPECT_THAT(WriteFileAtomically("missing/address", "x"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("missing/address")));
  EXPECT_THAT(ReadSmallFile("nothing"), IsError(absl::StatusCode::kNotFound,
                                                "cannot open nothing: No such file or directory"));
}

TEST_F(RunFolderTest, AnAbandonedFolderIsTakenAgainWithoutItsLogs) {
  const auto run = RunFolder::Create("job", "mine", kTime);
  RUBATO_ASSERT_OK(run);
  for (const std::string& file :
       {run->JobFile(), run->AddressFile(), run->ViewsFile(), run->LogFile("server", 0)}) {
    RUBATO_ASSERT_OK(WriteFileAtomically(file, "x"));
  }
  run->Abandon();
  EXPECT_TRUE(fs::exists(run->LogFile("server", 0)));
  EXPECT_FALSE(fs::exists(run->JobFile()));
  RUBATO_ASSERT_OK(RunFolder::Create("job", "mine", kTime));
  EXPECT_FALSE(fs::exists(run->LogFile("server", 0)));
  run->Abandon();
  EXPECT_FALSE(fs::exists("mine"));  // nothing is left to keep
}

TEST_F(RunFolderTest, AnAbandonedFolderKeepsWhatAnotherHasPutThere) {
  fs::create_directories("other/certificates");
  RUBATO_ASSERT_OK(WriteFileAtomically("other/certificates/ca.key", "x"));
  RunFolder run("other");
  run.KeepWhatIsThere();
  RUBATO_ASSERT_OK(ReplaceFile(run.StateFile(), "x", Flush::kNothing));
  RUBATO_ASSERT_OK(ReplaceFile(run.TermFile(), "x", Flush::kNothing));
  run.Abandon();
  EXPECT_TRUE(fs::exists("other/certificates/ca.key"));
  EXPECT_FALSE(fs::exists(run.StateFile()));
  EXPECT_FALSE(fs::exists(SecondFile(run.StateFile())));
  EXPECT_FALSE(fs::exists(SecondFile(run.TermFile())));
}

TEST_F(RunFolderTest, AFolderThatCannotBeReachedIsNotRemoved) {
  const RunFolder run("mine");
  EXPECT_TRUE(run.IsRemoved());
  fs::create_symlink("mine", "mine");  // a loop, for want of a user who may not look
  EXPECT_FALSE(run.IsRemoved());
  fs::remove("mine");
  fs::create_directory("mine");
  EXPECT_FALSE(run.IsRemoved());
}

// Of a process that was killed in between.
TEST_F(RunFolderTest, WhatIsUnfinishedIsRemoved) {
  const auto run = RunFolder::Create("job", "mine", kTime);
  RUBATO_ASSERT_OK(run);
  const std::vector<std::string> kept = {"mine/term.json.tmp", "mine/song.12-3.tmp",
                                         "mine/term.json.a-1.tmp"};
  for (const std::string& file : kept) RUBATO_ASSERT_OK(WriteFileAtomically(file, "x"));
  RUBATO_ASSERT_OK(WriteFileAtomically("mine/term.json.12-3.tmp", "x"));
  RUBATO_ASSERT_OK(WriteFileAtomically("mine/parameters.safetensors.4567-12.tmp", "x"));
  run->RemoveUnfinished();
  EXPECT_FALSE(fs::exists("mine/term.json.12-3.tmp"));
  EXPECT_FALSE(fs::exists("mine/parameters.safetensors.4567-12.tmp"));
  for (const std::string& file : kept) EXPECT_TRUE(fs::exists(file)) << file;
}

TEST_F(RunFolderTest, LogsOfSomethingElseAreKept) {
  fs::create_directories("other/logs");
  RUBATO_ASSERT_OK(WriteFileAtomically("other/logs/server-0.log", "x"));
  RUBATO_ASSERT_OK(WriteFileAtomically("other/logs/access.log", "x"));
  EXPECT_THAT(RunFolder::Create("job", "other", kTime),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("is not empty")));
  EXPECT_TRUE(fs::exists("other/logs/server-0.log"));
  fs::remove("other/logs/access.log");
  RUBATO_ASSERT_OK(WriteFileAtomically("other/summary.json", "{}"));
  EXPECT_THAT(RunFolder::Create("job", "other", kTime),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("is not empty")));
  EXPECT_TRUE(fs::exists("other/logs/server-0.log"));
}

}  // namespace
}  // namespace rubato
