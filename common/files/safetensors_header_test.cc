#include "common/files/safetensors_header.h"

#include <random>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TensorInfo Info(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
  TensorInfo info;
  info.name = name;
  info.dtype = dtype;
  info.shape = std::move(shape);
  return info;
}

TEST(SafetensorsHeaderTest, BytesAreThoseOfTheFormat) {
  const absl::StatusOr<SafetensorsHeader> header = MakeSafetensorsHeader(
      {Info("w\"1", Dtype::kF32, {2, 1}), Info("n", Dtype::kI64, {})}, {{"format", "pt"}});
  RUBATO_ASSERT_OK(header);
  EXPECT_EQ(header->data_bytes, 16);
  const std::string json = R"({"__metadata__":{"format":"pt"},)"
                           R"("w\"1":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                           R"("n":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})";
  ASSERT_EQ(json.size(), 143);  // padded to 144 = 0x90
  EXPECT_EQ(SafetensorsHeaderBytes(*header), std::string("\x90\0\0\0\0\0\0\0", 8) + json + " ");
}

// A time that grows with the square of the number would be longer than a test may take.
TEST(SafetensorsHeaderTest, ReadsAsManyTensorsAsAMixtureOfExpertsHasAndMore) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 300000; ++i) {
    tensors.push_back(Info("experts." + std::to_string(i) + ".weight", Dtype::kF32, {4}));
  }
  const absl::StatusOr<SafetensorsHeader> made = MakeSafetensorsHeader(tensors, {});
  RUBATO_ASSERT_OK(made);
  const absl::StatusOr<SafetensorsHeader> read =
      ParseSafetensorsHeader(SafetensorsHeaderBytes(*made).substr(8));
  RUBATO_ASSERT_OK(read);
  ASSERT_EQ(read->tensors.size(), tensors.size());
  EXPECT_EQ(read->tensors.back().name, tensors.back().name);
  EXPECT_EQ(read->data_bytes, 16 * static_cast<int64_t>(tensors.size()));
}

TEST(SafetensorsHeaderTest, ReadsAnyOrderAndSpacingAndIgnoresUnknownKeys) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(R"( {
    "b": {"shape": [3], "data_offsets": [16, 19], "dtype": "U8", "later": [{}]},
    "__metadata__": {"x": "y", "é": ""},
    "a": {"dtype": "F64", "shape": [1, 2], "data_offsets": [0, 16]},
    "empty": {"dtype": "F16", "shape": [0, 7], "data_offsets": [16, 16]}
  }  )");
  RUBATO_ASSERT_OK(header);
  ASSERT_EQ(header->tensors.size(), 3);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, Dtype::kF64);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(1, 2));
  EXPECT_EQ(header->tensors[1].name, "empty");
  EXPECT_EQ(header->tensors[1].Elements(), 0);
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_THAT(header->offsets, ElementsAre(0, 16, 16));
  EXPECT_EQ(header->data_bytes, 19);
  EXPECT_THAT(header->metadata, ElementsAre(Pair("x", "y"), Pair("é", "")));
}

TEST(SafetensorsHeaderTest, MayBeEmpty) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader("{}");
  RUBATO_ASSERT_OK(header);
  EXPECT_THAT(header->tensors, IsEmpty());
  EXPECT_EQ(header->data_bytes, 0);
}

TEST(SafetensorsHeaderTest, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{", "not a JSON object"},
      {"{} {}", "not a JSON object"},
      {"{\"\xff\": 1}", "not a JSON object"},
      {std::string(100000, '['), "not a JSON object"},
      {R"({"a":1})", "tensor 'a' is no object"},
      {R"({"a\n":1})", R"(tensor 'a\n' is no object)"},
      {R"({"a":{}})", "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":4}})", "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"F31"}})", "tensor 'a' has the unknown dtype 'F31'"},
      {R"({"a":{"dtype":"F32"}})", "tensor 'a' has no shape"},
      {R"({"a":{"dtype":"F32","shape":[-1]}})", "has a shape that is not of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1.0]}})", "has a shape that is not of sizes"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615]}})", "not of sizes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296]}})", "2^63 bytes or more"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "no data_offsets of two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "no data_offsets of two"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", "no data_offsets of two"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
       "lies at bytes 4 to 0 of the data; its dtype and shape take 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "take 8 bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "'a' begins at byte 1 of the data; expected byte 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       "'b' begins at byte 1 of the data; expected byte 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "has the key 'a' twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})",
       "has the key 'shape' twice"},
      {R"({"__metadata__":{"a":1}})", "__metadata__ key 'a' is no text"},
      {R"({"__metadata__":[]})", "__metadata__ is no object"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseSafetensorsHeader(text),
                IsError(kInvalid, AllOf(HasSubstr(message), Not(HasSubstr("\n")))))
        << text.substr(0, 200);
  }
}

