#include "worker/data/csv_reader.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Records = std::vector<std::vector<std::string>>;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Records> Parse(absl::string_view text, char separator = ',',
                              std::vector<int64_t>* lines = nullptr) {
  CsvReader reader("t.csv", text, separator);
  Records records;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next();
    if (!more.ok()) return more.status();
    if (!*more) return records;
    records.emplace_back(reader.fields().begin(), reader.fields().end());
    if (lines != nullptr) lines->push_back(reader.line());
  }
}

// The examples of RFC 4180, section 2.
TEST(CsvReaderTest, ReadsTheExamplesOfTheStandard) {
  const Records two = {{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}};
  EXPECT_EQ(*Parse("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n"), two);
  EXPECT_EQ(*Parse("aaa,bbb,ccc\r\nzzz,yyy,xxx"), two);
  EXPECT_EQ(*Parse("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx"), two);
  EXPECT_EQ(*Parse("\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx"),
            (Records{{"aaa", "b\r\nbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(*Parse("\"aaa\",\"b\"\"bb\",\"ccc\""), (Records{{"aaa", "b\"bb", "ccc"}}));
}

TEST(CsvReaderTest, KeepsEmptyFieldsAndSpacesInQuotesButNoEmptyLines) {
  EXPECT_EQ(*Parse("\n\n,a,\n\n,\" b \",\"\"\n\n"), (Records{{"", "a", ""}, {"", " b ", ""}}));
  EXPECT_EQ(*Parse(" a b\t, c , \r\n"), (Records{{"a b", "c", ""}}));
  EXPECT_EQ(*Parse(""), Records{});
  EXPECT_EQ(*Parse("\r\n\n"), Records{});
  EXPECT_EQ(*Parse("a,b\r"), (Records{{"a", "b"}})) << "cut between CR and LF";
}

TEST(CsvReaderTest, TakesAnySeparatorAndSkipsAByteOrderMark) {
  EXPECT_EQ(*Parse("\xef\xbb\xbf"
                   "a;b,c\n",
                   ';'),
            (Records{{"a", "b,c"}}));
  EXPECT_EQ(*Parse("a\tb\t\n", '\t'), (Records{{"a", "b", ""}}));
}

TEST(CsvReaderTest, KnowsTheLineInWhichARecordBegins) {
  std::vector<int64_t> lines;
  ASSERT_TRUE(Parse("h\n\n\"a\n\nb\"\r\nc\n", ',', &lines).ok());
  EXPECT_THAT(lines, ElementsAre(1, 3, 6));
}

TEST(CsvReaderTest, NamesTheFieldWhoseQuotationIsWrong) {
  EXPECT_THAT(Parse("a,b\n1,\"2\n3,4\n"),
              IsError(kInvalid, HasSubstr("t.csv:2: field 2: begins with a quotation mark and does "
                                          "not end")));
  EXPECT_THAT(Parse("a,b\n\"x\n\"y,2\n"),
              IsError(kInvalid, HasSubstr("t.csv:3: field 1: found \"y\" behind the closing")));
}

// The oracle: what was written. Fields of the characters that matter, quoted where they must be.
TEST(CsvReaderTest, ReadsBackWhatIsWritten) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(Key(seed, "csv"));
    const std::string end = random.Below(2) == 0 ? "\n" : "\r\n";
    const size_t width = 2 + random.Below(3);
    Records records;
    std::string text;
    for (uint32_t i = 1 + random.Below(5); i > 0; --i) {
      std::vector<std::string> record, written;
      for (size_t j = 0; j < width; ++j) {
        std::string field;
        for (uint32_t k = random.Below(5); k > 0; --k)
          field.push_back("a ,\"\n\r;"[random.Below(7)]);
        const bool quote =
            field.find_first_of(",\"\n\r") != std::string::npos || random.Below(4) == 0;
        record.push_back(quote ? field : std::string(absl::StripAsciiWhitespace(field)));
        written.push_back(
            quote ? absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"") : field);
      }
      records.push_back(record);
      absl::StrAppend(&text, absl::StrJoin(written, ","), end);
    }
    const auto read = Parse(text);
    RUBATO_ASSERT_OK(read);
    EXPECT_EQ(*read, records) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rubato
