#include "worker/data/libsvm.h"

#include "absl/strings/str_cat.h"
#include "common/base/host_memory.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/source.h"
#include "worker/data/test_files.h"
#include "worker/data/test_mutations.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kRows[] = "+1 1:0.5 3:-2 # a remark 9:9\n-1\n\n-1 2:1e-1\t3:4 \r\n";

class LibsvmTest : public ::testing::Test {
 protected:
  LibsvmTest() { config_.set_format(proto::Data::FORMAT_LIBSVM); }

  absl::StatusOr<Source> Read(const std::string& text, bool classification = true) {
    config_.set_path(folder_.Write("t.svm", text));
    return ReadLibsvm(config_, classification);
  }
  void ExpectWrong(const std::string& text, const std::string& place, const std::string& sentence) {
    EXPECT_THAT(Read(text),
                IsError(kInvalid, AllOf(StartsWith(absl::StrCat(folder_.Path("t.svm"), place)),
                                        HasSubstr(sentence))));
  }

  const TestFolder folder_{"libsvm_test"};
  proto::Data config_;
};

TEST_F(LibsvmTest, ReadsSparseRowsIntoDenseOnes) {
  const auto source = Read(kRows);
  RUBATO_ASSERT_OK(source);
  EXPECT_EQ(source->train.shape, (ExampleShape{3, 0, 0}));
  EXPECT_EQ(source->quantities, 3);
  EXPECT_THAT(source->train.features, ElementsAre(0.5f, 0, -2, 0, 0, 0, 0, 0.1f, 4));
  EXPECT_THAT(source->classes, ElementsAre("-1", "1"));
  EXPECT_THAT(source->train.labels, ElementsAre(1, 0, 0));
}

TEST_F(LibsvmTest, ReadsTheSameFromGzip) {
  const std::string digest = Read(kRows)->digest;
  config_.set_path(folder_.WriteGzip("t.svm.gz", kRows));
  EXPECT_EQ(ReadLibsvm(config_, true)->digest, digest);
}

TEST_F(LibsvmTest, ReadsValuesToo) {
  config_.set_target_scale(10);
  EXPECT_THAT(Read("25 1:1\n-5 1:2\n", false)->train.values, ElementsAre(2.5f, -0.5f));
}

TEST_F(LibsvmTest, CountsFromZeroWhereAsked) {
  config_.set_index_base(0);
  EXPECT_THAT(Read("0 0:1 2:3\n1 1:5\n")->train.features, ElementsAre(1, 0, 3, 0, 5, 0));
}

TEST_F(LibsvmTest, IsAsWideAsTheWiderFileOrAsItIsTold) {
  config_.set_test_path(folder_.Write("test.svm", "-1 5:1\n"));
  EXPECT_EQ(Read(kRows)->train.shape.channels, 5);
  EXPECT_THAT(Read(kRows)->test.features, ElementsAre(0, 0, 0, 0, 1));
  config_.set_features(8);
  EXPECT_EQ(Read(kRows)->test.shape.channels, 8);
  config_.set_features(4);
  EXPECT_THAT(Read(kRows), IsError(kInvalid, HasSubstr("test.svm:1: field 2: found \"5:1\", "
                                                       "expected an index of at most 4")));
}

TEST_F(LibsvmTest, NamesLineAndFieldOfWhatIsWrong) {
  ExpectWrong("1 1:1\n1 2:x\n", ":2: field 2: found \"2:x\"", "expected INDEX:VALUE");
  ExpectWrong("1 1:1\n1 2\n", ":2: field 2: found \"2\"", "expected INDEX:VALUE");
  ExpectWrong("1 qid:3 1:1\n", ":1: field 2: found \"qid:3\"", "expected INDEX:VALUE");
  ExpectWrong("1 1:nan\n", ":1: field 2: ", "expected INDEX:VALUE");
  ExpectWrong("1 0:1\n", ":1: field 2: ", "expected an index from 1 on (data.index_base)");
  ExpectWrong("1 2:1 2:3\n", ":1: field 3: found \"2:3\"", "expected an index above 2");
  ExpectWrong("1 99999999:1\n", ":1: field 2: ", "expected an index of at most 1048576");
  ExpectWrong("1 99999999999999999999:1\n", ":1: field 2: ", "expected INDEX:VALUE");
  ExpectWrong("1:1 2:1\n", ":1: field 1: found \"1:1\"", "expected a label");
  ExpectWrong("1\n0\n", ": has no features", "expected at least one field INDEX:VALUE");
  ExpectWrong("# nothing\n\n", ": holds no lines with a label", "");
  ExpectWrong("nan 1:1\n1 1:2\n", ":1: field 1: found \"nan\"", "expected a label");
  ExpectWrong("", ": is empty", "expected data");
  EXPECT_THAT(Read("x 1:1\n", false), IsError(kInvalid, HasSubstr(":1: field 1: found \"x\", "
                                                                  "expected a number")));
}

TEST_F(LibsvmTest, RefusesWhatHasNoPlaceInMemoryBeforeItIsMade) {
  std::string rows;
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&rows, i % 2, " 1:1 1000000:1\n");
  EXPECT_THAT(
      Read(rows),
      IsError(kInvalid,
              HasSubstr("t.svm: found 100000 examples of 1000000 features, which take 400.0 GB as "
                        "dense floats; expected no more than the ")));
}

// Splits are taken out into other memory.
TEST(CheckSizeTest, CountsWhatIsTakenOutTwice) {
  const int64_t floats = *AvailableMemory() / sizeof(float) * 3 / 4;
  proto::Data config;
  RUBATO_EXPECT_OK(CheckSize(config, "file", 1, floats));
  config.set_test_fraction(0.5);
  config.mutable_validation()->set_fraction(0.5);
  EXPECT_THAT(CheckSize(config, "file", 1, floats),
              IsError(kInvalid, HasSubstr(" as dense floats with the splits; expected ")));
}

TEST_F(LibsvmTest, RefusesOtherLineEndsAndEncodings) {
  ExpectWrong("1 1:1\r0 1:2\r", ": found lines that end by CR alone", "expected LF or CRLF");
  ExpectWrong(std::string("\xff\xfe\x31\0 \0", 6), ": found text in UTF-16", "expected UTF-8");
  RUBATO_EXPECT_OK(
      Read("\xef\xbb\xbf"
           "1 1:1\r\n0 1:2\r\n"));
}

TEST_F(LibsvmTest, SurvivesMutations) {
  ExpectSurvivesMutations(kRows, " :\n\r.-#e19", "t.svm",
                          [this](const std::string& text, bool) { return Read(text); });
}

}  // namespace
}  // namespace rubato
