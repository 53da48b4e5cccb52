#include "common/files/checkpoint.h"

#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_matchers.h"
#include "common/files/bound_by_permissions.h"
#include "common/files/checkpoint_part.h"
#include "common/files/old_checkpoint.h"
#include "common/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/checkpoint_test_",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    proto::Parameter* weight = layout_.add_parameters();
    weight->set_name("0.weight");
    weight->add_shape(2);
    weight->add_shape(3);
    proto::Parameter* bias = layout_.add_parameters();
    bias->set_name("0.bias");
    bias->add_shape(2);
    state_.parameters = {1, 2, 3, 4, 5, 6, 7, 8};
    state_.slots = {{-1, -2, -3, -4, -5, -6, -7, -8}};
    manifest_.add_slots("momentum");
  }

  std::string Write(int64_t step) {
    manifest_.set_step(step);
    manifest_.clear_blocks();
    manifest_.add_blocks()->set_version(step);
    const auto path = WriteCheckpoint(folder_, manifest_, "name: x\n", layout_, state_);
    EXPECT_THAT(path, IsOk());
    return path.value_or("");
  }

  // The same by a server that writes its part to `folder`, published without being flushed.
  void WritePart(int64_t step, const std::string& folder) {
    manifest_.set_step(step);
    manifest_.clear_blocks();
    manifest_.add_blocks()->set_version(step);
    *manifest_.mutable_layout() = layout_;
    manifest_.clear_parts();
    manifest_.add_parts()->set_end(1);
    auto part = CreatePart(folder, manifest_, 0);
    RUBATO_ASSERT_OK(part);
    RUBATO_ASSERT_OK(part->Append(0, state_.parameters));
    RUBATO_ASSERT_OK(part->Append(1, state_.slots[0]));
    RUBATO_ASSERT_OK(part->Finish());
    AddChecksums({0, 1}, part->checksums(), &manifest_);
    RUBATO_ASSERT_OK(PublishCheckpoint(folder_, folder, manifest_, "name: x\n", /*flushes=*/false));
  }

  void ExpectState(const std::string& path, const proto::Manifest& manifest) const {
    const auto state = ReadTrainingState(path, manifest, layout_);
    RUBATO_ASSERT_OK(state);
    EXPECT_EQ(state->parameters, state_.parameters);
    EXPECT_EQ(state->slots, state_.slots);
  }

  static void Damage(const std::string& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('\x7f');
  }

  std::string folder_;
  proto::Layout layout_;
  TrainingState state_;
  proto::Manifest manifest_;
};

TEST_F(CheckpointTest, WhatIsReadIsWhatWasWritten) {
  const std::string path = Write(500);
  EXPECT_EQ(path, folder_ + "/step-00000500");
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  EXPECT_EQ(manifest->step(), 500);
  ExpectState(path, *manifest);
  const auto slots = SafetensorsReader::Open(path + "/momentum.safetensors");
  RUBATO_ASSERT_OK(slots);
  EXPECT_EQ(slots->tensors()[0].name, "0.weight.momentum");
  EXPECT_THAT(slots->tensors()[0].shape, ElementsAre(2, 3));
}

// 3 blocks of 3, 3 and 2 values; the first part ends within the weight.
class CheckpointPartsTest : public CheckpointTest {
 protected:
  std::string WriteParts(std::vector<Range> parts) {
    manifest_.set_block_values(3);
    manifest_.set_step(1);
    for (int64_t block = 0; block < 3; ++block) {
      proto::BlockState* state = manifest_.add_blocks();
      state->set_block(block);
      state->set_version(1);
    }
    for (const Range& blocks : parts) {
      proto::Manifest::Part* part = manifest_.add_parts();
      part->set_begin(blocks.begin);
      part->set_end(blocks.end);
    }
    const auto path = WriteCheckpoint(folder_, manifest_, "name: x\n", layout_, state_);
    EXPECT_THAT(path, IsOk());
    return path.value_or("");
  }
};

