#include "worker/data/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// The bytes of an IDX file of unsigned bytes.
std::string Idx(const std::vector<uint32_t>& dimensions, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(dimensions.size())};
  for (uint32_t dimension : dimensions) {
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(dimension >> shift));
  }
  return bytes + values;
}

std::string Gzip(const std::string& bytes, const std::string& path) {
  gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, bytes.data(), bytes.size()), static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// A folder that holds a good small data set: three images of 1 x 2 pixels and one for the test.
class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("train-images-idx3-ubyte", Idx({3, 1, 2}, "abcdef"));
    Write("train-labels-idx1-ubyte", Idx({3}, {2, 0, 1}));
    Write("t10k-images-idx3-ubyte", Idx({1, 1, 2}, "gh"));
    Write("t10k-labels-idx1-ubyte", Idx({1}, {1}));
  }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  void Remove(const std::string& name) { std::filesystem::remove(Path(name)); }
  // The reading must fail, naming the file.
  void ExpectWrong(const std::string& name, const std::string& sentence) {
    EXPECT_THAT(ReadIdxFolder(folder_),
                IsError(kInvalid, AllOf(HasSubstr(Path(name)), HasSubstr(sentence))));
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/idx_test.", getpid());
};

TEST_F(IdxTest, ReadsTheFourFiles) {
  const auto folder = ReadIdxFolder(folder_);
  RUBATO_ASSERT_OK(folder);
  EXPECT_EQ(folder->train.shape, (ExampleShape{1, 1, 2}));
  EXPECT_THAT(folder->train.pixels, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(folder->train.labels, ElementsAre(2, 0, 1));
  EXPECT_EQ(folder->train.classes, 3);
  EXPECT_THAT(folder->test.pixels, ElementsAre('g', 'h'));
  EXPECT_THAT(folder->test.labels, ElementsAre(1));
  EXPECT_EQ(folder->test.classes, 3);
}

TEST_F(IdxTest, DigestIsOfWhatIsInTheFilesNotOfHowTheyArePacked) {
  const std::string plain = ReadIdxFolder(folder_)->digest;
  const std::string gzip = Gzip(Idx({3, 1, 2}, "abcdef"), Path("packed"));
  Remove("train-images-idx3-ubyte");
  Write("train-images.idx3-ubyte.gz", gzip);
  EXPECT_EQ(ReadIdxFolder(folder_)->digest, plain);
  Write("t10k-labels-idx1-ubyte", Idx({1}, {2}));
  EXPECT_NE(ReadIdxFolder(folder_)->digest, plain);
}

TEST_F(IdxTest, FindsFilesUnderTheirNamesWithADot) {
  Remove("t10k-labels-idx1-ubyte");
  Write("t10k-labels.idx1-ubyte", Idx({1}, {0}));
  const auto folder = ReadIdxFolder(folder_);
  RUBATO_ASSERT_OK(folder);
  EXPECT_THAT(folder->test.labels, ElementsAre(0));
}

TEST_F(IdxTest, NamesAllMissingFilesAtOnce) {
  Remove("train-labels-idx1-ubyte");
  Remove("t10k-images-idx3-ubyte");
  EXPECT_THAT(ReadIdxFolder(folder_),
              IsError(absl::StatusCode::kNotFound,
                      AllOf(HasSubstr(folder_), HasSubstr("train-labels-idx1-ubyte"),
                            HasSubstr("t10k-images-idx3-ubyte"), Not(HasSubstr("train-images")))));
}

TEST_F(IdxTest, NamesAFolderThatIsNotThere) {
  EXPECT_THAT(ReadIdxFolder(Path("nowhere")),
              IsError(absl::StatusCode::kNotFound,
                      AllOf(HasSubstr(Path("nowhere")), HasSubstr("download_data"))));
}

TEST_F(IdxTest, NamesAFileThatIsAFolder) {
  Remove("t10k-images-idx3-ubyte");
  std::filesystem::create_directory(Path("t10k-images-idx3-ubyte"));
  const auto folder = ReadIdxFolder(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("t10k-images-idx3-ubyte"));
}

TEST_F(IdxTest, RefusesWhatIsNoIdxFile) {
  Write("train-images-idx3-ubyte", "<!DOCTYPE html>");
  ExpectWrong("train-images-idx3-ubyte",
              R"(is no IDX file: begins with the bytes "3c21444f", expected "00000803")");
  Write("train-images-idx3-ubyte", "");
  ExpectWrong("train-images-idx3-ubyte", "is empty");
}

TEST_F(IdxTest, RefusesValuesThatAreNotBytes) {
  Write("train-images-idx3-ubyte", std::string({0, 0, 0x0d, 3}));
  ExpectWrong("train-images-idx3-ubyte", "values of type 0x0d, expected 0x08, unsigned bytes");
}

TEST_F(IdxTest, RefusesLabelsWhereImagesShouldBe) {
  Write("train-images-idx3-ubyte", Idx({3}, {2, 0, 1}));
  ExpectWrong("train-images-idx3-ubyte",
              "has 1 dimension, expected 3 (count, height, width) of images");
}

TEST_F(IdxTest, RefusesATruncatedHeader) {
  Write("train-images-idx3-ubyte", Idx({3, 1, 2}, "").substr(0, 15));
  ExpectWrong("train-images-idx3-ubyte", "is cut off: its header has 15 bytes, expected 16");
}

TEST_F(IdxTest, RefusesTruncatedValues) {
  Write("train-images-idx3-ubyte", Idx({3, 1, 2}, "abcde"));
  ExpectWrong("train-images-idx3-ubyte", "is cut off: holds 5 values, expected the 6 (3 x 1 x 2)");
}

TEST_F(IdxTest, RefusesTrailingBytes) {
  Write("train-images-idx3-ubyte", Idx({3, 1, 2}, "abcdefg"));
  ExpectWrong("train-images-idx3-ubyte", "goes on after the 6 values (3 x 1 x 2)");
}

// Nothing may be allocated for what the headers claim: the first claims half a terabyte.
TEST_F(IdxTest, RefusesHugeClaimsWithoutBelievingThem) {
  Write("train-images-idx3-ubyte", Idx({1 << 30, 16, 32}, "abcdef"));
  ExpectWrong("train-images-idx3-ubyte", "is cut off: holds 6 values, expected the 549755813888");
  Write("train-images-idx3-ubyte", Idx({0xffffffff, 0xffffffff, 0xffffffff}, "abcdef"));
  ExpectWrong("train-images-idx3-ubyte", "4294967295 x 4294967295 x 4294967295");
}

TEST_F(IdxTest, RefusesEmptySplits) {
  Write("t10k-images-idx3-ubyte", Idx({0, 1, 2}, ""));
  ExpectWrong("t10k-images-idx3-ubyte", "holds no images: its header says 0 x 1 x 2");
}

TEST_F(IdxTest, RefusesCountsThatDiffer) {
  Write("train-labels-idx1-ubyte", Idx({2}, {2, 0}));
  ExpectWrong("train-labels-idx1-ubyte", "holds 2 labels, but ");
  ExpectWrong("train-images-idx3-ubyte", "holds 3 images");
}

TEST_F(IdxTest, RefusesTestImagesOfAnotherSize) {
  Write("t10k-images-idx3-ubyte", Idx({1, 2, 1}, "gh"));
  ExpectWrong("t10k-images-idx3-ubyte", "holds images of 2 x 1 pixels, but ");
}

TEST_F(IdxTest, RefusesTestLabelsThatTrainingNeverShows) {
  Write("t10k-images-idx3-ubyte", Idx({2, 1, 2}, "ghij"));
  Write("t10k-labels-idx1-ubyte", Idx({2}, {2, 7}));
  ExpectWrong("t10k-labels-idx1-ubyte", "has label 7 at place 1, but the largest in ");
}

TEST_F(IdxTest, RefusesDamagedGzip) {
  // Values that do not compress, so that bytes in the middle are data.
  std::string values;
  for (uint32_t i = 0; i < 6000; ++i) values.push_back(static_cast<char>(i * i * 7919 >> 8));
  const std::string gzip = Gzip(Idx({3, 1, 2000}, values), Path("packed"));
  Remove("train-images-idx3-ubyte");
  const std::string name = "train-images-idx3-ubyte.gz";

  std::string damaged = gzip;
  damaged[gzip.size() - 8] ^= 1;  // the checksum
  Write(name, damaged);
  ExpectWrong(name, "has damaged gzip data");

  for (size_t size : {gzip.size() / 2, gzip.size() - 4}) {
    Write(name, gzip.substr(0, size));
    ExpectWrong(name, "is cut off");
  }
}

// The originals' authors state counts and, in every tutorial, mean and deviation; the digest is
// that of `zcat` of the four files and `sha256sum`.
TEST(IdxRealDataTest, ReadsFashionMnist) {
  const char* root = std::getenv("RUBATO_TEST_DATA");
  if (root == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  const auto folder = ReadIdxFolder(absl::StrCat(root, "/fashion-mnist"));
  RUBATO_ASSERT_OK(folder);
  EXPECT_EQ(folder->digest, "14410854cf7a289477dcfc7df3f8ec24741e281cdcc425ede0d9a748ca630214");
  for (const auto& [split, per_class] : {std::pair(&folder->train, 6000), {&folder->test, 1000}}) {
    EXPECT_EQ(split->shape, (ExampleShape{1, 28, 28}));
    EXPECT_EQ(split->classes, 10);
    EXPECT_EQ(split->pixels.size(), 7840u * per_class);
    std::map<int, int> histogram;
    for (uint8_t label : split->labels) ++histogram[label];
    EXPECT_EQ(histogram.size(), 10u);
    for (const auto& [label, count] : histogram) EXPECT_EQ(count, per_class) << "label " << label;
  }
  double sum = 0, squares = 0;
  for (uint8_t pixel : folder->train.pixels) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * (pixel / 255.0);
  }
  const double mean = sum / folder->train.pixels.size();
  EXPECT_NEAR(mean, 0.2860, 0.00005);
  EXPECT_NEAR(std::sqrt(squares / folder->train.pixels.size() - mean * mean), 0.3530, 0.00005);
}

}  // namespace
}  // namespace rubato
