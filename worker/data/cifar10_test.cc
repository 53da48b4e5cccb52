#include "worker/data/cifar10.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/test_files.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A record whose pixel at (channel, row, column) is a function of all three and of the label.
std::string Record(int label) {
  std::string record(1, static_cast<char>(label));
  for (int channel = 0; channel < 3; ++channel) {
    for (int i = 0; i < 32 * 32; ++i)
      record.push_back(static_cast<char>(label + 64 * channel + i % 50));
  }
  return record;
}

// Six files; batch i has the labels i and i + 1.
void WriteAll(const TestFolder& folder) {
  for (int i = 1; i <= 5; ++i) {
    folder.Write(absl::StrCat("data_batch_", i, ".bin"), Record(i) + Record(i + 1));
  }
  folder.Write("test_batch.bin", Record(9));
}

TEST(Cifar10, ReadsLabelsAndPlanesInOrder) {
  const TestFolder folder("cifar10");
  WriteAll(folder);
  const absl::StatusOr<Source> source = ReadCifar10(folder.Path(""));
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->train.labels, ElementsAre(1, 2, 2, 3, 3, 4, 4, 5, 5, 6));
  EXPECT_THAT(source->test.labels, ElementsAre(9));
  EXPECT_EQ(source->train.classes, 10);
  EXPECT_EQ(source->train.shape, (ExampleShape{3, 32, 32}));
  ASSERT_EQ(source->train.pixels.size(), 10u * 3072);
  EXPECT_EQ(source->train.pixels[3072 * 3 + 1024 * 2 + 33], 3 + 64 * 2 + 33);
  EXPECT_TRUE(source->classes.empty());
}

TEST(Cifar10, TheArchivesFolderGzipAndNamesAreTaken) {
  const TestFolder plain("cifar10_plain"), folder("cifar10_archive");
  WriteAll(plain);
  std::filesystem::create_directories(folder.Path("cifar-10-batches-bin"));
  const TestFolder inner("cifar10_archive_inner");
  WriteAll(inner);
  std::filesystem::remove(inner.Path("test_batch.bin"));
  inner.WriteGzip("test_batch.bin.gz", Record(9));
  inner.Write("batches.meta.txt",
              "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  std::filesystem::copy(inner.Path(""), folder.Path("cifar-10-batches-bin"),
                        std::filesystem::copy_options::recursive);
  const absl::StatusOr<Source> source = ReadCifar10(folder.Path(""));
  RUBATO_ASSERT_OK(source);
  ASSERT_EQ(source->classes.size(), 10u);
  EXPECT_EQ(source->classes[9], "truck");
  EXPECT_EQ(source->digest, ReadCifar10(plain.Path(""))->digest);
}

TEST(Cifar10, SaysWhatIsWrong) {
  const TestFolder folder("cifar10_wrong");
  EXPECT_THAT(ReadCifar10(folder.Path("none")),
              IsError(absl::StatusCode::kNotFound, HasSubstr("there is no such folder")));
  WriteAll(folder);
  std::filesystem::remove(folder.Path("data_batch_3.bin"));
  std::filesystem::remove(folder.Path("test_batch.bin"));
  EXPECT_THAT(ReadCifar10(folder.Path("")),
              IsError(absl::StatusCode::kNotFound,
                      HasSubstr("lacks data_batch_3.bin, test_batch.bin (also looked for")));
  WriteAll(folder);
  folder.Write("data_batch_2.bin", Record(1) + Record(1).substr(0, 100));
  EXPECT_THAT(ReadCifar10(folder.Path("")),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("data_batch_2.bin: holds 3173 bytes, expected whole records of "
                                "3073")));
  folder.Write("data_batch_2.bin", Record(1) + Record(10));
  EXPECT_THAT(ReadCifar10(folder.Path("")),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("data_batch_2.bin: record 1: found label 10, expected 0 to 9")));
  WriteAll(folder);
  folder.Write("batches.meta.txt", "airplane\n");
  EXPECT_THAT(ReadCifar10(folder.Path("")),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("holds 1 names, expected 10")));
}

}  // namespace
}  // namespace rubato
