#include "tools/command/export.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/parameters_file.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/export-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  return folder;
}

void WriteParameters(const std::string& path) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6}, bias = {-0.5, 0.25};
  TensorView first, second;
  first.info.name = "1.weight";
  first.info.shape = {2, 3};
  first.bytes = AsBytes(absl::MakeConstSpan(weight));
  second.info.name = "1.bias";
  second.info.shape = {2};
  second.bytes = AsBytes(absl::MakeConstSpan(bias));
  RUBATO_ASSERT_OK(WriteSafetensors(path, {first, second}, {{"step", "7"}}));
}

TEST(ExportTest, KeepsNamesShapesAndBits) {
  const std::string run = NewFolder();
  WriteParameters(run + "/parameters.safetensors");
  for (const std::string& from : {run, run + "/", run + "/parameters.safetensors"}) {
    const std::string to = NewFolder() + "/out.safetensors";
    const auto said = ExportParameters(from, to);
    RUBATO_ASSERT_OK(said);
    const auto before = SafetensorsReader::Open(run + "/parameters.safetensors");
    const auto after = SafetensorsReader::Open(to);
    RUBATO_ASSERT_OK(after);
    EXPECT_EQ(*TensorsDigest(*after), *TensorsDigest(*before));
    EXPECT_THAT(*said, HasSubstr("2 tensors, 8 parameters, digest " + *TensorsDigest(*before)));
    EXPECT_EQ(after->metadata().at("step"), "7");
    EXPECT_EQ(after->metadata().at("format"), "pt");
  }
}

TEST(ExportTest, OverwritesNothing) {
  const std::string run = NewFolder();
  WriteParameters(run + "/parameters.safetensors");
  const std::string file = run + "/parameters.safetensors";
  EXPECT_THAT(ExportParameters(run, file).status(),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("exists")));
  EXPECT_THAT(ExportParameters(run, run).status(),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("exists")));
  RUBATO_EXPECT_OK(SafetensorsReader::Open(file));
}

TEST(ExportTest, ErrorsSayWhatIsMissing) {
  const std::string folder = NewFolder();
  const std::string to = folder + "/out.safetensors";
  EXPECT_THAT(ExportParameters("/nowhere", to).status(),
              IsError(absl::StatusCode::kNotFound,
                      HasSubstr("found no /nowhere, expected a run's folder or a safetensors")));
  EXPECT_THAT(
      ExportParameters(folder, to).status(),
      IsError(absl::StatusCode::kNotFound, HasSubstr("found no parameters.safetensors in " +
                                                     folder + ", expected a run's folder")));
  std::ofstream(folder + "/job.yaml") << "version: 1\n";
  EXPECT_THAT(ExportParameters(folder, to).status(),
              IsError(absl::StatusCode::kNotFound, HasSubstr("has written no final parameters")));
  std::ofstream(folder + "/parameters.safetensors") << "damaged";
  EXPECT_THAT(ExportParameters(folder, to).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("parameters.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(to));
}

}  // namespace
}  // namespace rubato
