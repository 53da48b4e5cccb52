// The reader, the completion and the writer on a schema that they know nothing of.
#include "common/job/yaml_reader.h"

#include <limits>
#include <string>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/job/completion.h"
#include "common/job/sample.pb.h"
#include "common/job/yaml_writer.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using testing::Inner;
using testing::Sample;
using testing::Shape;

absl::Status Read(absl::string_view text, Sample* sample) {
  YamlReader reader(sample);
  const absl::Status status = reader.ReadDocument(text, "a.yaml");
  return status.ok() ? reader.report().ToStatus() : status;
}

TEST(YamlReaderTest, ReadsListsOfEverything) {
  Sample sample;
  RUBATO_ASSERT_OK(
      Read("names: [a, \"b c\", 3, true]\n"
           "colors: [red, dark_blue]\n"
           "flags: [true, false]\n"
           "sizes: [1KiB, 5]\n"
           "times: [1m, 200ms, 3]\n"
           "ids: [18446744073709551615]\n"
           "small:\n  - -5\n  - 7\n"
           "shapes: [circle, square, square: 5, {square: {corners: [{depth: 1}, {}]}}]\n",
           &sample));
  EXPECT_THAT(sample.names(), ElementsAre("a", "b c", "3", "true"));
  EXPECT_THAT(sample.colors(), ElementsAre(Sample::COLOR_RED, Sample::COLOR_DARK_BLUE));
  EXPECT_THAT(sample.flags(), ElementsAre(true, false));
  EXPECT_THAT(sample.sizes(), ElementsAre(1024, 5));
  EXPECT_THAT(sample.times(), ElementsAre(60, 0.2, 3));
  EXPECT_THAT(sample.ids(), ElementsAre(std::numeric_limits<uint64_t>::max()));
  EXPECT_THAT(sample.small(), ElementsAre(-5, 7));
  ASSERT_EQ(sample.shapes_size(), 4);
  EXPECT_TRUE(sample.shapes(0).has_circle());
  EXPECT_FALSE(sample.shapes(1).square().has_side());
  EXPECT_EQ(sample.shapes(2).square().side(), 5);
  EXPECT_EQ(sample.shapes(3).square().corners_size(), 2);
}

TEST(YamlReaderTest, NamesTheEntryThatIsWrong) {
  Sample sample;
  EXPECT_THAT(Read("names: [a, [b]]\n"
                   "colors: [red, dark_blu, infrared]\n"
                   "flags: true\n"
                   "small: [-6, 2147483648]\n"
                   "shapes: [{square: {corners: [{depth: 1}, {dept: 1}]}}, 3]\n",
                   &sample),
              IsError(absl::StatusCode::kInvalidArgument,
                      "a.yaml:1:12: names[1]: found a list, expected text\n"
                      "a.yaml:2:15: colors[1]: found dark_blu, expected red or dark_blue; did you "
                      "mean dark_blue?\n"
                      "a.yaml:2:25: colors[2]: found infrared, expected red or dark_blue (nobody "
                      "sees it)\n"
                      "a.yaml:3:8: flags: found true, expected a list of true or false\n"
                      "a.yaml:4:9: small[0]: found -6, expected an integer at least -5\n"
                      "a.yaml:4:13: small[1]: found 2147483648, expected an integer at least -5\n"
                      "a.yaml:5:43: shapes[0].square.corners[1].dept: found an unknown key; did "
                      "you mean depth?\n"
                      "a.yaml:5:56: shapes[1]: found 3, expected circle or square"));
}

TEST(YamlReaderTest, KeysOfAnInlinedMessageStandBesideIt) {
  Sample sample;
  RUBATO_ASSERT_OK(Read("layers: 3\nfinish: glossy\n", &sample));
  EXPECT_EQ(sample.finish().finish(), testing::Finish::NAME_GLOSSY);
  EXPECT_EQ(sample.finish().layers(), 3);
  EXPECT_EQ(WriteYaml(sample), "finish: glossy\nlayers: 3\n");
  YamlReader reader(&sample);
  reader.ReadOverride("layers=4");
  RUBATO_EXPECT_OK(reader.report().ToStatus());
  EXPECT_EQ(sample.finish().layers(), 4);
  EXPECT_EQ(sample.finish().finish(), testing::Finish::NAME_GLOSSY);
  sample.Clear();
  EXPECT_THAT(Read("finish: {layers: 3}\nlayer: 3\n", &sample),
              IsError(absl::StatusCode::kInvalidArgument,
                      "a.yaml:1:9: finish: found a map, expected plain or glossy\n"
                      "a.yaml:2:1: layer: found an unknown key; did you mean layers?"));
}

