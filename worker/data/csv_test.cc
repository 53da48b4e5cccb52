#include "worker/data/csv.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/test_files.h"
#include "worker/data/test_mutations.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kHouses[] =
    "rooms,age,sea,price\n"
    "3,10.5,near,200\n"
    "4,20,far,100\n"
    "5,30,\"an island, far out\",300\n";

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() {
    config_.set_format(proto::Data::FORMAT_CSV);
    config_.set_target("price");
    config_.add_categorical("sea");
  }

  absl::StatusOr<Source> Read(const std::string& text, bool classification = false) {
    config_.set_path(folder_.Write("t.csv", text));
    return ReadCsv(config_, classification);
  }
  void ExpectWrong(const std::string& text, const std::string& line, const std::string& sentence,
                   bool classification = false) {
    EXPECT_THAT(Read(text, classification),
                IsError(kInvalid, AllOf(StartsWith(absl::StrCat(folder_.Path("t.csv"), line)),
                                        HasSubstr(sentence))));
  }

  const TestFolder folder_{"csv_test"};
  proto::Data config_;
};

TEST_F(CsvTest, ReadsNumbersThenACategoryInColumnsOfItsOwn) {
  const auto source = Read(kHouses);
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->columns,
              ElementsAre("rooms", "age", "sea=an island, far out", "sea=far", "sea=near"));
  EXPECT_EQ(source->quantities, 2);
  EXPECT_EQ(source->train.shape, (ExampleShape{5, 0, 0}));
  EXPECT_THAT(source->train.features,
              ElementsAre(3, 10.5f, 0, 0, 1, /**/ 4, 20, 0, 1, 0, /**/ 5, 30, 1, 0, 0));
  EXPECT_THAT(source->train.values, ElementsAre(200, 100, 300));
  EXPECT_EQ(source->train.classes, 0);
  EXPECT_THAT(source->train.labels, IsEmpty());
  EXPECT_EQ(source->test.size(), 0);
}

TEST_F(CsvTest, TakesOnlyTheNumericColumnsThatAreNamedInThatOrder) {
  config_.clear_categorical();
  config_.add_numeric("age");
  EXPECT_THAT(Read(kHouses)->train.features, ElementsAre(10.5f, 20, 30));
  config_.add_numeric("rooms");
  EXPECT_THAT(Read(kHouses)->train.features, ElementsAre(10.5f, 3, 20, 4, 30, 5));
}

TEST_F(CsvTest, ScalesTheTargetsOfARegression) {
  config_.set_target_scale(100);
  EXPECT_THAT(Read(kHouses)->train.values, ElementsAre(2, 1, 3));
}