TEST_F(CheckpointPartsTest, PartsPutOneAfterTheOtherAreTheVectors) {
  const std::string path = WriteParts({{0, 1}, {1, 1}, {1, 3}});
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  ExpectState(path, *manifest);
  EXPECT_FALSE(fs::exists(path + "/parameters-1-of-3.safetensors")) << "of no blocks";
  // As other readers see them: cut tensors are flat and say what they hold.
  const auto first = SafetensorsReader::Open(path + "/parameters-0-of-3.safetensors");
  RUBATO_ASSERT_OK(first);
  ASSERT_EQ(first->tensors().size(), 1u);
  EXPECT_EQ(first->tensors()[0].name, "0.weight[0:3]");
  EXPECT_THAT(first->tensors()[0].shape, ElementsAre(3));
  const auto last = SafetensorsReader::Open(path + "/momentum-2-of-3.safetensors");
  RUBATO_ASSERT_OK(last);
  ASSERT_EQ(last->tensors().size(), 2u);
  EXPECT_EQ(last->tensors()[0].name, "0.weight.momentum[3:6]");
  EXPECT_EQ(last->tensors()[1].name, "0.bias.momentum");
  // Together they are whole again.
  const auto joined = OpenVector(path, *manifest, "");
  RUBATO_ASSERT_OK(joined);
  EXPECT_EQ(joined->tensors()[0].name, "0.weight");
  EXPECT_THAT(joined->tensors()[0].shape, ElementsAre(2, 3));
  std::vector<float> weight(6);
  RUBATO_ASSERT_OK(joined->ReadFloats(0, 0, absl::MakeSpan(weight)));
  EXPECT_THAT(weight, ElementsAre(1, 2, 3, 4, 5, 6));
  std::vector<float> middle(2);
  RUBATO_ASSERT_OK(joined->ReadFloats(0, 2, absl::MakeSpan(middle)));
  EXPECT_THAT(middle, ElementsAre(3, 4)) << "across two files";
}

// PyTorch's safetensors has them, too: an empty buffer, a layer of no features.
TEST_F(CheckpointPartsTest, ATensorWithoutValuesIsInOnePartAndInTheWhole) {
  const proto::Layout before = layout_;
  layout_.clear_parameters();
  const auto add_empty = [&](const std::string& name) {
    proto::Parameter* parameter = layout_.add_parameters();
    parameter->set_name(name);
    parameter->add_shape(4);
    parameter->add_shape(0);
  };
  add_empty("first");
  *layout_.add_parameters() = before.parameters(0);  // 6 values
  add_empty("between");
  *layout_.add_parameters() = before.parameters(1);  // 2 values
  add_empty("last");
  const std::vector<std::vector<Range>> cuts = {
      {{0, 3}}, {{0, 2}, {2, 3}}, {{0, 1}, {1, 1}, {1, 3}}, {{0, 0}, {0, 3}}};
  for (const std::vector<Range>& parts : cuts) {
    manifest_ = {};
    manifest_.add_slots("momentum");
    const std::string path = WriteParts(parts);
    const auto manifest = CheckCheckpoint(path);
    RUBATO_ASSERT_OK(manifest);
    ExpectState(path, *manifest);
    const auto whole = OpenVector(path, *manifest, "");
    RUBATO_ASSERT_OK(whole);
    EXPECT_THAT(*ReadParameters(*whole, layout_), ElementsAreArray(state_.parameters));
    std::map<std::string, int> times;
    for (size_t part = 0; part < parts.size(); ++part) {
      if (parts[part].empty()) continue;
      const auto file =
          OpenPart(path, "", {static_cast<int>(part), static_cast<int>(parts.size()), parts[part]});
      RUBATO_ASSERT_OK(file);
      for (const TensorInfo& tensor : file->tensors()) {
        if (tensor.Elements() == 0) ++times[tensor.name];
      }
    }
    EXPECT_THAT(times, ElementsAre(Pair("between", 1), Pair("first", 1), Pair("last", 1)));
  }
}

