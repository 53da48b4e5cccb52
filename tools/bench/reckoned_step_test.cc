#include "tools/bench/reckoned_step.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/bench/kernel_facts.h"
#include "tools/bench/published.h"
#include "tools/bench/reckoning.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

BenchSubject SmallMlp() {
  BenchSubject subject;
  subject.model = "{preset: mlp, hidden: [20]}";
  subject.shape = {5};
  subject.classes = 7;
  subject.batch = 2;
  return subject;
}

nlohmann::json Reckoned(const BenchSubject& subject, int64_t accumulate = 1) {
  const absl::StatusOr<std::string> text = ReckonStep(subject, accumulate, "h100", /*json=*/true);
  RUBATO_EXPECT_OK(text);
  return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
}

// By pencil: all that a step of 2 examples has to do, of 5 x 20 and 20 x 7 weights, in float32.
TEST(ReckonedStep, IsWhatPencilSaysOfASmallModel) {
  struct Row {
    int64_t times;
    double bytes, flop;
  };
  const double parameters = 4 * (5 * 20 + 20 + 20 * 7 + 7);
  const std::map<std::string, Row> rows = {
      // x, weight and bias are read, y is written.
      {"2 x 20 x 5, nt, with bias", {1, 4 * (2 * 5 + 20 * 5 + 20 + 2 * 20), 2 * 2 * 5 * 20}},
      {"2 x 7 x 20, nt, with bias", {1, 4 * (2 * 20 + 7 * 20 + 7 + 2 * 7), 2 * 2 * 20 * 7}},
      {"7 x 20 x 2, tn", {1, 4 * (2 * 7 + 2 * 20 + 7 * 20), 2 * 2 * 20 * 7}},
      {"2 x 20 x 7, nn", {1, 4 * (2 * 7 + 7 * 20 + 2 * 20), 2 * 2 * 20 * 7}},
      {"20 x 5 x 2, tn", {1, 4 * (2 * 20 + 2 * 5 + 20 * 5), 2 * 2 * 5 * 20}},
      {"SumColumns<Column<float>,4>", {1, 4 * (2 * 20 + 20), 0}},
      {"SumColumns<Column<float>,1>", {1, 4 * (2 * 7 + 7), 0}},
      {"ForEachIndex<Apply<float,ReluFunction>>", {1, 4 * 2 * 40, 0}},
      {"ForEachIndex<Combine<float,ReluFunction>>", {1, 4 * 3 * 40, 0}},
      // The loss's sums, and a flag for each layer and one.
      {"ForEachIndex<Zero<double>>", {1, 3 * 8 + 4 * 8, 0}},
      {"ForEachIndex<FlagNonFinite<float,1>>", {1, parameters, 0}},
      // Logits, labels and a factor; their gradient, and two sums a row.
      {"CrossEntropyRow<float,false>", {1, 4 * (14 + 2 + 1 + 14) + 2 * 16, 0}},
      {"SumRows", {1, 2 * 16 + 16, 0}},
      // Parameters; features, a key for each of linear, ReLU and linear, two factors and labels.
      // The gradient and its flag; three sums.
      {"to the GPU", {5, parameters + 4 * 10 + 3 * 8 + 2 * 4 + 2 * 4, 0}},
      {"from the GPU", {3, parameters + 8 + 3 * 8, 0}},
  };
  const nlohmann::json object = Reckoned(SmallMlp());
  EXPECT_EQ(object["work"].size(), rows.size());
  double seconds = 0;
  for (const nlohmann::json& row : object["work"]) {
    SCOPED_TRACE(row);
    const auto found = rows.find(row["name"]);
    ASSERT_NE(found, rows.end());
    EXPECT_EQ(row["times"], found->second.times);
    EXPECT_EQ(row["bytes"], found->second.bytes);
    EXPECT_EQ(row["flop"], found->second.flop);
    seconds += row["milliseconds"].get<double>() * 1e-3;
  }
  // All is so small that each piece but the zeros takes a load's time and a start; a copy its
  // bytes' and a start.
  const double copies = (2 * parameters + 40 + 24 + 8 + 8 + 8 + 24) / (32e9 * 16 * 128 / 130 / 8);
  EXPECT_NEAR(seconds, 21 * kLaunchSeconds + 12 * kLoadSeconds + copies + 56 / 3.35e12, 1e-12);
  double parts = 0;
  for (const nlohmann::json& part : object["parts"]) parts += part["milliseconds"].get<double>();
  EXPECT_NEAR(parts * 1e-3, seconds, 1e-12);
  EXPECT_LT(object["milliseconds"].get<double>() * 1e-3, seconds + 1e-12);
}