TEST_F(CsvTest, NumbersClassesInAscendingOrder) {
  config_.set_target("sea");
  config_.clear_categorical();
  const auto names = Read(kHouses, true);
  RUBATO_ASSERT_OK(names);
  EXPECT_THAT(names->classes, ElementsAre("an island, far out", "far", "near"));
  EXPECT_THAT(names->train.labels, ElementsAre(2, 1, 0));
  EXPECT_EQ(names->train.classes, 3);
  config_.set_target("price");
  config_.add_categorical("sea");
  const auto integers = Read("price,sea\n10,a\n9,a\n-1,b\n9,b\n", true);
  RUBATO_ASSERT_OK(integers);
  EXPECT_THAT(integers->classes, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(integers->train.labels, ElementsAre(2, 1, 0, 1));
}

TEST_F(CsvTest, RefusesNumbersWithFractionsAsClassesUnlessTheTaskSaysThatTheyAre) {
  const std::string prices = "rooms,sea,price\n3,near,200\n4,far,99.5\n";
  ExpectWrong(prices,
              ":3: found the target \"99.5\", a number with a fraction, as the label of a class",
              "expected an integer or a name (loss: mse, l1 and huber predict numbers; data.task: "
              "classification says that they are classes)",
              true);
  EXPECT_EQ(Read("rooms,sea,price\n3,near,1.0\n4,far,2.0\n", true)->train.classes, 2);
  EXPECT_EQ(Read("rooms,sea,price\n3,near,1.5\n4,far,small\n", true)->train.classes, 2);
  config_.set_task(proto::Data::TASK_CLASSIFICATION);
  EXPECT_EQ(Read(prices, true)->train.classes, 2);
}

TEST_F(CsvTest, WarnsOfManyNumbersAsClassesWithFewLinesEach) {
  const auto table = [](int classes, int lines_each) {
    std::string text = "rooms,sea,price\n";
    for (int i = 0; i < classes * lines_each; ++i) {
      absl::StrAppend(&text, i % 7, ",near,", 100 + i % classes, "\n");
    }
    return text;
  };
  EXPECT_THAT(Read(table(21, 9), true)->notes,
              ElementsAre(absl::StrCat(
                  "warning: ", folder_.Path("t.csv"),
                  ": the targets are 21 different numbers in 189 lines, and each is taken for a "
                  "class; if they are quantities, expected loss: mse, l1 or huber (data.task: "
                  "classification "
                  "says that they are classes)")));
  EXPECT_THAT(Read(table(21, 10), true)->notes, IsEmpty());
  EXPECT_THAT(Read(table(20, 1), true)->notes, IsEmpty());
  EXPECT_THAT(Read(table(21, 9), false)->notes, IsEmpty());
  config_.set_task(proto::Data::TASK_CLASSIFICATION);
  EXPECT_THAT(Read(table(21, 9), true)->notes, IsEmpty());
}

TEST_F(CsvTest, NamesAllColumnsThatAreUnknown) {
  config_.set_target("prise");
  config_.clear_categorical();
  config_.add_categorical("see");
  config_.add_numeric("rooms");
  config_.add_numeric("altitude");
  ExpectWrong(kHouses, ":1: has no columns ",
              "\"prise\" (data.target; did you mean \"price\"?), \"see\" (data.categorical) and "
              "\"altitude\" (data.numeric); its columns are rooms, age, sea, price");
  config_.set_target("price");
  config_.clear_numeric();
  for (int i = 0; i < 1000; ++i) config_.add_numeric(absl::StrCat("x", i));
  ExpectWrong(kHouses, ":1: has no columns \"see\" (data.categorical), \"x0\" (data.numeric",
              "\"x18\" (data.numeric) and 981 more; its columns are rooms, age, sea, price");
}

TEST_F(CsvTest, RefusesWhatIsNotInUtf8) {
  ExpectWrong("rooms,age,sea,price\n3,10.5,near,200\n4,20,f\xe4r,100\n", ":3: ",
              "found the byte 0xe4, expected text in UTF-8 (iconv -f LATIN1 -t UTF-8, if it is "
              "Latin-1)");
  ExpectWrong("rooms,\xe2ge,sea,price\n3,10.5,near,200\n", ":1: ", "found the byte 0xe2");
  EXPECT_EQ(Read("rooms,age,sea,price\n3,10.5,f\xc3\xa4r,200\n4,20,far,100\n")->columns[3],
            "sea=f\xc3\xa4r");
}

TEST_F(CsvTest, ReadsTheSameFromCrlfOtherSeparatorsGzipAndAnotherOrderOfColumns) {
  const std::string digest = Read(kHouses)->digest;
  config_.set_path(folder_.WriteGzip("t.csv.gz", kHouses));
  EXPECT_EQ(ReadCsv(config_, false)->digest, digest);
  EXPECT_EQ(Read("rooms,age,sea,price\r\n3,10.5,near,200\r\n4,20,far,100\r\n5,30,"
                 "\"an island, far out\",300")
                ->digest,
            digest);
  EXPECT_EQ(Read("price,rooms,sea,age\n200,3,near,10.5\n100,4,far,20\n300,5,"
                 "\"an island, far out\",30\n")
                ->digest,
            digest);
  config_.set_separator("\t");
  EXPECT_EQ(Read("rooms\tage\tsea\tprice\n3\t10.5\tnear\t200\n4\t20\tfar\t100\n"
                 "5\t30\tan island, far out\t300\n")
                ->digest,
            digest);
  config_.set_separator(",");
  EXPECT_NE(Read("rooms,age,sea,price\n3,10.5,near,200\n4,20,far,100\n5,30,far,300\n")->digest,
            digest);
}

TEST_F(CsvTest, TakesSpacesForAPartOfATextInQuotesAlone) {
  const auto source = Read(
      " rooms ,\"age\", sea,price \n"
      "\" 3 \", 1 ,\" n \", 1\n4,\"1\", n,\" 2\"\n5,1,n ,3\n6,1,\"n\",4\n");
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->columns, ElementsAre("rooms", "age", "sea= n ", "sea=n"));
  EXPECT_THAT(source->train.features,
              ElementsAre(3, 1, 1, 0, /**/ 4, 1, 0, 1, /**/ 5, 1, 0, 1, /**/ 6, 1, 0, 1));
  EXPECT_THAT(source->train.values, ElementsAre(1, 2, 3, 4));
  config_.set_target("sea");
  config_.clear_categorical();
  EXPECT_THAT(Read("rooms,sea\n1,\" n\"\n2, n\n3,n\n", true)->train.labels, ElementsAre(0, 1, 1));
  ExpectWrong("rooms,sea\n1,\" nan \"\n", ":2: column sea: ", "expected a label", true);
  config_.add_missing("NA");
  ExpectWrong("rooms,sea\n\" NA \",a\n", ":2: column rooms: ", "a missing value", true);
  ExpectWrong("rooms,\" sea \"\n1,a\n", ":1: has no column ",
              "\"sea\" (data.target; did you mean \" sea \"?)", true);
}

