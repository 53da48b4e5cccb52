#include "worker/data/text.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/test_files.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class TextTest : public ::testing::Test {
 protected:
  TextTest() { config_.set_format(proto::Data::FORMAT_TEXT); }

  absl::StatusOr<Source> Read(const std::string& text, int64_t context) {
    config_.set_path(folder_.Write("t.txt", text));
    config_.set_context(context);
    return ReadText(config_);
  }

  const TestFolder folder_{"text_test"};
  proto::Data config_;
};

TEST_F(TextTest, CutsTheTextIntoSequencesAndAsksForTheNextCharacters) {
  const auto source = Read("banana\nb", 3);
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->classes, ElementsAre("\n", "a", "b", "n"));
  EXPECT_EQ(source->train.size(), 2);
  EXPECT_EQ(source->train.classes, 4);
  EXPECT_THAT(source->train.features, ElementsAre(2, 1, 3, /**/ 1, 3, 1));
  EXPECT_THAT(source->train.labels, ElementsAre(1, 3, 1, /**/ 3, 1, 0));
}

TEST_F(TextTest, TakesCharactersNotBytes) {
  const auto source = Read("aéz€😀a", 5);
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->classes, ElementsAre("a", "z", "é", "€", "😀"));
  EXPECT_THAT(source->train.features, ElementsAre(0, 2, 1, 3, 4));
}

TEST_F(TextTest, NamesThePlaceOfWhatIsNoUtf8) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"\xff", "0xff"},      // no first byte
      {"\x80", "0x80"},      // a byte of the middle
      {"\xc0\x80", "0xc0"},  // longer than needed
      {"\xe0\x80\x80", "0xe0"},
      {"\xed\xa0\x80", "0xed"},      // a surrogate
      {"\xf4\x90\x80\x80", "0xf4"},  // above U+10FFFF
      {"\xe2\x82", "0xe2"},          // cut off
  };
  for (const auto& [bytes, shown] : kWrong) {
    EXPECT_THAT(Read(absl::StrCat("ab\ncdé", bytes), 2),
                IsError(kInvalid, HasSubstr(absl::StrCat("t.txt:2:4: found the byte ", shown))));
  }
}

TEST_F(TextTest, RefusesATextThatIsTooShort) {
  EXPECT_THAT(Read("abc", 3),
              IsError(kInvalid, HasSubstr("holds 3 characters, expected at least 4")));
  RUBATO_EXPECT_OK(Read("abcd", 3));
}

TEST_F(TextTest, AByteOrderMarkIsNoCharacter) {
  const auto marked = Read(
      "\xef\xbb\xbf"
      "abcd",
      3);
  RUBATO_ASSERT_OK(marked);
  EXPECT_EQ(marked->classes.size(), 4u);
  EXPECT_EQ(marked->digest, Read("abcd", 3)->digest);
}

TEST_F(TextTest, DigestIsOfTheText) {
  const std::string digest = Read("hello world", 2)->digest;
  config_.set_path(folder_.WriteGzip("t.txt.gz", "hello world"));
  EXPECT_EQ(ReadText(config_)->digest, digest);
  EXPECT_NE(Read("hello wordl", 2)->digest, digest);
}

}  // namespace
}  // namespace rubato
