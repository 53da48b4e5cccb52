#include "tools/command/inspect.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_matchers.h"
#include "common/files/bound_by_permissions.h"
#include "common/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InspectTest : public testing::Test {
 protected:
  InspectTest() : folder_(testing::TempDir() + "/inspect_XXXXXX") {
    EXPECT_NE(mkdtemp(&folder_[0]), nullptr);
  }

  // Writes one tensor and returns the words of its line.
  template <typename T>
  std::vector<std::string> LineOf(Dtype dtype, const std::vector<T>& values) {
    const std::string path = folder_ + "/one";
    RUBATO_EXPECT_OK(WriteSafetensors(path,
                                      {{{"x", dtype, {static_cast<int64_t>(values.size())}},
                                        AsBytes(absl::MakeConstSpan(values))}},
                                      {}));
    const absl::StatusOr<std::string> text = InspectText(path);
    EXPECT_THAT(text, IsOk());
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      if (absl::StartsWith(line, "x ")) return absl::StrSplit(line, ' ', absl::SkipEmpty());
    }
    return {};
  }

  std::string folder_;
};

TEST_F(InspectTest, PrintsAPage) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  const std::vector<float> bias = {0.5f, -0.5f};
  const std::vector<TensorView> tensors = {
      {{"1.weight", Dtype::kF32, {2, 3}}, AsBytes(absl::MakeConstSpan(weight))},
      {{"1.bias", Dtype::kF32, {2}}, AsBytes(absl::MakeConstSpan(bias))}};
  const std::string path = folder_ + "/parameters.safetensors";
  RUBATO_ASSERT_OK(WriteSafetensors(path, tensors, {{"step", "500"}}));
  const std::string expected = "file: " + path + R"(
name      dtype  shape   min  max  mean      std  non-finite
1.weight    F32  [2,3]     1    6   3.5  1.70783           0
1.bias      F32    [2]  -0.5  0.5     0      0.5           0
metadata: step = 500
total: 2 tensors, 8 parameters, 32 bytes
digest: )" + TensorsDigest(tensors) +
                               "\n";
  EXPECT_EQ(InspectText(path).value(), expected);
  // A run's folder stands for its final parameters.
  EXPECT_EQ(InspectText(folder_).value(), expected);
}

TEST_F(InspectTest, DigestDoesNotDependOnOrderOrMetadata) {
  const std::vector<float> a = {1}, b = {2};
  const TensorView view_a = {{"a", Dtype::kF32, {1}}, AsBytes(absl::MakeConstSpan(a))};
  const TensorView view_b = {{"b", Dtype::kF32, {1}}, AsBytes(absl::MakeConstSpan(b))};
  const auto last_line = [&](std::vector<TensorView> tensors, const Metadata& metadata) {
    RUBATO_EXPECT_OK(WriteSafetensors(folder_ + "/file", tensors, metadata));
    const std::string text = InspectText(folder_ + "/file").value();
    return text.substr(text.rfind("\ndigest: "));
  };
  EXPECT_EQ(last_line({view_a, view_b}, {}), last_line({view_b, view_a}, {{"k", "v"}}));
}

TEST_F(InspectTest, CountsWhatIsNotFiniteApart) {
  const float nan = std::nanf("");
  EXPECT_THAT(LineOf<float>(Dtype::kF32, {nan, 1, HUGE_VALF, 3, -HUGE_VALF}),
              ElementsAre("x", "F32", "[5]", "1", "3", "2", "1", "3"));
  EXPECT_THAT(LineOf<float>(Dtype::kF32, {nan}),
              ElementsAre("x", "F32", "[1]", "-", "-", "-", "-", "1"));
  EXPECT_THAT(LineOf<float>(Dtype::kF32, {}),
              ElementsAre("x", "F32", "[0]", "-", "-", "-", "-", "0"));
}

