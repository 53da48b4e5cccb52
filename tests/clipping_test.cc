// Clipping by the global norm, as real processes do it, against PyTorch's clip_grad_norm_ in
// float64. Every step is on all examples, so that their order does not matter.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_matchers.h"
#include "common/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/golden.h"

namespace rubato {
namespace {

struct Shape {
  const char* name;
  const char* mode;
  int workers, servers, micro_batches;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class ClippingTest : public ClusterTest, public testing::WithParamInterface<Shape> {
 protected:
  const Golden golden_{"clipped_trajectories.safetensors"};

  // The examples as a table that gives the same float32 back.
  std::string Table(const std::string& targets) const {
    const std::vector<float> features = golden_.Values<float>("features");
    const std::vector<double> target = golden_.Values<double>(targets);
    const int64_t width = golden_.Shape("features")[1];
    std::string text;
    for (int64_t i = 0; i < width; ++i) absl::StrAppend(&text, "x", i, ",");
    text += "target\n";
    for (size_t row = 0; row < target.size(); ++row) {
      for (int64_t i = 0; i < width; ++i) {
        absl::StrAppendFormat(&text, "%.9g,", features[row * width + i]);
      }
      absl::StrAppendFormat(&text, "%.9g\n", target[row]);
    }
    return text;
  }

  void WriteInitial(const std::string& model, const std::string& path) const {
    std::vector<std::vector<float>> values;
    std::vector<TensorView> tensors;
    for (const std::string name : {"0.weight", "0.bias", "2.weight", "2.bias"}) {
      values.push_back(golden_.Values<float>(model + "/" + name));
      tensors.push_back(
          {{name, Dtype::kF32, golden_.Shape(model + "/" + name)}, AsBytes<float>(values.back())});
    }
    RUBATO_ASSERT_OK(WriteSafetensors(path, tensors, {}));
  }

  // The norm of a run's parameters less PyTorch's, over that of PyTorch's.
  double Distance(const std::string& run, const std::string& prefix) const {
    const auto file = SafetensorsReader::Open(Path(run + "/parameters.safetensors"));
    RUBATO_EXPECT_OK(file);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < file->tensors().size(); ++i) {
      const TensorInfo& info = file->tensors()[i];
      std::vector<float> found(info.Elements());
      RUBATO_EXPECT_OK(
          file->Read(i, 0, absl::MakeSpan(reinterpret_cast<char*>(found.data()), info.Bytes())));
      const std::vector<double> expected = golden_.Values<double>(prefix + info.name);
      EXPECT_EQ(found.size(), expected.size());
      for (size_t k = 0; k < found.size(); ++k) {
        difference += std::pow(found[k] - expected[k], 2);
        norm += std::pow(expected[k], 2);
      }
    }
    return std::sqrt(difference / norm);
  }
};

TEST_P(ClippingTest, FollowsPyTorch) {
  ASSERT_EQ(golden_.metadata().size(), 4u);
  for (const auto& [key, optimizer] : golden_.metadata()) {
    SCOPED_TRACE(absl::StrCat(key, " ", optimizer));
    const std::string model = key.substr(0, key.find('/'));
    const bool classes = model == "classes";
    const std::string run = absl::StrCat(model, "-", key.substr(model.size() + 1));
    WriteInitial(model, Path(model + ".safetensors"));
    Write(model + ".csv", Table(classes ? "labels" : "values"));
    Write(
        "job.yaml",
        absl::StrFormat("version: 1\n"
                        "name: clipped\n"
                        "cluster: {servers: %d, workers: %d, address: '127.0.0.1:0'}\n"
                        "data: {format: csv, path: %s.csv, test_path: %s.csv, target: target}\n"
                        "model:\n"
                        "  layers: [linear: {out_features: 24}, tanh, linear: {out_features: %d}]\n"
                        "  init_from: %s.safetensors\n"
                        "loss: %s\n"
                        "optimizer: %s\n"
                        "consistency: %s\n"
                        "wire: {chunk: 1KiB}\n"
                        "train: {batch_size: 96, micro_batches: %d, until: {steps: 20}}\n"
                        "metrics: {every: {steps: 1}}\n",
                        GetParam().servers, GetParam().workers, model, model, classes ? 10 : 1,
                        model, classes ? "cross_entropy" : "mse", optimizer, GetParam().mode,
                        GetParam().micro_batches));
    Train(run);
    const std::vector<double> losses = golden_.Values<double>(key + "/losses");
    const std::vector<nlohmann::json> lines = Metrics(run, "train");
    ASSERT_EQ(lines.size(), losses.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(lines[i]["loss"], losses[i], 1e-5 * losses[i]) << "step " << i;
    }
    const double distance = Distance(run, key + "/");
    EXPECT_LE(distance, 1e-6);
    std::cout << key << ": parameters " << distance << " from PyTorch's" << std::endl;
  }
}

INSTANTIATE_TEST_SUITE_P(, ClippingTest,
                         testing::Values(Shape{"OneOfEach", "sync", 1, 1, 1},
                                         Shape{"Sync", "sync", 2, 3, 6},
                                         // One contribution is the whole batch.
                                         Shape{"Async", "async", 1, 2, 1}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rubato