TEST_F(CsvTest, NamesColumnsByNumberWithoutAHeader) {
  config_.set_header(false);
  config_.set_target("1");
  config_.clear_categorical();
  const auto source = Read("1,5,6\n2,7,8\n");
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->train.features, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(source->train.values, ElementsAre(1, 2));
  EXPECT_THAT(source->columns, ElementsAre("2", "3"));
}

TEST_F(CsvTest, ReadsATestFileWithColumnsInAnotherOrderAndNamesOfItsOwn) {
  config_.set_test_path(folder_.Write("test.csv", "price,sea,rooms,age\n150,river,6,7\n"));
  const auto source = Read(kHouses);
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->columns, ElementsAre("rooms", "age", "sea=an island, far out", "sea=far",
                                           "sea=near", "sea=river"));
  EXPECT_THAT(source->test.features, ElementsAre(6, 7, 0, 0, 0, 1));
  EXPECT_THAT(source->test.values, ElementsAre(150));
}

TEST_F(CsvTest, RefusesATestFileWithClassesThatTrainingDoesNotHave) {
  config_.set_target("sea");
  config_.clear_categorical();
  config_.set_test_path(folder_.Write("test.csv", "rooms,age,sea,price\n1,1,far,1\n1,1,hill,1\n"));
  EXPECT_THAT(Read(kHouses, true), IsError(kInvalid, AllOf(HasSubstr("test.csv:3: found the label "
                                                                     "\"hill\", which "),
                                                           HasSubstr("t.csv does not have"))));
}

TEST_F(CsvTest, LetsMissingValuesBeAnErrorAMeanOrNoLine) {
  const std::string text = "rooms,age,sea,price\n3,,near,200\n4,20,far,\n5,NA,x,300\n6,1,far,7\n";
  ExpectWrong(text, ":2: column age: ",
              "found \"\", a missing value, expected a number "
              "(data.impute: mean fills it in, drop leaves such lines out)");
  config_.set_impute(proto::Data::IMPUTE_DROP);
  ExpectWrong(text, ":4: column age: ", "found \"NA\", expected a number");
  config_.add_missing("NA");
  config_.add_missing("");
  const auto dropped = Read(text);
  RUBATO_ASSERT_OK(dropped);
  EXPECT_THAT(dropped->train.features, ElementsAre(6, 1, 1));
  EXPECT_THAT(dropped->notes,
              ElementsAre(folder_.Path("t.csv") + ": 3 of 4 records are left out, with a missing "
                                                  "value (data.impute: drop)"));
  config_.set_impute(proto::Data::IMPUTE_MEAN);
  ExpectWrong(text, ":3: column price: ", "found \"\", a missing value, expected a number");
  ExpectWrong("rooms,age,sea,price\n1,1,,1\n", ":2: column sea: ",
              "expected a text label (data.impute: drop leaves such lines out; mean is for numbers "
              "only)");
  const auto marked = Read("rooms,age,sea,price\n1,NA,x,1\n, 2 ,x,1\n");
  RUBATO_ASSERT_OK(marked);
  EXPECT_THAT(marked->train.features, ElementsAre(1, IsNan(), 1, IsNan(), 2, 1));
  EXPECT_THAT(marked->notes, IsEmpty());
}

