#include "common/files/message_json.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"

namespace rubato {
namespace {

std::string ByProtobuf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

TEST(MessageJsonTest, IsWhatProtobufMakesOfAManifest) {
  proto::Manifest manifest;
  EXPECT_EQ(MessageJson(manifest), ByProtobuf(manifest));
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "format: 2 version: '0.1.0' seed: 18446744073709551615 mode: MODE_ASYNC step: 9 samples: -1 "
      "epoch: 0.1 seconds: 1e300 eval_loss: 0.30000000000000004 eval_accuracy: 3 "
      "blocks { block: 0 units_above: 5 units_above: 7 checksums: 4294967295 checksums: 0 } "
      "blocks { } slots: 'exp_avg' slots: 'a \"b\" \\\\ \\n \\xc3\\xa9' parts { end: 2 } parts { } "
      "layout { parameters { name: '0.weight' shape: 2 shape: 3 init { constant: 1.5 } } }",
      &manifest));
  EXPECT_EQ(MessageJson(manifest), ByProtobuf(manifest));
}

TEST(MessageJsonTest, DoublesKeepTheirBits) {
  uint64_t random = 1;
  for (int i = 0; i < 10'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    proto::Manifest manifest, again;
    double value;
    static_assert(sizeof value == sizeof random);
    std::memcpy(&value, &random, sizeof value);
    manifest.set_epoch(value);
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(MessageJson(manifest), &again).ok());
    if (!std::isnan(value)) {
      ASSERT_EQ(again.epoch(), value);
    }
  }
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), -0.0}) {
    proto::Manifest manifest;
    manifest.set_epoch(value);
    EXPECT_EQ(MessageJson(manifest), ByProtobuf(manifest));
  }
}

}  // namespace
}  // namespace rubato
