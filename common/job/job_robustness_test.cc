// Whatever the bytes, the answer is a job or a list of mistakes.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

std::string Quickstart() {
  std::ostringstream text;
  text << std::ifstream("configs/quickstart.yaml").rdbuf();
  return text.str();
}

absl::StatusOr<proto::Job> Load(absl::string_view text,
                                const std::vector<std::string>& overrides = {}) {
  const std::string file = testing::TempDir() + "/job.yaml";
  std::ofstream(file, std::ios::binary) << text;
  return LoadJob(file, overrides);
}

// `text` with one to three slips: characters inserted, changed, dropped, pieces repeated.
std::string Mutate(std::string text, RandomStream* random) {
  const std::string alphabet = "{}[]:,-#&*!|>'\"%@`?~<=. \n\t\r\\0123456789abcnulltruefalse";
  for (int i = 1 + random->Below(3); i > 0 && !text.empty(); --i) {
    const size_t at = random->Below(static_cast<uint32_t>(text.size()));
    const size_t length = std::min<size_t>(random->Below(20), text.size() - at);
    switch (random->Below(5)) {
      case 0:
        text.insert(at, 1, alphabet[random->Below(static_cast<uint32_t>(alphabet.size()))]);
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random->Below(256)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(random->Below(static_cast<uint32_t>(text.size())), text.substr(at, length));
        break;
      case 4:
        text[at] = static_cast<char>(text[at] ^ (1 << random->Below(8)));
        break;
    }
  }
  return text;
}

// Checks the answer to any input; true if it is a job.
bool IsJob(const absl::StatusOr<proto::Job>& job) {
  if (job.ok()) {
    const absl::StatusOr<proto::Job> again = Load(ResolvedYaml(*job));
    RUBATO_EXPECT_OK(again);
    EXPECT_TRUE(again.ok() && MessageDifferencer::Equals(*job, *again));
    return true;
  }
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
  const std::string file = testing::TempDir() + "/job.yaml:";
  for (absl::string_view line : absl::StrSplit(job.status().message(), '\n')) {
    EXPECT_TRUE(absl::StartsWith(line, file) || absl::StartsWith(line, "--set ") ||
                absl::StartsWith(line, "and "))
        << line;
    EXPECT_LT(line.size(), file.size() + 400) << line;
    EXPECT_TRUE(std::none_of(line.begin(), line.end(), absl::ascii_iscntrl)) << line;
  }
  return false;
}

TEST(JobRobustnessTest, NoMutationOfAJobIsFatal) {
  const std::string good = Quickstart();
  ASSERT_TRUE(IsJob(Load(good)));
  int jobs = 0, refused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream random(Key(seed, "mutation"));
    ++(IsJob(Load(Mutate(good, &random))) ? jobs : refused);
  }
  // Both happen, or the mutations are too tame or too wild.
  EXPECT_GT(jobs, 100);
  EXPECT_GT(refused, 400);
}

TEST(JobRobustnessTest, NoMutationOfAnOverrideIsFatal) {
  const std::string good = Quickstart();
  const std::vector<std::string> kOverrides = {
      "train.until={epochs: 1}", "model.layers=[flatten, {linear: {out_features: 10}}]",
      "cluster.start_timeout=200ms", "optimizer={schedule: {name: step, every: {steps: 5}}}"};
  int jobs = 0, refused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream random(Key(seed, "override"));
    const std::string& assignment = kOverrides[random.Below(4)];
    ++(IsJob(Load(good, {Mutate(assignment, &random)})) ? jobs : refused);
  }
  EXPECT_GT(jobs, 0);
  EXPECT_GT(refused, 500);
}

TEST(JobRobustnessTest, AFewLinesThatUnfoldToBillionsAreHarmless) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i) {
    absl::StrAppend(&text, "a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  }
  absl::StrAppend(&text, "model: {layers: *a59}\n", "data: &d {format: *d, normalize: *d}\n");
  EXPECT_THAT(Load(text), IsError(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("found aliases (*) within what they stand for")));
}

TEST(JobRobustnessTest, DeepNestingIsRefused) {
  for (const char* piece : {"[", "{", "- ", "? ", "{a: ", "a: [", "&a ", "!a "}) {
    std::string text;
    while (text.size() < 200000) text += piece;
    EXPECT_FALSE(IsJob(Load(text))) << piece;
  }
}

}  // namespace
}  // namespace rubato