TEST_F(CheckpointPartsTest, ARangeIsReadWithoutTheRestAndComparedWithItsChecksums) {
  const std::string path = WriteParts({{0, 1}, {1, 3}});
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  Damage(path + "/parameters-1-of-2.safetensors");  // its last value: of block 2
  const auto reader = CheckpointReader::Open(path, *manifest, layout_);
  RUBATO_ASSERT_OK(reader);
  std::vector<float> values(3);
  RUBATO_ASSERT_OK(reader->Read(0, 1, absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(2, 3, 4)) << "of two blocks, neither of which is wanted whole";
  RUBATO_ASSERT_OK(reader->Read(1, 5, absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(-6, -7, -8));
  EXPECT_THAT(reader->Read(0, 5, absl::MakeSpan(values)),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("the checksum of block 2 is")));
  EXPECT_THAT(CheckCheckpoint(path).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("is damaged")));
}

TEST_F(CheckpointPartsTest, AMissingOrForeignPartIsFound) {
  const std::string path = WriteParts({{0, 1}, {1, 3}});
  const std::string part = path + "/momentum-1-of-2.safetensors";
  fs::rename(part, part + ".away");
  EXPECT_THAT(CheckCheckpoint(path).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("part 1 is missing")));
  fs::copy(path + "/momentum-0-of-2.safetensors", part);
  EXPECT_THAT(CheckCheckpoint(path).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("are not whole")));
}

TEST_F(CheckpointPartsTest, APartThatNobodyHasWrittenKeepsACheckpointFromItsName) {
  manifest_.set_step(1);
  manifest_.add_blocks()->set_version(1);
  manifest_.mutable_blocks(0)->add_checksums(0);
  manifest_.mutable_blocks(0)->add_checksums(0);
  *manifest_.mutable_layout() = layout_;
  manifest_.set_format(2);
  manifest_.add_parts()->set_end(1);
  const std::string temporary = folder_ + "/.new";
  for (const size_t bytes : {0, 32}) {  // without a header
    RUBATO_ASSERT_OK(BeginCheckpoint(folder_, temporary));
    if (bytes > 0) {
      std::ofstream(temporary + "/parameters.safetensors") << std::string(bytes, ' ');
      std::ofstream(temporary + "/momentum.safetensors") << std::string(200, ' ');
    }
    EXPECT_THAT(PublishCheckpoint(folder_, temporary, manifest_, "name: x\n", true).status(),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("part 0 is missing")));
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

TEST_F(CheckpointTest, OneOfFormat1IsReadAndComparedWithItsDigests) {
  manifest_.set_step(3);
  manifest_.add_blocks()->set_version(3);
  const std::string path = WriteOldCheckpoint(folder_, manifest_, "name: x\n", layout_, state_);
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  ExpectState(path, *manifest);
  Damage(path + "/optimizer.safetensors");
  EXPECT_THAT(CheckCheckpoint(path).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("its digest is")));
  EXPECT_THAT(ReadTrainingState(path, *manifest, layout_).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("its digest is")));
}

TEST_F(CheckpointTest, ListsInOrderOfStepsAndReplacesTheSameStep) {
  Write(100000000);
  Write(7);
  Write(7);
  EXPECT_THAT(ListCheckpoints(folder_),
              ElementsAre(folder_ + "/step-00000007", folder_ + "/step-100000000"));
  EXPECT_THAT(ListCheckpoints(folder_ + "/none"), IsEmpty());
  RUBATO_ASSERT_OK(RemoveCheckpoint(folder_ + "/step-00000007"));
  EXPECT_EQ(ListCheckpoints(folder_).size(), 1u);
}