TEST(SafetensorsHeaderTest, DepthIsNoDanger) {
  const std::string nest = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_THAT(ParseSafetensorsHeader(
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"later":)" + nest + "}}"),
              IsOk());
  EXPECT_THAT(ParseSafetensorsHeader("{\"a\":" + nest + "}"),
              IsError(kInvalid, HasSubstr("tensor 'a' is no object")));
}

TEST(SafetensorsHeaderTest, LongNamesDoNotFillTheScreen) {
  const absl::Status status =
      ParseSafetensorsHeader("{\"" + std::string(100000, 'a') + "\":1}").status();
  EXPECT_LT(status.message().size(), 200);
}

TEST(SafetensorsHeaderTest, RefusesToWriteWhatCannotBeRead) {
  const TensorInfo good = Info("a", Dtype::kF32, {1});
  EXPECT_THAT(MakeSafetensorsHeader({good, good}, {}), IsError(kInvalid, HasSubstr("named 'a'")));
  for (const char* name : {"", "__metadata__", "\xff"}) {
    EXPECT_THAT(MakeSafetensorsHeader({Info(name, Dtype::kF32, {1})}, {}),
                IsError(kInvalid, HasSubstr("cannot be named")));
  }
  EXPECT_THAT(MakeSafetensorsHeader({Info("a", Dtype::kF32, {2, -1})}, {}),
              IsError(kInvalid, HasSubstr("shape [2,-1]")));
  const TensorInfo huge = Info("b", Dtype::kF64, {int64_t{1} << 59});
  EXPECT_THAT(MakeSafetensorsHeader({huge}, {}), IsOk());
  EXPECT_THAT(MakeSafetensorsHeader({huge, Info("c", Dtype::kF64, huge.shape)}, {}),
              IsError(kInvalid, HasSubstr("2^63")));
  EXPECT_THAT(MakeSafetensorsHeader({}, {{"a", "\xc3"}}), IsError(kInvalid, HasSubstr("UTF-8")));
}

// Whatever a header says, it is either refused or describes tensors that tile the data.
TEST(SafetensorsHeaderTest, MutationsAreRefusedOrSound) {
  const std::string original =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}})";
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"a\"",
                                           "\"b\"",
                                           ":",
                                           ",",
                                           "0",
                                           "1",
                                           "24",
                                           "-1",
                                           "1e3",
                                           "null",
                                           "\"",
                                           "\\u0000",
                                           "{}",
                                           "[]",
                                           "U8",
                                           "F64",
                                           "99999999999999999999",
                                           "9223372036854775807",
                                           "2.5",
                                           "true",
                                           "\xf0\x9f"};
  constexpr uint32_t kSeed = 20;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int sound = 0;
  for (int trial = 0; trial < 50000; ++trial) {
    std::string text = original;
    for (size_t i = 0, mutations = 1 + below(3); i < mutations && !text.empty(); ++i) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.replace(at, below(4), pieces[below(pieces.size())]);
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
      }
    }
    const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
    if (!header.ok()) {
      ASSERT_THAT(header, IsError(kInvalid, Not(HasSubstr("\n")))) << text;
      continue;
    }
    ++sound;
    int64_t end = 0;
    for (size_t i = 0; i < header->tensors.size(); ++i) {
      ASSERT_EQ(header->offsets[i], end) << text;
      ASSERT_GE(header->tensors[i].Bytes(), 0) << text;
      end += header->tensors[i].Bytes();
    }
    ASSERT_EQ(header->data_bytes, end) << text;
  }
  // Both outcomes have been seen: a changed name is sound.
  EXPECT_GT(sound, 100);
  EXPECT_LT(sound, 25000);
}

}  // namespace
}  // namespace rubato