TEST_F(InspectTest, ASmallSpreadAroundALargeMeanIsNotLost) {
  std::vector<double> values(100000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1e9 + (i % 2 == 0 ? -1 : 1);
  EXPECT_THAT(LineOf<double>(Dtype::kF64, values),
              ElementsAre("x", "F64", "[100000]", "1e+09", "1e+09", "1e+09", "1", "0"));
}

TEST_F(InspectTest, ReadsEveryType) {
  // Half and bfloat16: 1, -2, infinity, and the least half above 0, 2^-24.
  EXPECT_THAT(LineOf<uint16_t>(Dtype::kF16, {0x3c00, 0xc000, 0x7c00}),
              ElementsAre("x", "F16", "[3]", "-2", "1", "-0.5", "1.5", "1"));
  EXPECT_THAT(
      LineOf<uint16_t>(Dtype::kF16, {0x0001, 0x7e00}),
      ElementsAre("x", "F16", "[2]", "5.96046e-08", "5.96046e-08", "5.96046e-08", "0", "1"));
  EXPECT_THAT(LineOf<uint16_t>(Dtype::kBF16, {0x3f80, 0xc000, 0x7f80}),
              ElementsAre("x", "BF16", "[3]", "-2", "1", "-0.5", "1.5", "1"));
  EXPECT_THAT(LineOf<int64_t>(Dtype::kI64, {-3, 5}),
              ElementsAre("x", "I64", "[2]", "-3", "5", "1", "4", "0"));
  EXPECT_THAT(LineOf<int32_t>(Dtype::kI32, {-3, 5}),
              ElementsAre("x", "I32", "[2]", "-3", "5", "1", "4", "0"));
  EXPECT_THAT(LineOf<int16_t>(Dtype::kI16, {-3, 5}),
              ElementsAre("x", "I16", "[2]", "-3", "5", "1", "4", "0"));
  EXPECT_THAT(LineOf<int8_t>(Dtype::kI8, {-3, 5}),
              ElementsAre("x", "I8", "[2]", "-3", "5", "1", "4", "0"));
  EXPECT_THAT(LineOf<uint64_t>(Dtype::kU64, {3, 5}),
              ElementsAre("x", "U64", "[2]", "3", "5", "4", "1", "0"));
  EXPECT_THAT(
      LineOf<uint32_t>(Dtype::kU32, {3, 4294967295u}),
      ElementsAre("x", "U32", "[2]", "3", "4.29497e+09", "2.14748e+09", "2.14748e+09", "0"));
  EXPECT_THAT(LineOf<uint16_t>(Dtype::kU16, {3, 65535}),
              ElementsAre("x", "U16", "[2]", "3", "65535", "32769", "32766", "0"));
  EXPECT_THAT(LineOf<uint8_t>(Dtype::kU8, {3, 255}),
              ElementsAre("x", "U8", "[2]", "3", "255", "129", "126", "0"));
  EXPECT_THAT(LineOf<uint8_t>(Dtype::kBool, {0, 1}),
              ElementsAre("x", "BOOL", "[2]", "0", "1", "0.5", "0.5", "0"));
}

TEST_F(InspectTest, SaysWhatMayNotBeLookedAt) {
  const BoundByPermissions bound;
  for (const std::string& path : {folder_, folder_ + "/checkpoints/step-00000001"}) {
    chmod(folder_.c_str(), 0);
    EXPECT_THAT(InspectText(path), IsError(absl::StatusCode::kPermissionDenied,
                                           "cannot open " + path + ": Permission denied"));
    chmod(folder_.c_str(), 0700);
  }
}

TEST_F(InspectTest, SaysWhatIsMissingOrDamaged) {
  EXPECT_THAT(InspectText(folder_ + "/missing"),
              IsError(absl::StatusCode::kNotFound,
                      AllOf(HasSubstr("/missing"), HasSubstr("expected a run's folder"))));
  EXPECT_THAT(InspectText(folder_),
              IsError(absl::StatusCode::kNotFound,
                      HasSubstr("found no parameters.safetensors in " + folder_)));
  const std::string checkpoint = folder_ + "/checkpoints/step-00000001";
  std::filesystem::create_directories(checkpoint);
  for (const std::string& file : {folder_ + "/job.yaml", checkpoint + "/COMPLETE"}) {
    std::ofstream(file) << "";
  }
  EXPECT_THAT(InspectText(folder_), IsError(absl::StatusCode::kNotFound,
                                            AllOf(HasSubstr("no whole checkpoint; passed over: "),
                                                  HasSubstr("manifest.json"))));
  std::ofstream(folder_ + "/parameters.safetensors") << "nonsense";
  EXPECT_THAT(InspectText(folder_), IsError(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("not a whole safetensors file")));
}

}  // namespace
}  // namespace rubato