TEST(ReckonedStep, SaysThatItIsAReckoning) {
  EXPECT_THAT(*ReckonStep(SmallMlp(), 1, "h200", false), StartsWith("reckoned, not measured: "));
  const nlohmann::json object = Reckoned(SmallMlp());
  EXPECT_EQ(object["reckoned"], true);
  EXPECT_THAT(object["note"].get<std::string>(), StartsWith("reckoned, not measured: "));
  EXPECT_THAT(ReckonStep(SmallMlp(), 1, "h1000", false),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("found --model-of-device h1000, expected one of a100, h100")));
}

// Parameters and gradient cross once, whatever is added up on the GPU.
TEST(ReckonedStep, AddsUpBatches) {
  const auto bytes_of = [](const nlohmann::json& object, const std::string& name) {
    for (const nlohmann::json& row : object["work"]) {
      if (row["name"] == name) return row["bytes"].get<double>();
    }
    return 0.0;
  };
  const nlohmann::json one = Reckoned(SmallMlp()), many = Reckoned(SmallMlp(), 8);
  const double sums = 3 * 8, inputs = 40 + 24 + 8 + 8;
  EXPECT_EQ(bytes_of(many, "from the GPU"), bytes_of(one, "from the GPU") + 7 * sums);
  EXPECT_EQ(bytes_of(many, "to the GPU"), bytes_of(one, "to the GPU") + 7 * inputs);
  EXPECT_EQ(bytes_of(many, "2 x 20 x 7, nn"), 8 * bytes_of(one, "2 x 20 x 7, nn"));
  // Seven additions of 267 values.
  EXPECT_EQ(bytes_of(many, "ForEachIndex<Combine<float,Addition>>"), 7 * 3 * 4 * 267);
}

TEST(ReckonedStep, KnowsEveryKernelsRegisters) {
  for (const char* precision : {"float32", "bf16", "fp16"}) {
    for (const char* model : {"lenet", "char_gpt", "resnet20"}) {
      BenchSubject subject;
      subject.model = model;
      subject.precision = precision;
      subject.batch = 2;
      const nlohmann::json object = Reckoned(subject);
      for (const nlohmann::json& row : object["work"]) {
        const std::string name = row["name"];
        const bool is_kernel = name.find(" x ") == std::string::npos &&
                               name.find("the GPU") == std::string::npos &&
                               name.find("attention, ") == std::string::npos &&
                               name.find("convolutions, ") == std::string::npos;
        EXPECT_EQ(row.contains("registers"), is_kernel) << model << ' ' << precision << ' ' << row;
      }
    }
  }
}

// Work of one piece.
double SecondsOf(const Work& work, ProductPrecision precision = ProductPrecision::kFloat32) {
  return Reckon({work}, *FindPublishedGpu("h100"), precision, *KernelFactsOf(90)).seconds -
         kLaunchSeconds;
}