TEST_F(CheckpointTest, RefusesEveryDamageAndNamesTheOneBefore) {
  for (const std::string file :
       {"/parameters.safetensors", "/momentum.safetensors", "/manifest.json", "/COMPLETE"}) {
    fs::remove_all(folder_);
    const std::string before = Write(1), path = Write(2);
    if (file == "/COMPLETE") {
      fs::remove(path + file);
    } else {
      Damage(path + file);
    }
    std::vector<std::string> warnings;
    EXPECT_THAT(FindCheckpoint(path, &warnings), IsError(absl::StatusCode::kInvalidArgument,
                                                         HasSubstr("the one before is " + before)))
        << file;
    EXPECT_THAT(warnings, IsEmpty());
    // Of a run's folder the newest whole one is meant.
    const std::string run = folder_ + "/run";
    fs::create_directory(run);
    fs::rename(before, run + "/a");
    fs::rename(path, run + "/b");
    fs::create_directory(run + "/checkpoints");
    fs::rename(run + "/a", run + "/checkpoints/step-00000001");
    fs::rename(run + "/b", run + "/checkpoints/step-00000002");
    const auto found = FindCheckpoint(run, &warnings);
    RUBATO_ASSERT_OK(found);
    EXPECT_EQ(*found, run + "/checkpoints/step-00000001");
    EXPECT_EQ(warnings.size(),
              file == "/COMPLETE" ? 0u : 1u);  // a half-written one is no checkpoint
  }
  std::vector<std::string> warnings;
  EXPECT_THAT(FindCheckpoint(folder_ + "/none", &warnings),
              IsError(absl::StatusCode::kNotFound, HasSubstr("there is no run or checkpoint")));
}

TEST_F(CheckpointTest, OfARunWhoseCheckpointsAreAllDamagedSaysHow) {
  const std::string run = folder_ + "/run", checkpoints = run + "/checkpoints";
  fs::create_directories(checkpoints);
  std::vector<std::string> warnings;
  EXPECT_THAT(FindCheckpoint(run, &warnings),
              IsError(absl::StatusCode::kNotFound, "run " + run + " has no whole checkpoint"));
  for (const int64_t step : {1, 2}) {
    const std::string path = Write(step);
    fs::rename(path, checkpoints + "/" + fs::path(path).filename().string());
  }
  Damage(checkpoints + "/step-00000001/manifest.json");
  std::ofstream(checkpoints + "/step-00000002/manifest.json") << "{";
  const std::string first =
      std::string(CheckCheckpoint(checkpoints + "/step-00000001").status().message());
  const std::string second =
      std::string(CheckCheckpoint(checkpoints + "/step-00000002").status().message());
  EXPECT_THAT(second, HasSubstr("manifest.json is damaged"));
  EXPECT_THAT(
      FindCheckpoint(run, &warnings),
      IsError(absl::StatusCode::kNotFound,
              absl::StrCat("run ", run, " has no whole checkpoint: ", second, "; ", first)));
}

TEST_F(CheckpointTest, TellsWhatMayNotBeLookedAtFromWhatIsNotThere) {
  const std::string path = Write(1);
  fs::create_directories(folder_ + "/run/checkpoints");
  std::vector<std::string> warnings;
  const BoundByPermissions bound;
  for (const std::string& closed : {path, folder_ + "/run"}) {
    chmod(closed.c_str(), 0);
    EXPECT_THAT(FindCheckpoint(closed, &warnings),
                IsError(absl::StatusCode::kPermissionDenied,
                        absl::StrCat("cannot open ", closed, ": Permission denied")));
    chmod(closed.c_str(), 0700);
  }
  RUBATO_EXPECT_OK(FindCheckpoint(path, &warnings));
}

TEST_F(CheckpointTest, RefusesAnotherModelAndSaysWhatDiffers) {
  const std::string path = Write(1);
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  proto::Layout other = layout_;
  other.mutable_parameters(0)->set_shape(0, 5);
  other.mutable_parameters(1)->set_name("1.bias");
  EXPECT_THAT(
      ReadTrainingState(path, *manifest, other),
      IsError(absl::StatusCode::kInvalidArgument,
              HasSubstr("0.weight has shape (2, 3), the model's is (5, 3); 1.bias is missing")));
}

