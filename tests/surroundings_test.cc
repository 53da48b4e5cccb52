// What a user's machine does to a run: closed descriptors, disks that are full or fill up, ports
// that are taken. The run says what it met, and what it has computed is kept.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
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
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class SurroundingsTest : public ClusterTest {
 protected:
  // Runs a script in the test's folder, where $rubato is the program.
  Process::Result Shell(const std::string& script, const std::vector<std::string>& under = {}) {
    Write("script.sh",
          absl::StrCat("rubato=", fs::absolute("tools/rubato").string(), "\n", script));
    std::vector<std::string> arguments = under;
    arguments.insert(arguments.end(), {"/bin/sh", "script.sh"});
    return Start(arguments).Wait();
  }

  // The same with a disk of its own, `disk`, of so many KiB.
  Process::Result ShellWithDisk(int kib, const std::string& script) {
    fs::create_directory(Path("disk"));
    return Shell(absl::StrCat("mount -t tmpfs -o size=", kib, "k none disk || exit 77\n", script),
                 {"/usr/bin/unshare", "-rm"});
  }

  // How often `part` is in `text`.
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
};

TEST_F(SurroundingsTest, TrainsWithClosedStandardDescriptors) {
  const Process::Result result = Shell("exec $rubato train job.yaml --run-dir run <&- >&- 2>&-\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(Summary("run")["steps"], 40);
}

TEST_F(SurroundingsTest, AnAddressIsRefusedForItsOwnReason) {
  const Process::Result nowhere = StartTrain("run", {"cluster.address=nowhere.invalid:0"}).Wait();
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("the name nowhere.invalid is not known here"));
  const Process::Result other = StartTrain("run", {"cluster.address=192.0.2.1:0"}).Wait();
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("the address is not of this machine"));
}

TEST_F(SurroundingsTest, AResultThatCannotBePrintedIsAnError) {
  Train("run");
  const Process::Result result = Shell("exec $rubato inspect run > /dev/full\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: cannot write to standard output: No space left on device\n");
}

TEST_F(SurroundingsTest, DataThatHaveNoPlaceInMemoryAreRefused) {
  std::string rows;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&rows, i % 2, " 1:1 200000:1\n");
  Write("rows.svm", rows);
  Write("job.yaml", R"(version: 1
name: wide
data: {format: libsvm, path: rows.svm, test_fraction: 0.1}
model: {layers: [linear: {out_features: 2}]}
train: {batch_size: 10, until: {steps: 2}}
)");
  const Process::Result result = Shell("ulimit -v 2000000; exec $rubato train job.yaml --dry-run");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("rows.svm: found 5000 examples of 200000 features, "
                                    "which take 4.0 GB as dense floats; expected no more than "));
}

TEST_F(SurroundingsTest, AnEmbeddingThatIsTooSmallForTheTextIsRefused) {
  Write("text.txt", "the quick brown fox jumps over the lazy dog, and so on\n");
  Write("job.yaml", R"(version: 1
name: text
data: {format: text, path: text.txt, context: 4, test_fraction: 0.3}
model: {layers: [embedding: {embedding_dim: 8, num_embeddings: 10}, linear: {out_features: 40}]}
train: {batch_size: 2, until: {steps: 2}}
)");
  const Process::Result result = Start({"tools/rubato", "train", "job.yaml", "--dry-run"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(
      result.err,
      HasSubstr("model.layers[0] (embedding): num_embeddings: found 10, expected at least"));
}

}  // namespace
}  // namespace rubato