TEST(Reckoning, IsBoundByWhatTakesLongest) {
  Work product = {Work::kProduct, Stream::kCompute};
  product.product = Product(Transpose::kNo, Transpose::kNo, 4096, 4096, 4096);
  const double operations = 2.0 * 4096 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(SecondsOf(product), operations / 66.9e12);
  EXPECT_NEAR(SecondsOf(product, ProductPrecision::kTf32), operations / 494.7e12, 1e-12);
  for (Matrix* matrix : {&product.product->a, &product.product->b, &product.product->c}) {
    matrix->dtype = DType::kBFloat16;
    matrix->distance = 1;
  }
  EXPECT_NEAR(SecondsOf(product), operations / 989.4e12, 1e-12);
  product.product->k = 16;  // 2 x 4096 x 16 values are read, 4096 x 4096 written
  EXPECT_NEAR(SecondsOf(product), 2.0 * (2 * 4096 * 16 + 4096 * 4096) / 3.35e12, 1e-12);

  // 16,384 rows of 768 half floats by 24 blocks of 512 threads, each with 8 loads under way.
  Work kernel = {Work::kKernel, Stream::kCompute};
  kernel.kernel = "SumColumns<Column<BFloat16>,1>";
  kernel.blocks = 24;
  kernel.threads = 512;
  kernel.traffic = {2 * 16384 * 768, 4 * 768, 2};
  EXPECT_NEAR(SecondsOf(kernel), 16384.0 * 768 / (24 * 512 * 8) * kLoadSeconds, 1e-12);
  kernel.blocks = 132;  // all processors have one block each
  EXPECT_NEAR(SecondsOf(kernel), 16384.0 * 768 / (132 * 512 * 8) * kLoadSeconds, 1e-12);
  // 1024 threads of a processor, with 16 loads each: the memory is slower.
  kernel.blocks = 1 << 20;
  kernel.kernel = "ForEachIndex<Combine<BFloat16,Addition>>";
  kernel.threads = 256;
  EXPECT_NEAR(SecondsOf(kernel), (2.0 * 16384 * 768 + 4 * 768) / 3.35e12, 1e-12);
}

// By pencil: 2 examples of 3 heads of 8 channels and 10 places, of which 55 pairs are seen.
TEST(ReckonedStep, HasAttentionInOnePieceAndAsProducts) {
  BenchSubject subject;
  subject.model = "{preset: char_gpt, blocks: 2, heads: 3, channels: 24}";
  subject.shape = {10};
  subject.batch = 2;
  subject.precision = "bf16";
  const nlohmann::json fused = Reckoned(subject);
  const double values = 2 * 10 * 24, rows = 2 * 3 * 10, scores = 2 * 3 * 55;
  int found = 0;
  for (const nlohmann::json& row : fused["work"]) {
    const bool is_backward = row["name"] == "attention, backward";
    if (!is_backward && row["name"] != "attention, forward") {
      EXPECT_NE(row["part"], "softmax and attention") << row;
      continue;
    }
    ++found;
    EXPECT_EQ(row["times"], 2);
    // Queries, keys, values and results; backward all of them and their gradients, and that of
    // scores to and fro; a float32 a row.
    const double bytes = is_backward ? 2 * 8 * values + 2 * 2 * scores : 2 * 4 * values;
    EXPECT_EQ(row["bytes"], 2 * (bytes + 4 * rows));
    EXPECT_EQ(row["flop"], 2 * (is_backward ? 5 : 2) * 2 * scores * 8);
  }
  EXPECT_EQ(found, 2);
  subject.attention = "products";
  const nlohmann::json products = Reckoned(subject);
  bool has_softmax = false;
  for (const nlohmann::json& row : products["work"]) {
    has_softmax = has_softmax || row["name"] == "SoftmaxRow<BFloat16>";
    EXPECT_NE(row["name"], "attention, forward");
  }
  EXPECT_TRUE(has_softmax);
}

