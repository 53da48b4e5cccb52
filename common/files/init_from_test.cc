#include "common/files/init_from.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAreArray;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;
};

proto::Layout LayoutOf(const std::vector<Tensor>& tensors) {
  proto::Layout layout;
  for (const Tensor& tensor : tensors) {
    proto::Parameter& parameter = *layout.add_parameters();
    parameter.set_name(tensor.name);
    for (const int64_t size : tensor.shape) parameter.add_shape(size);
  }
  return layout;
}

// A file whose numbers count up from 0, in the order given.
std::string FileOf(const std::vector<Tensor>& tensors) {
  static int files = 0;
  const std::string path = absl::StrCat(testing::TempDir(), "/init", files++, ".safetensors");
  std::vector<TensorInfo> infos;
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    TensorInfo info;
    info.name = tensor.name;
    info.shape = tensor.shape;
    info.dtype = tensor.dtype;
    bytes += info.Bytes();
    infos.push_back(info);
  }
  auto writer = SafetensorsWriter::Create(path, infos, {});
  RUBATO_EXPECT_OK(writer);
  std::vector<float> values(bytes / 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  RUBATO_EXPECT_OK(writer->Append(AsBytes(absl::MakeConstSpan(values))));
  RUBATO_EXPECT_OK(writer->Finish());
  return path;
}

const std::vector<Tensor> kModel = {
    {"1.weight", {3, 2}}, {"1.bias", {3}}, {"3.weight", {1, 3}}, {"3.bias", {1}}};

std::string Mismatch(const std::vector<Tensor>& tensors) {
  const std::string path = FileOf(tensors);
  const absl::Status status = OpenInitialParameters(path, LayoutOf(kModel)).status();
  EXPECT_EQ(status.ok() ? absl::StatusCode::kInvalidArgument : status.code(),
            absl::StatusCode::kInvalidArgument);
  std::string text(status.message());
  for (size_t at; (at = text.find(path)) != std::string::npos;) text.replace(at, path.size(), "F");
  return text;
}

TEST(InitFromTest, TheSameNamesAndShapesInAnyOrderFit) {
  EXPECT_EQ(Mismatch(kModel), "");
  EXPECT_EQ(Mismatch({kModel[3], kModel[1], kModel[0], kModel[2]}), "");
}

TEST(InitFromTest, MismatchesAreListedAllAtOnce) {
  EXPECT_EQ(Mismatch({kModel[0], kModel[3]}),
            "F: found no 1.bias, 3.weight, expected all 4 parameters of the model");
  std::vector<Tensor> more = kModel;
  more.push_back({"fc.weight", {2}});
  EXPECT_EQ(Mismatch(more), "F: found fc.weight, which the model does not have");
  EXPECT_EQ(Mismatch({{"1.weight", {2, 3}}, {"1.bias", {3, 1}}, kModel[2], kModel[3]}),
            "F: 1.weight: found shape (2, 3), expected (3, 2)\n"
            "F: 1.bias: found shape (3, 1), expected (3)");
  EXPECT_EQ(Mismatch({kModel[0], kModel[1], kModel[2], {"3.bias", {1}, Dtype::kI32}}),
            "F: 3.bias: found type I32, expected F32");
  EXPECT_EQ(Mismatch({{"0.weight", {3, 2}}, {"1.bias", {4}}, kModel[2], kModel[3]}),
            "F: found no 1.weight, expected all 4 parameters of the model\n"
            "F: found 0.weight, which the model does not have\n"
            "F: 1.bias: found shape (4), expected (3)");
}

TEST(InitFromTest, LongListsAreCut) {
  std::vector<Tensor> model, other;
  for (int i = 0; i < 13; ++i) {
    model.push_back({absl::StrCat("a", i), {1}});
    other.push_back({absl::StrCat("b", i), {1}});
  }
  const std::string path = FileOf(other);
  EXPECT_THAT(OpenInitialParameters(path, LayoutOf(model)).status(),
              IsError(absl::StatusCode::kInvalidArgument,
                      testing::AllOf(testing::HasSubstr("a9 and 3 more, expected all 13"),
                                     testing::HasSubstr("b9 and 3 more, which"))));
}

TEST(InitFromTest, MissingAndBrokenFilesAreTold) {
  EXPECT_EQ(OpenInitialParameters("/nowhere.safetensors", LayoutOf(kModel)).status().code(),
            absl::StatusCode::kNotFound);
}

// The file's order differs from the model's: values must follow the names.
TEST(InitFromTest, ReadsAnyRangeOfTheFlatVector) {
  const auto file =
      OpenInitialParameters(FileOf({kModel[2], kModel[0], kModel[3], kModel[1]}), LayoutOf(kModel));
  RUBATO_ASSERT_OK(file);
  // 3.weight holds 0 to 2, 1.weight 3 to 8, 3.bias 9, 1.bias 10 to 12.
  const std::vector<float> flat = {3, 4, 5, 6, 7, 8, 10, 11, 12, 0, 1, 2, 9};
  for (size_t begin = 0; begin <= flat.size(); ++begin) {
    for (size_t end = begin; end <= flat.size(); ++end) {
      std::vector<float> got(end - begin, -1);
      RUBATO_ASSERT_OK(ReadInitialValues(*file, LayoutOf(kModel), static_cast<int64_t>(begin),
                                         absl::MakeSpan(got)));
      EXPECT_THAT(got, ElementsAreArray(flat.begin() + begin, flat.begin() + end));
    }
  }
}

TEST(InitFrom, TakesPyTorchsCountOfBatches) {
  proto::Layout layout = LayoutOf({{"bn.weight", {2}}, {"bn.running_mean", {2}}});
  const std::vector<Tensor> tensors = {
      {"bn.num_batches_tracked", {}, Dtype::kI64}, {"bn.weight", {2}}, {"bn.running_mean", {2}}};
  RUBATO_EXPECT_OK(OpenInitialParameters(FileOf(tensors), layout));
  layout = LayoutOf({{"bn.weight", {2}}, {"fc.running_mean", {2}}});
  EXPECT_THAT(OpenInitialParameters(FileOf(tensors), layout).status().message(),
              testing::HasSubstr("found bn.num_batches_tracked, bn.running_mean, which the model"));
}

TEST(InitFromTest, RefusesWhatIsNotFinite) {
  const std::string path = absl::StrCat(testing::TempDir(), "/nan.safetensors");
  const std::vector<float> values = {0, 1, std::nanf(""), 3};
  TensorView tensor;
  tensor.info.name = "1.weight";
  tensor.info.shape = {4};
  tensor.bytes = AsBytes(absl::MakeConstSpan(values));
  RUBATO_ASSERT_OK(WriteSafetensors(path, {tensor}, {}));
  EXPECT_THAT(OpenInitialParameters(path, LayoutOf({{"1.weight", {4}}})),
              IsError(absl::StatusCode::kInvalidArgument,
                      path + ": 1.weight: found nan as value 2, expected finite numbers"));
}

}  // namespace
}  // namespace rubato