TEST(YamlReaderTest, AFlagSaysThePrincipalAndThenOtherKeys) {
  testing::Finish finish;
  YamlReader reader(&finish);
  reader.ReadFlag("--finish", "glossy,layers=3");
  RUBATO_EXPECT_OK(reader.report().ToStatus());
  EXPECT_EQ(finish.finish(), testing::Finish::NAME_GLOSSY);
  EXPECT_EQ(finish.layers(), 3);
  testing::Finish wrong;
  YamlReader strict(&wrong);
  strict.ReadFlag("--finish", "shiny,layers=0,3");
  EXPECT_THAT(strict.report().ToStatus(),
              IsError(absl::StatusCode::kInvalidArgument,
                      "--finish: found shiny, expected plain or glossy\n"
                      "--finish: layers: found 0, expected an integer at least 1\n"
                      "--finish: 3: found an unknown key, expected finish or layers"));
}

TEST(CompletionTest, FillsDefaultsAllTheWayDown) {
  Sample sample;
  Report report;
  sample.add_shapes()->mutable_square()->add_corners();
  Complete(&sample, &report);
  RUBATO_EXPECT_OK(report.ToStatus());
  EXPECT_EQ(WriteYaml(sample),
            "shapes:\n"
            "  - square: {side: 1, corners: [{depth: 7}]}\n"
            "inner: {depth: 7}\n"
            "preset: {text: preset, depth: 3}\n");
}

std::string RandomText(RandomStream* random) {
  // What YAML, C or a terminal might take for something else.
  const char* const kPieces[] = {"a", "Z",  "0",  "-", ".", "_",    "/",    " ",   "\"", "'",  "\\",
                                 ":", "#",  ",",  "[", "]", "{",    "}",    "&",   "*",  "!",  "|",
                                 ">", "%",  "@",  "`", "~", "null", "true", "no",  "1",  "\n", "\t",
                                 "?", "<<", "\r", "=", "é", "語",   "\x1b", "\x7f"};
  std::string text;
  for (int i = random->Below(6); i > 0; --i) text += kPieces[random->Below(std::size(kPieces))];
  return text;
}

Inner RandomInner(RandomStream* random) {
  Inner inner;
  if (random->Below(2)) inner.set_text(RandomText(random));
  if (random->Below(2)) inner.set_depth(static_cast<int32_t>(random->Bits()));
  return inner;
}

Shape RandomShape(RandomStream* random) {
  Shape shape;
  if (random->Below(3) == 0) {
    shape.mutable_circle();
    return shape;
  }
  if (random->Below(2)) shape.mutable_square()->set_side(static_cast<int32_t>(random->Bits()));
  for (int i = random->Below(3); i > 0; --i) {
    *shape.mutable_square()->add_corners() = RandomInner(random);
  }
  shape.mutable_square();
  return shape;
}

Sample RandomSample(RandomStream* random) {
  Sample sample;
  for (int i = random->Below(4); i > 0; --i) sample.add_names(RandomText(random));
  for (int i = random->Below(4); i > 0; --i) sample.add_flags(random->Below(2));
  for (int i = random->Below(3); i > 0; --i) {
    sample.add_colors(random->Below(2) ? Sample::COLOR_RED : Sample::COLOR_DARK_BLUE);
  }
  for (int i = random->Below(3); i > 0; --i) {
    sample.add_sizes(int64_t{random->Bits()} << random->Below(31));
    sample.add_ids((uint64_t{random->Bits()} << 32) | random->Bits());
    sample.add_numbers((random->Unit() - 0.5) * random->Bits() / random->Bits());
    sample.add_times(random->Below(100000) / 100.0);
    sample.add_small(static_cast<int32_t>(random->Below(100)) - 5);
    *sample.add_shapes() = RandomShape(random);
  }
  if (random->Below(2)) *sample.mutable_shape() = RandomShape(random);
  if (random->Below(2)) *sample.mutable_inner() = RandomInner(random);
  if (random->Below(2)) sample.set_path("/" + std::to_string(random->Bits()));
  if (random->Below(2)) sample.set_text(RandomText(random));
  if (random->Below(2)) sample.mutable_finish()->set_finish(testing::Finish::NAME_GLOSSY);
  if (random->Below(2)) sample.mutable_finish()->set_layers(1 + random->Below(9));
  return sample;
}

TEST(YamlWriterTest, WhatIsWrittenIsReadBackEqual) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomStream random(Key(seed, "sample"));
    Sample sample = RandomSample(&random);
    sample.add_small(0);  // a document of nothing is refused
    const std::string yaml = WriteYaml(sample);
    Sample again;
    RUBATO_ASSERT_OK(Read(yaml, &again)) << "seed " << seed << "\n" << yaml;
    ASSERT_TRUE(MessageDifferencer::Equals(sample, again)) << "seed " << seed << "\n" << yaml;
  }
}

}  // namespace
}  // namespace rubato