// By pencil: the second convolution, from 8 channels of 14 x 14 places to 16 of 10 x 10.
TEST(ReckonedStep, HasConvolutionsInOnePieceAndAsProducts) {
  BenchSubject subject;
  subject.model =
      "{layers: [{conv2d: {out_channels: 8, kernel_size: 5, padding: 2}}, "
      "{max_pool2d: {kernel_size: 2}}, {conv2d: {out_channels: 16, kernel_size: 5}}, "
      "flatten, {linear: {out_features: 10}}]}";
  subject.shape = {1, 28, 28};
  subject.classes = 10;
  subject.batch = 2;
  subject.precision = "bf16";
  const auto names = [](const nlohmann::json& object, absl::string_view begin) {
    int count = 0;
    for (const nlohmann::json& row : object["work"]) {
      count += absl::StartsWith(row["name"].get<std::string>(), begin);
    }
    return count;
  };
  const double x = 2 * 8 * 14 * 14, y = 2 * 16 * 10 * 10, weights = 16 * 8 * 5 * 5;
  const nlohmann::json fused = Reckoned(subject);
  for (const nlohmann::json& row : fused["work"]) {
    const std::string name = row["name"];
    if (!absl::StartsWith(name, "convolutions, ")) continue;
    EXPECT_EQ(row["part"], "products");
    EXPECT_EQ(row["times"], 1);
    // Gradients by weights are float32.
    const double bytes = name == "convolutions, by weights" ? 4 : 2;
    EXPECT_EQ(row["bytes"], 2 * (x + y) + bytes * weights) << name;
    EXPECT_EQ(row["flop"], 2 * y * 8 * 5 * 5) << name;
  }
  EXPECT_EQ(names(fused, "convolutions, "), 3);
  subject.convolution = "products";
  const nlohmann::json products = Reckoned(subject);
  EXPECT_EQ(names(products, "convolutions, "), 0);
  EXPECT_GT(names(products, "ForEachIndex<Fold<"), 0);
}

// gpu_check's char_gpt of 124 M parameters, and its goal.
TEST(ReckonedStep, OfALargeTextModelHasNoMoreThan50MillisecondsOnTheGpu) {
  BenchSubject subject;
  subject.model = "{preset: char_gpt, blocks: 12, heads: 12, channels: 768}";
  subject.shape = {1024};
  subject.classes = 25'000;
  subject.batch = 16;
  subject.precision = "bf16";
  const nlohmann::json object = Reckoned(subject);
  EXPECT_LE(object["gpu_milliseconds"], 50);
  // Six operations for each weight of a product and token; attention's are beside them.
  const double tokens = 16 * 1024, weights = 12 * 12 * 768.0 * 768 + 768 * 25e3;
  EXPECT_GE(object["gpu_milliseconds"], 6 * weights * tokens / 989.4e12 * 1e3);
}

// What waits for another stream begins when that is done; what does not is beside it.
TEST(Reckoning, OverlapsStreams) {
  Work copy = {Work::kDownload, Stream::kDownload};
  copy.bytes = int64_t{63} << 20;
  Work upload = {Work::kUpload, Stream::kUpload};
  upload.bytes = int64_t{63} << 20;
  const PublishedGpu gpu = *FindPublishedGpu("h100");
  const auto seconds = [&](const std::vector<Work>& work) {
    return Reckon(work, gpu, ProductPrecision::kFloat32, {}).seconds;
  };
  const double one = seconds({copy});
  EXPECT_DOUBLE_EQ(seconds({upload, copy}), one);
  EXPECT_DOUBLE_EQ(seconds({upload, {Work::kOrder, Stream::kDownload, Stream::kUpload}, copy}),
                   2 * one);
}

TEST(KernelFacts, ReadsTheTable) {
  const std::string table =
      "nvcc 1.0: divisions\nkernel div sm_80 sm_90\nA<float>   0    38 0 8   40 0 4\n";
  const auto facts = ParseKernelTable(table, 90);
  RUBATO_ASSERT_OK(facts);
  EXPECT_EQ(facts->at("A<float>").registers, 40);
  EXPECT_EQ(facts->at("A<float>").loads, 4);
  EXPECT_EQ(ParseKernelTable(table, 80)->at("A<float>").registers, 38);
  EXPECT_THAT(ParseKernelTable(table, 100), IsError(absl::StatusCode::kInvalidArgument,
                                                    HasSubstr("found in the table of kernels")));
  EXPECT_THAT(
      ParseKernelTable(table + "B 1 2\n", 90),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found in the table of kernels")));
  // 48 registers of 65,536 for 256 threads: 5 blocks. 83 are given out as 88: 1 of 512.
  EXPECT_EQ(ThreadsOfAProcessor({48, 4}, 256), 1280);
  EXPECT_EQ(ThreadsOfAProcessor({83, 16}, 512), 512);
  EXPECT_EQ(ThreadsOfAProcessor({10, 0}, 32), 1024);
}

}  // namespace
}  // namespace rubato