// A limit on the size of files stands for a full disk.
TEST_F(CheckpointTest, AFullDiskLeavesTheLastGoodOneAndNothingElse) {
  const std::string good = Write(1);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  for (const rlim_t bytes : {0, 10, 100, 200}) {
    const rlimit limit = {bytes, old_limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    manifest_.set_step(2);
    const auto path = WriteCheckpoint(folder_, manifest_, "name: x\n", layout_, state_);
    setrlimit(RLIMIT_FSIZE, &old_limit);
    EXPECT_FALSE(path.ok()) << bytes;
    EXPECT_THAT(ListCheckpoints(folder_), ElementsAre(good));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  }
  std::signal(SIGXFSZ, old_handler);
  RUBATO_EXPECT_OK(CheckCheckpoint(good));
}

TEST_F(CheckpointTest, WhatIsNotFiniteIsNotWritten) {
  const std::string good = Write(1);
  manifest_.set_step(2);
  for (std::vector<float>* vector : {&state_.parameters, &state_.slots[0]}) {
    const float was = std::exchange((*vector)[1], std::numeric_limits<float>::infinity());
    EXPECT_THAT(WriteCheckpoint(folder_, manifest_, "name: x\n", layout_, state_).status(),
                IsError(absl::StatusCode::kDataLoss, HasSubstr("is not finite")));
    (*vector)[1] = was;
  }
  EXPECT_THAT(ListCheckpoints(folder_), ElementsAre(good));
}

// Runs `work` in a process of its own that is killed at its `stop`th entry to or return from a
// system call. False if it came to its end before; nothing if processes cannot be traced here.
std::optional<bool> KilledAt(int stop, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::nullopt;
  for (int i = 0; i < stop; ++i) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return false;
    }
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

std::map<std::string, ino_t> NumbersOf(const std::string& folder) {
  std::map<std::string, ino_t> numbers;
  for (const auto& file : fs::directory_iterator(folder)) {
    struct stat status = {};
    EXPECT_EQ(stat(file.path().c_str(), &status), 0);
    numbers[file.path().filename()] = status.st_ino;
  }
  return numbers;
}

TEST_F(CheckpointTest, WhatIsRecycledIsWrittenOver) {
  const std::string parts = folder_ + "/.parts";
  RUBATO_ASSERT_OK(BeginCheckpoint(folder_, parts));
  const std::string first = folder_ + "/step-00000001", second = folder_ + "/step-00000002";
  WritePart(1, *BeginParts(parts, 1));
  const std::map<std::string, ino_t> numbers = NumbersOf(first);
  RUBATO_ASSERT_OK(RecycleCheckpoint(first, parts, 2));
  EXPECT_FALSE(fs::exists(first));
  state_.parameters[3] = 7;
  const auto folder = BeginParts(parts, 2);
  RUBATO_ASSERT_OK(folder);
  RUBATO_EXPECT_OK(BeginParts(parts, 2)) << "by another server";
  WritePart(2, *folder);
  const auto manifest = CheckCheckpoint(second);
  RUBATO_ASSERT_OK(manifest);
  ExpectState(second, *manifest);
  EXPECT_EQ(NumbersOf(second), numbers) << "the same files, and no others";
  EXPECT_TRUE(fs::is_empty(parts));
}

// What somebody has done to a checkpoint before it is recycled is not in the next.
TEST_F(CheckpointTest, WhatIsRecycledMayBeDamaged) {
  const std::string parts = folder_ + "/.parts";
  RUBATO_ASSERT_OK(BeginCheckpoint(folder_, parts));
  const std::vector<std::string> files = {"/parameters.safetensors", "/momentum.safetensors",
                                          "/manifest.json", "/job.yaml", "/COMPLETE"};
  int64_t step = 0;
  for (const std::string& file : files) {
    for (const bool is_gone : {false, true}) {
      ++step;
      WritePart(step, *BeginParts(parts, static_cast<uint32_t>(step)));
      const std::string path = absl::StrFormat("%s/step-%08d", folder_, step);
      RUBATO_ASSERT_OK(CheckCheckpoint(path)) << step;
      if (is_gone) {
        fs::remove(path + file);
      } else {
        std::ofstream(path + file, std::ios::app) << "and more";
      }
      RUBATO_ASSERT_OK(RecycleCheckpoint(path, parts, static_cast<uint32_t>(step) + 1));
      EXPECT_FALSE(fs::exists(path));
    }
  }
}

TEST_F(CheckpointTest, OneIsRecycledForASnapshot) {
  const std::string parts = folder_ + "/.parts";
  RUBATO_ASSERT_OK(BeginCheckpoint(folder_, parts));
  for (const int step : {1, 2}) WritePart(step, *BeginParts(parts, step));
  for (const std::string& path : ListCheckpoints(folder_)) {
    RUBATO_ASSERT_OK(RecycleCheckpoint(path, parts, 3));
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(parts), fs::directory_iterator()), 1);
}

