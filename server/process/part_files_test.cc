#include "server/process/part_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/boot_id.h"
#include "common/base/monotonic.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/space/placement.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A job of 40 values in blocks of 16 on two shards, with momentum; this is shard 1, which holds the
// last two blocks.
class PartFilesTest : public ::testing::Test {
 protected:
  PartFilesTest() {
    folder_ = absl::StrCat(::testing::TempDir(), "/part_files_",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::replace(folder_.begin() + static_cast<ptrdiff_t>(::testing::TempDir().size()) + 1,
                 folder_.end(), '/', '-');
    fs::remove_all(folder_);
    SetParts("/parts");
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { servers: 2 } wire { chunk: 64 } optimizer { momentum: 0.5 }", &job_));
    view_.mutable_layout()->add_parameters()->set_name("w");
    view_.mutable_layout()->mutable_parameters(0)->add_shape(40);
    Placement::Even(SpaceOf(job_, view_.layout()), 2).AddTo(&view_);
    for (int64_t block = 1; block < 3; ++block) {
      const auto values = std::make_shared<std::vector<float>>(block == 1 ? 16 : 8);
      for (size_t i = 0; i < values->size(); ++i) {
        (*values)[i] = static_cast<float>(16 * block) + static_cast<float>(i);
      }
      const auto slot = std::make_shared<std::vector<float>>(*values);
      for (float& value : *slot) value = -value;
      copies_[block].values = {Payload(values, *values), Payload(slot, *slot)};
    }
  }

  // Below folder_, where parts are written.
  void SetParts(const std::string& name) {
    parts_ = folder_ + name;
    fs::create_directories(parts_);
  }

  void Start() {
    PartFiles::Outlets outlets;
    outlets.prepare = [this](absl::FunctionRef<bool()>) {
      MonotonicLock lock(&mutex_);
      ++prepared_;
    };
    outlets.say = [this](const proto::PeerMessage& message) {
      MonotonicLock lock(&mutex_);
      said_.push_back(message);
    };
    outlets.give = [this](const Frame& frame, const Payload& payload) {
      MonotonicLock lock(&mutex_);
      const absl::Span<const float> values = payload.values();
      given_[{frame.block, frame.slot}].assign(values.begin(), values.end());
      key_ = frame.unit;
    };
    auto files = PartFiles::Create(job_, 1, std::move(outlets));
    RUBATO_ASSERT_OK(files);
    files_ = *std::move(files);
    files_->SetView(view_);
  }

  // The next thing that it says, but that it is still writing.
  proto::PeerMessage Said() {
    const auto has_said = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      while (!said_.empty() &&
             said_.front().part_written().state() == proto::PartWritten::STATE_WRITING) {
        said_.erase(said_.begin());
      }
      return !said_.empty();
    };
    MonotonicLock lock(&mutex_, absl::Condition(&has_said));
    proto::PeerMessage message = said_.front();
    said_.erase(said_.begin());
    return message;
  }

  std::map<std::pair<uint64_t, uint32_t>, std::vector<float>> Given(size_t frames) {
    const auto has_all = [this, frames]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return given_.size() == frames;
    };
    MonotonicLock lock(&mutex_, absl::Condition(&has_all));
    return given_;
  }

  // A whole checkpoint of which the first part is of another process.
  std::string Publish(const proto::PartWritten& part) {
    proto::Manifest manifest;
    manifest.set_step(3);
    manifest.set_block_values(16);
    manifest.add_slots("momentum_buffer");
    *manifest.mutable_layout() = view_.layout();
    for (int64_t block = 0; block < 3; ++block) {
      manifest.add_blocks()->set_block(block);
      manifest.mutable_blocks(static_cast<int>(block))->set_version(3);
    }
    manifest.add_parts()->set_end(1);
    manifest.add_parts()->set_begin(1);
    manifest.mutable_parts(1)->set_end(3);
    const std::string folder = parts_ + "/7";
    auto other = CreatePart(folder, manifest, 0);
    RUBATO_EXPECT_OK(other);
    RUBATO_EXPECT_OK(other->Append(0, std::vector<float>(16, 1)));
    RUBATO_EXPECT_OK(other->Append(1, std::vector<float>(16, 2)));
    RUBATO_EXPECT_OK(other->Finish());
    AddChecksums({0, 1}, other->checksums(), &manifest);
    const std::vector<uint32_t> own(part.checksums().begin(), part.checksums().end());
    AddChecksums({1, 3}, own, &manifest);
    const auto path = PublishCheckpoint(folder_, folder, manifest, "name: x\n", /*flushes=*/false);
    EXPECT_THAT(path, IsOk());
    return path.value_or("");
  }

  std::string folder_, parts_;
  proto::Job job_;
  proto::View view_;
  BlockCopies copies_;
  MonotonicMutex mutex_;
  std::vector<proto::PeerMessage> said_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint32_t>, std::vector<float>> given_ ABSL_GUARDED_BY(mutex_);
  uint64_t key_ ABSL_GUARDED_BY(mutex_) = 0;
  int prepared_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<PartFiles> files_;  // last: its thread uses the above
};