TEST_F(CsvTest, WarnsOfAnIndexThatBecameAnInput) {
  std::string text = ",id,age,sea,price\n", gap = "id,age,sea,price\n";
  for (int i = 0; i < 10; ++i) {
    absl::StrAppend(&text, 7 * i, ",", i + 1, ",", i * i, ",x,1\n");
    absl::StrAppend(&gap, i == 9 ? 10 : i, ",", i * i, ",x,1\n");
  }
  const auto source = Read(text);
  RUBATO_ASSERT_OK(source);
  const std::string is = " is an input of the model; if it is an index, name it in data.ignore";
  EXPECT_THAT(source->notes,
              ElementsAre("warning: " + folder_.Path("t.csv") + ": a column without a name" + is,
                          "warning: " + folder_.Path("t.csv") +
                              ": the column \"id\" counts the lines from 1 on, and" + is));
  const auto with_gap = Read(gap);
  RUBATO_ASSERT_OK(with_gap);
  EXPECT_THAT(with_gap->notes, IsEmpty());
  config_.add_numeric("id");
  const auto asked_for = Read(text);
  RUBATO_ASSERT_OK(asked_for);
  EXPECT_THAT(asked_for->notes, IsEmpty());
}

TEST_F(CsvTest, LeavesOutWhatIsIgnored) {
  config_.add_ignore("id");
  config_.add_ignore("");
  config_.add_ignore("age");
  config_.set_test_path(folder_.Write("test.csv", "sea,price\nfar,3\n"));
  const auto source = Read(",id,age,sea,price\n0,a7,x,near,1\n,b9,,far,2\n");
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(source->train.features, ElementsAre(0, 1, 1, 0)) << "of sea alone";
  EXPECT_THAT(source->test.features, ElementsAre(1, 0));
  ExpectWrong("age,id,sea,price\n", ":1: has no column \"\" (data.ignore", "");
  const auto alike = Read("id,age,sea,price,,\n0,x,near,1,,\na,,far,2,,\n");
  RUBATO_ASSERT_OK(alike) << "columns of one name";
  EXPECT_THAT(alike->train.features, ElementsAre(0, 1, 1, 0));
}

TEST_F(CsvTest, WarnsOfNamesThatAreInputsAndOfOneLineEach) {
  const auto table = [](int names, int lines_each) {
    std::string text = "rooms,age,sea,price\n";
    for (int i = 0; i < names * lines_each; ++i) {
      absl::StrAppend(&text, i % 7, ",", i % 5, ",n", i % names, ",", i % 3, "\n");
    }
    return text;
  };
  EXPECT_THAT(Read(table(101, 9))->notes,
              ElementsAre(absl::StrCat(
                  "warning: ", folder_.Path("t.csv"),
                  ": the column \"sea\" has 101 different names in 909 lines, and each is an input "
                  "of its own; if they are of one line each, name it in data.ignore in place of "
                  "data.categorical")));
  EXPECT_THAT(Read(table(101, 10))->notes, IsEmpty());
  EXPECT_THAT(Read(table(100, 1))->notes, IsEmpty());
}

TEST_F(CsvTest, NamesAllColumnsThatHaveNoNumberInALine) {
  const std::string what =
      "expected a number (data.categorical takes names, data.ignore what is not to be used, "
      "data.missing what stands for none)";
  const std::string path = folder_.Path("t.csv");
  EXPECT_THAT(Read("rooms,age,sea,price\nx,y,near,1\n"),
              IsError(kInvalid, absl::StrCat(path, ":2: column rooms: found \"x\", ", what, "\n",
                                             path, ":2: column age: found \"y\", ", what)));
  std::string header = "sea,price", line = "near,1";
  for (int i = 0; i < 23; ++i) {
    absl::StrAppend(&header, ",c", i);
    absl::StrAppend(&line, ",x");
  }
  EXPECT_THAT(
      Read(header + "\n" + line + "\n"),
      IsError(kInvalid, ::testing::EndsWith(absl::StrCat("\n", path, ":2: 3 more columns"))));
}