// As after a loss of power, when the disk has the new name and all that it was written over.
TEST_F(CheckpointTest, WhatHasAnotherStepsNameIsDamaged) {
  const std::string first = Write(1), second = folder_ + "/step-00000002";
  fs::copy(first, second);
  EXPECT_THAT(CheckCheckpoint(second).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("its manifest is of step 1")));
  fs::rename(second, folder_ + "/best");
  RUBATO_EXPECT_OK(CheckCheckpoint(folder_ + "/best"));
}

// How a checkpoint takes the place of the one before: another step with keep_last: 1, as a whole or
// in parts, over the files of one before that; or the same step.
enum class Change { kNext, kRecycled, kSameStep };

// At every moment there is a newest checkpoint, and it is whole: the one before or the new one.
TEST_F(CheckpointTest, WhereverTheWriterIsKilledTheNewestOneLoads) {
  const std::string parts = folder_ + "/.parts";
  RUBATO_ASSERT_OK(BeginCheckpoint(folder_, parts));
  WritePart(0, *BeginParts(parts, 1));
  RUBATO_ASSERT_OK(RecycleCheckpoint(folder_ + "/step-00000000", parts, 2));
  const std::string before = Write(1);
  const std::string old_digest = CheckCheckpoint(before)->digest();
  const std::string saved = folder_ + "_saved";
  fs::remove_all(saved);
  fs::copy(folder_, saved, fs::copy_options::recursive);
  for (const Change change : {Change::kNext, Change::kRecycled, Change::kSameStep}) {
    bool is_new = false;
    int stops = 0;
    // On disk the return from a call is no other moment than the entry to the next.
    for (int stop = 0;; stop += 2) {
      fs::remove_all(folder_);
      fs::copy(saved, folder_, fs::copy_options::recursive);
      const std::optional<bool> killed = KilledAt(stop, [&] {
        state_.parameters[0] = 9;
        if (change == Change::kRecycled) {
          WritePart(2, *BeginParts(parts, 2));
          (void)RecycleCheckpoint(before, parts, 3);
        } else {
          Write(change == Change::kSameStep ? 1 : 2);
          if (change == Change::kNext) (void)RemoveCheckpoint(before);
        }
      });
      if (!killed.has_value()) GTEST_SKIP() << "processes cannot be traced here";
      const std::vector<std::string> all = ListCheckpoints(folder_);
      ASSERT_FALSE(all.empty()) << "stop " << stop;
      const auto newest = CheckCheckpoint(all.back());
      RUBATO_ASSERT_OK(newest) << "stop " << stop;
      // Once the new one is there it stays.
      const bool now_new = newest->digest() != old_digest;
      EXPECT_TRUE(now_new || !is_new) << "stop " << stop;
      is_new = now_new;
      if (stop % 20 == 0) {  // who goes on writes over what was left
        Write(3);
        RUBATO_ASSERT_OK(CheckCheckpoint(ListCheckpoints(folder_).back()));
      }
      stops = stop;
      if (!*killed) break;
    }
    EXPECT_TRUE(is_new);
    EXPECT_GT(stops, 50);
  }
}

struct Call {
  long number;
  std::string path, to;  // `to` of a rename
};