// Where the folder is another machine's, whose kernel does not flush what is written here, and
// where it is this one's: then parts are written in left over time.
class WrittenPartTest : public PartFilesTest, public ::testing::WithParamInterface<bool> {
 protected:
  WrittenPartTest() {
    if (GetParam()) SetParts("/parts-" + BootId());
  }
};

INSTANTIATE_TEST_SUITE_P(, WrittenPartTest, ::testing::Bool());

TEST_P(WrittenPartTest, IsWhatIsReadAgain) {
  Start();
  files_->Write({7, parts_, copies_});
  const proto::PartWritten part = Said().part_written();
  EXPECT_EQ(part.id(), 7u);
  ASSERT_EQ(part.state(), proto::PartWritten::STATE_WRITTEN);
  const std::string path = Publish(part);
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  files_->Read({path, manifest->digest(), {1, 3}, /*slots=*/1, /*restore_key=*/5});
  const auto given = Given(4);
  for (const auto& [block, copy] : copies_) {
    for (uint32_t vector = 0; vector < 2; ++vector) {
      const absl::Span<const float> values = copy.values[vector].values();
      EXPECT_EQ(given.at({static_cast<uint64_t>(block), vector}),
                std::vector<float>(values.begin(), values.end()));
    }
  }
  EXPECT_EQ(key_, 5u);
}

TEST_F(PartFilesTest, AfterItIsClosedItSaysNothingAndTakesNothing) {
  Start();
  files_->Close();
  files_->Write({7, folder_ + "/parts", copies_});
  files_->Read({folder_ + "/none", "", {1, 3}, 1, 5});
  files_.reset();
  MonotonicLock lock(&mutex_);
  EXPECT_TRUE(said_.empty());
}

// A view alone says nothing: the shard may still be about to plan what its snapshots need.
TEST_F(PartFilesTest, MakesReadyWhenTheShardHasItsState) {
  Start();
  for (const uint32_t snapshot : {7, 8}) {
    files_->Write({snapshot, folder_ + "/parts", copies_});
    Said();
  }
  const auto is_prepared = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return prepared_ > 0; };
  {
    MonotonicLock lock(&mutex_);
    EXPECT_EQ(prepared_, 0);
  }
  files_->Prepare();
  MonotonicLock lock(&mutex_, absl::Condition(&is_prepared));
  EXPECT_EQ(prepared_, 1);
}

TEST_F(PartFilesTest, AFolderThatItDoesNotSeeIsNotMade) {
  Start();
  files_->Write({7, folder_ + "/elsewhere", copies_});
  EXPECT_EQ(Said().part_written().state(), proto::PartWritten::STATE_UNSEEN);
  EXPECT_FALSE(fs::exists(folder_ + "/elsewhere"));
}

// A limit on the size of files stands for a full disk.
TEST_F(PartFilesTest, SaysWhyAPartCannotBeWritten) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit = {100, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  Start();
  files_->Write({7, folder_ + "/parts", copies_});
  const proto::PartWritten part = Said().part_written();
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(part.state(), proto::PartWritten::STATE_FAILED);
  EXPECT_THAT(part.reason(), HasSubstr("File too large"));
}

TEST_P(WrittenPartTest, HasOnlyWhatIsFinite) {
  const auto values = std::make_shared<std::vector<float>>(16, 0.f);
  (*values)[3] = std::numeric_limits<float>::infinity();
  copies_[1].values[1] = Payload(values, *values);
  Start();
  files_->Write({7, parts_, copies_});
  const proto::PartWritten part = Said().part_written();
  EXPECT_EQ(part.state(), proto::PartWritten::STATE_FAILED);
  EXPECT_EQ(part.reason(), "w is not finite");
}

TEST_F(PartFilesTest, AnotherCheckpointOfThatNameIsNotTaken) {
  Start();
  files_->Write({7, folder_ + "/parts", copies_});
  const std::string path = Publish(Said().part_written());
  files_->Read({path, "another digest", {1, 3}, 1, 5});
  EXPECT_TRUE(Said().shard_restored().unseen());
  files_->Read({folder_ + "/none", "", {1, 3}, 1, 5});
  EXPECT_TRUE(Said().shard_restored().unseen());
}

// A block that has been given cannot be taken back, nor sent by another.
TEST_F(PartFilesTest, DamageThatIsFoundOnTheWayIsAFailure) {
  Start();
  files_->Write({7, folder_ + "/parts", copies_});
  const std::string path = Publish(Said().part_written());
  const std::string digest = ReadManifest(path)->digest();
  std::FILE* file = std::fopen((path + "/parameters-1-of-2.safetensors").c_str(), "r+");
  std::fseek(file, -1, SEEK_END);
  std::fputc(0x7f, file);
  std::fclose(file);
  files_->Read({path, digest, {1, 3}, 1, 5});
  EXPECT_THAT(Said().failure().reason(), HasSubstr("the checksum of block 2"));
}

}  // namespace
}  // namespace rubato