TEST_F(CsvTest, GuessesATrailingSeparator) {
  ExpectWrong(
      "rooms,sea,price,\n1,near,2,\n", ":2: column 4: ",
      "has no name and is empty: a trailing separator? (data.ignore: [\"\"] leaves it out)");
}

TEST_F(CsvTest, NamesLineAndColumnOfWhatIsWrong) {
  ExpectWrong("rooms,age,sea,price\n3,old,near,200\n",
              ":2: column age: ", "found \"old\", expected a number");
  ExpectWrong("rooms,age,sea,price\n3,1,near,dear\n", ":2: column price: ",
              "found \"dear\", expected a number (are the targets text labels? loss: "
              "cross_entropy takes those)");
  ExpectWrong("rooms,age,sea,price\n3,1,near,1e60\n",
              ":2: column price: ", "found \"1e60\", expected a number of at most 3.4e38");
  ExpectWrong("rooms,age,sea,price\n3,1e39,near,1\n",
              ":2: column age: ", "found \"1e39\", expected a number of at most 3.4e38");
  ExpectWrong("rooms,age,sea,price\n3,1,near,NaN\n",
              ":2: column price: ", "found \"NaN\", expected a label", true);
  ExpectWrong("rooms,age,sea,price\r3,1,near,1\r", ": found lines that end by CR alone",
              "expected LF or CRLF");
  ExpectWrong("rooms,age,sea,price\n\n3,1,near\n", ":3: ",
              "found 3 fields, expected 4, as in the "
              "header");
  ExpectWrong("rooms,age,sea,price\n3,1,near,2,9\n", ":2: ", "found 5 fields, expected 4");
  ExpectWrong("rooms,age,sea,cost\n", ":1: has no column \"price\" (data.target)",
              "its columns are rooms, age, sea, cost");
  ExpectWrong("rooms;age;sea;price\n",
              ":1: has no columns \"price\" (data.target) and \"sea\" (data.categorical)",
              "its only column is \"rooms;age;sea;price\" (is data.separator right?)");
  ExpectWrong("rooms,age,sea,prices\n", ":1: has no column \"price\" (data.target; ",
              "did you mean \"prices\"?");
  ExpectWrong("rooms,sea,rooms,price\n", ":1: ",
              "columns 1 and 3 are both named \"rooms\", expected different names (data.ignore: "
              "[\"rooms\"] leaves both out)");
  ExpectWrong("sea,rooms,sea,price\n",
              ":1: ", "columns 1 and 3 are both named \"sea\", expected different names");
  ExpectWrong("rooms,age,sea,price\n", ": holds no records", "expected at least one");
  ExpectWrong("", ": is empty", "expected data");
  ExpectWrong("\n\n", ": holds nothing but empty lines", "expected a header");
  ExpectWrong("rooms,sea,price\n1,a,5\n2,a,5\n", ": all targets are \"5\"",
              "expected at least two classes", true);
}

TEST_F(CsvTest, SaysWhatIsNotThere) {
  config_.set_path(folder_.Path("none.csv"));
  EXPECT_THAT(ReadCsv(config_, false),
              IsError(absl::StatusCode::kNotFound, HasSubstr("none.csv: there is no such file")));
  config_.set_path(folder_.Path("."));
  EXPECT_THAT(ReadCsv(config_, false), IsError(kInvalid, HasSubstr("is a folder")));
}

TEST_F(CsvTest, RefusesGzipThatIsCutOff) {
  const std::string path = folder_.WriteGzip("t.csv.gz", kHouses);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 12);
  config_.set_path(path);
  EXPECT_THAT(ReadCsv(config_, false), IsError(kInvalid, HasSubstr("t.csv.gz: is cut off")));
}

// Whatever becomes of a file, reading it ends with examples that fit together or with a sentence
// that names it.
TEST_F(CsvTest, SurvivesMutations) {
  ExpectSurvivesMutations(
      kHouses, ",\"\n\r.-e9", "t.csv",
      [this](const std::string& text, bool classification) { return Read(text, classification); });
}

}  // namespace
}  // namespace rubato
