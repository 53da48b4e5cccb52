#include "server/run/recording.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

proto::ShardEvent Gone(uint64_t stream) {
  proto::ShardEvent event;
  event.set_gone(true);
  event.set_stream(stream);
  return event;
}

class RecordingTest : public testing::Test {
 protected:
  RecordingTest()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(folder_ + "/shard-1.rec") {
    fs::remove_all(folder_);
    header_.set_job_digest("digest");
    header_.set_shard(1);
  }

  absl::StatusOr<std::unique_ptr<RecordingWriter>> Create() {
    return RecordingWriter::Create(path_, header_, &log_);
  }

  // Three events, with floats and outcomes; whether the process ends in order.
  void Record(bool ends = true) {
    auto writer = Create();
    RUBATO_ASSERT_OK(writer);
    proto::ShardOutcome outcome;
    outcome.mutable_update()->set_block(7);
    (*writer)->Event(Gone(1), {1.5f, -2.0f});
    (*writer)->Outcome(outcome);
    (*writer)->Outcome(outcome);
    (*writer)->Event(Gone(2));
    (*writer)->Event(Gone(3), {4.0f});
    if (!ends) writer->release();  // leaked, as by a process that is killed
  }

  // What the file holds, one letter an entry, and how reading it ends.
  std::string Read(absl::Status* status) const {
    absl::StatusOr<RecordingReader> reader = RecordingReader::Open(path_);
    *status = reader.status();
    if (!reader.ok()) return "";
    std::string kinds;
    while (true) {
      const auto entry = reader->Next();
      *status = entry.status();
      if (!entry.ok()) return kinds;
      if (!entry->has_value()) return kinds + (reader->has_end() ? "." : "");
      kinds += (*entry)->kind == RecordingEntry::Kind::kEvent ? 'e' : 'o';
    }
  }

  const Log log_{"server", 1};
  const std::string folder_;
  const std::string path_;
  proto::RecordHeader header_;
};

TEST_F(RecordingTest, ComesBackAsItWas) {
  Record();
  absl::StatusOr<RecordingReader> reader = RecordingReader::Open(path_);
  RUBATO_ASSERT_OK(reader);
  EXPECT_EQ(reader->header().job_digest(), "digest");
  const auto first = reader->Next();
  RUBATO_ASSERT_OK(first);
  EXPECT_EQ((*first)->message, Gone(1).SerializeAsString());
  EXPECT_THAT((*first)->values, testing::ElementsAre(1.5f, -2.0f));
  absl::Status status;
  EXPECT_EQ(Read(&status), "eooee.");
  RUBATO_EXPECT_OK(status);
}

TEST_F(RecordingTest, AFlippedBitIsFoundInEveryByte) {
  Record();
  absl::Status intact;
  EXPECT_EQ(Read(&intact), "eooee.");
  RUBATO_EXPECT_OK(intact);
  const std::string whole = Contents(path_);
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 3) {  // in turn every place of a byte
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    Write(path_, flipped);
    absl::Status status;
    Read(&status);
    ASSERT_THAT(status, IsError(absl::StatusCode::kInvalidArgument, HasSubstr(path_))) << bit;
  }
}

TEST_F(RecordingTest, ATruncatedFileEndsWithItsLastWholeEntryAndWithoutAnEnd) {
  Record();
  const std::string whole = Contents(path_);
  std::string longest;
  for (size_t size = 0; size < whole.size(); ++size) {
    Write(path_, whole.substr(0, size));
    absl::Status status;
    const std::string kinds = Read(&status);
    if (kinds.empty() && !status.ok()) {  // not even the header is there
      EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr(path_), HasSubstr("truncated"))));
      EXPECT_EQ(longest, "");
      continue;
    }
    RUBATO_EXPECT_OK(status);
    EXPECT_GE(kinds.size(), longest.size());
    EXPECT_EQ(std::string("eooee").substr(0, kinds.size()), kinds);
    longest = kinds;
  }
  EXPECT_EQ(longest, "eooee");
}

// Each entry but the header and the end is taken out; and all from one on to the end.
TEST_F(RecordingTest, AMissingEntryIsFound) {
  Record();
  const std::string whole = Contents(path_);
  std::vector<size_t> begins;
  for (size_t at = 0; at < whole.size();) {
    begins.push_back(at);
    uint32_t sizes[2];
    std::memcpy(sizes, &whole[at + 4], sizeof(sizes));
    at += 20 + sizes[0] + sizes[1];
  }
  ASSERT_EQ(begins.size(), 7u);
  for (size_t first = 1; first + 1 < begins.size(); ++first) {
    for (const size_t behind : {first + 1, begins.size() - 1}) {
      Write(path_, whole.substr(0, begins[first]) + whole.substr(begins[behind]));
      absl::Status status;
      Read(&status);
      EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument, HasSubstr("missing")))
          << first << " " << behind;
    }
  }
}

TEST_F(RecordingTest, AProcessThatIsKilledLeavesItsEventsAndNoEnd) {
  Record(/*ends=*/false);
  absl::Status status;
  EXPECT_EQ(Read(&status), "eooee");
  RUBATO_EXPECT_OK(status);
}

TEST_F(RecordingTest, WhatIsNoRecordingIsTold) {
  fs::create_directory(folder_);
  Write(path_, "{\"time\": 1}\n");
  EXPECT_THAT(RecordingReader::Open(path_).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("is no record")));
  EXPECT_THAT(RecordingReader::Open(folder_ + "/nothing").status(),
              IsError(absl::StatusCode::kNotFound, HasSubstr("/nothing")));
}

TEST_F(RecordingTest, NothingIsOverwrittenAndNothingIsLeftWithoutAnEvent) {
  RUBATO_EXPECT_OK(Create().status());
  EXPECT_FALSE(fs::exists(path_));
  Record();
  EXPECT_THAT(Create().status(), IsError(absl::StatusCode::kAlreadyExists, HasSubstr(path_)));
  Write(folder_ + "/file", "");
  EXPECT_THAT(RecordingWriter::Create(folder_ + "/file/shard-0.rec", header_, &log_).status(),
              testing::Not(IsOk()));
}

// A limit on the size of files stands for the full disk.
TEST_F(RecordingTest, AFullDiskEndsTheRecordingWithOneWarning) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit previous;
  getrlimit(RLIMIT_FSIZE, &previous);
  // What is captured of stderr is a file, too.
  const rlimit limit = {3000, previous.rlim_max};
  testing::internal::CaptureStderr();
  setrlimit(RLIMIT_FSIZE, &limit);
  {
    auto writer = Create();
    RUBATO_ASSERT_OK(writer);
    (*writer)->Event(Gone(1));
    (*writer)->Event(Gone(2), std::vector<float>(10000));
    (*writer)->Event(Gone(3));  // which would fit, and has no place
  }
  setrlimit(RLIMIT_FSIZE, &previous);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the record of this run ends here: cannot write " + path_));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  absl::Status status;
  EXPECT_EQ(Read(&status), "e");
  RUBATO_EXPECT_OK(status);
}

}  // namespace
}  // namespace rubato