// What `work`, in a process of its own, writes, flushes and renames, in order; nothing if processes
// cannot be traced here.
std::optional<std::vector<Call>> CallsOf(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  std::vector<Call> calls;
  int status;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::nullopt;
  // Without this the stops do not say whether they are entries.
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  const std::string process = absl::StrCat("/proc/", child);
  std::ifstream memory(process + "/mem", std::ios::binary);
  const auto text_at = [&](uint64_t address) {
    std::string text;
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(address));
    std::getline(memory, text, '\0');
    return text;
  };
  while (true) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) break;
    __ptrace_syscall_info info = {};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    const long number = static_cast<long>(info.entry.nr);
    if (number == SYS_write || number == SYS_writev || number == SYS_pwrite64 ||
        number == SYS_fsync || number == SYS_fdatasync) {
      calls.push_back(
          {number, fs::read_symlink(absl::StrCat(process, "/fd/", info.entry.args[0])), ""});
    } else if (number == SYS_rename) {
      calls.push_back({number, text_at(info.entry.args[0]), text_at(info.entry.args[1])});
    } else if (number == SYS_renameat2) {
      calls.push_back({number, text_at(info.entry.args[1]), text_at(info.entry.args[3])});
    }
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return calls;
}

// What of the calls' files and folders is not on the disk, when a folder gets the name `to` or, if
// it never does, in the end.
std::set<std::string> UnflushedAt(const std::string& to, const std::vector<Call>& calls) {
  std::set<std::string> unflushed;
  for (const Call& call : calls) {
    if (call.number == SYS_fsync || call.number == SYS_fdatasync) {
      unflushed.erase(call.path);
    } else if (call.to.empty()) {
      unflushed.insert(call.path);
    } else if (call.to == to) {
      return unflushed;
    } else {
      if (unflushed.erase(call.path) > 0) unflushed.insert(call.to);
      unflushed.insert(fs::path(call.to).parent_path());
      for (const std::string& path : std::set<std::string>(unflushed)) {
        if (!absl::StartsWith(path, call.path + "/")) continue;
        unflushed.erase(path);
        unflushed.insert(call.to + path.substr(call.path.size()));
      }
    }
  }
  return unflushed;
}

// So that it is whole after the machine has gone down, too: what gets its name has been flushed,
// and then the folder that holds the name.
TEST_F(CheckpointTest, WhatGetsItsNameIsOnTheDisk) {
  fs::create_directories(folder_);
  folder_ = fs::canonical(folder_);
  const auto calls = CallsOf([&] { Write(1); });
  if (!calls.has_value()) GTEST_SKIP() << "processes cannot be traced here";
  EXPECT_THAT(UnflushedAt(folder_ + "/step-00000001", *calls), IsEmpty());
  EXPECT_THAT(UnflushedAt("", *calls), IsEmpty());
  std::set<std::string> names;
  for (const Call& call : *calls) {
    names.insert(fs::path(call.to.empty() ? call.path : call.to).filename());
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"parameters.safetensors", "momentum.safetensors",
                                            "manifest.json", "job.yaml", "step-00000001"}));
}

TEST_F(CheckpointTest, WhatWasNotFlushedCanBeLater) {
  fs::create_directories(folder_);
  folder_ = fs::canonical(folder_);
  const std::string temporary = folder_ + "/.new", path = folder_ + "/step-00000001";
  const auto write = [&] {
    RUBATO_ASSERT_OK(BeginCheckpoint(folder_, temporary));
    WritePart(1, temporary);
  };
  const auto published = CallsOf(write);
  if (!published.has_value()) GTEST_SKIP() << "processes cannot be traced here";
  RUBATO_ASSERT_OK(CheckCheckpoint(path));
  EXPECT_THAT(UnflushedAt("", *published),
              testing::IsSupersetOf({path + "/parameters.safetensors", path + "/manifest.json"}));
  fs::remove_all(path);
  const auto flushed = CallsOf([&] {
    write();
    RUBATO_ASSERT_OK(FlushCheckpoint(path));
  });
  EXPECT_THAT(UnflushedAt("", *flushed), IsEmpty());
  // One that takes its place is flushed, whatever was asked for.
  const auto again = CallsOf(write);
  EXPECT_THAT(UnflushedAt(path, *again), IsEmpty());
}

}  // namespace
}  // namespace rubato
