// Data that are missing, broken, or not those of the other workers.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RefusedDataTest : public ClusterTest {
 protected:
  static std::string BigEndian(uint32_t value) {
    return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
            static_cast<char>(value >> 8), static_cast<char>(value)};
  }

  // A folder in MNIST's format: 100 training and 20 test images of 4x4 pixels, image i of label
  // i % 10 and pixels that depend on it and on `shade`.
  void WriteIdx(const std::string& folder, int shade = 1) const {
    fs::create_directory(Path(folder));
    for (const auto& [split, count] : {std::pair("train", 100u), std::pair("t10k", 20u)}) {
      std::string images = BigEndian(0x803) + BigEndian(count) + BigEndian(4) + BigEndian(4);
      std::string labels = BigEndian(0x801) + BigEndian(count);
      for (uint32_t i = 0; i < count; ++i) {
        labels += static_cast<char>(i % 10);
        images += std::string(16, static_cast<char>(i % 10 * 20 + shade));
      }
      Write(absl::StrCat(folder, "/", split, "-images-idx3-ubyte"), images);
      Write(absl::StrCat(folder, "/", split, "-labels-idx1-ubyte"), labels);
    }
  }

  static std::string Idx(const std::string& folder) {
    return absl::StrCat("data={format: idx, path: ", folder, "}");
  }

  static std::vector<std::string> Small() { return {"train={batch_size: 8, until: {steps: 9}}"}; }

  // That launcher and worker alike refuse the data in `folder`.
  void ExpectRefusal(const std::string& folder, const std::string& message) {
    const FreePort port;
    std::vector<std::string> set = Small();
    set.push_back(Idx(folder));
    set.push_back("cluster.address=" + port.address());
    for (Process* process : {&StartTrain("run", set), &StartWorker(set)}) {
      const Process::Result result = process->Wait();
      EXPECT_EQ(result.code, 2) << result.err;
      EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr(folder), HasSubstr(message)));
    }
    EXPECT_FALSE(fs::exists(Path("run")));
  }
};

TEST_F(RefusedDataTest, MissingFilesAreNamed) {
  ExpectRefusal("nowhere", "nowhere");
  WriteIdx("data");
  fs::remove(Path("data/t10k-labels-idx1-ubyte"));
  ExpectRefusal("data", "t10k-labels-idx1-ubyte");
}

// The launcher, too, before it starts anything: a mistake is told once, by one process.
TEST_F(RefusedDataTest, TruncatedFilesAndBadLabelsAreRefused) {
  for (const std::string file : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    fs::remove_all(Path("data"));
    WriteIdx("data");
    fs::resize_file(Path("data/" + file), fs::file_size(Path("data/" + file)) - 1);
    std::vector<std::string> set = Small();
    set.push_back(Idx("data"));
    const Process::Result result = StartTrain("run-" + file, set).Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(file));
  }
  fs::remove_all(Path("data"));
  WriteIdx("data");
  std::string labels = ReadText(Path("data/t10k-labels-idx1-ubyte"));
  labels.back() = 77;  // no training image has it
  Write("data/t10k-labels-idx1-ubyte", labels);
  std::vector<std::string> set = Small();
  set.push_back(Idx("data"));
  const Process::Result result = StartTrain("run-labels", set).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr("77")));
}

TEST_F(RefusedDataTest, AWorkerWithOtherDataIsRefusedAndTheJobGoesOn) {
  WriteIdx("data");
  WriteIdx("same");
  WriteIdx("other", 2);
  std::vector<std::string> set = Small();
  set.push_back("cluster.workers=2");
  set.push_back(Idx("data"));
  Train("train", set);

  fs::create_directory(Path("run"));
  Process& shard_0 = StartServer(0, set, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  set.push_back("cluster.address=" + AwaitAddress("run", shard_0));
  std::vector<std::string> same = set, other = set;
  same.push_back("data.path=same");
  other.push_back("data.path=other");
  // Who of the two comes first has the right data; the other ends.
  Process &worker = StartWorker(set), &stranger = StartWorker(other);
  const bool is_stranger = AwaitFirstEnd({&worker, &stranger}) == &stranger;
  Process& refused = is_stranger ? stranger : worker;
  EXPECT_EQ(refused.Wait().code, 2);
  EXPECT_THAT(refused.err(), StartsWith("error: this worker's data differ from those of worker"));
  // Where the data lie does not matter.
  Process& second = StartWorker(is_stranger ? same : other);
  for (Process* process : {&shard_0, &second, is_stranger ? &worker : &stranger}) {
    EXPECT_EQ(process->Wait().code, 0) << process->err();
  }
  if (is_stranger) {
    EXPECT_EQ(Summary("run")["digest"], Summary("train")["digest"]);
  }
}

}  // namespace
}  // namespace rubato
