#include "common/base/flags.h"

#include "common/base/status_matchers.h"
#include "common/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// A program with one flag of each kind.
struct Program {
  std::string config;
  std::string listen = "127.0.0.1:0";
  int shard = 0;
  int64_t bytes = 5;
  bool dry_run = false;
  std::vector<std::string> set;
  std::string input;
  std::string output;
  Flags flags{"rubato test", "Does what a test needs.", {"rubato test --config job.yaml in"}};

  Program() {
    flags.Add("config", &config, "FILE", "the job", Flags::kRequired);
    flags.Add("listen", &listen, "HOST:PORT", "where to listen");
    flags.Add("shard", &shard, "K", "which shard this is");
    flags.Add("bytes", &bytes, "N", "how many");
    flags.Add("dry_run", &dry_run, "", "only say what would be done");
    flags.Add("set", &set, "KEY=VALUE", "override a key");
    flags.AddPositional(&input, "INPUT", "what is read");
    flags.AddPositional(&output, "OUTPUT", "what is written", Flags::kOptional);
  }

  absl::StatusOr<Flags::Request> Parse(std::vector<std::string> arguments) {
    return flags.Parse(arguments);
  }
};

TEST(FlagsTest, ReadsEveryFormOfEveryKind) {
  Program p;
  const auto request = p.Parse({"--config=a=b.yaml", "in", "--shard", "-3", "--bytes=9000000000",
                                "--dry-run", "--set", "x=1", "--set=y=2", "out"});
  RUBATO_ASSERT_OK(request);
  EXPECT_EQ(*request, Flags::Request::kRun);
  EXPECT_EQ(p.config, "a=b.yaml");
  EXPECT_EQ(p.listen, "127.0.0.1:0");
  EXPECT_EQ(p.shard, -3);
  EXPECT_EQ(p.bytes, 9000000000);
  EXPECT_TRUE(p.dry_run);
  EXPECT_THAT(p.set, ElementsAre("x=1", "y=2"));
  EXPECT_EQ(p.input, "in");
  EXPECT_EQ(p.output, "out");
}

TEST(FlagsTest, HyphensAndUnderscoresAreEqualInNamesOnly) {
  Program p;
  RUBATO_ASSERT_OK(p.Parse({"--config", "a_b-c", "--dry_run", "in"}));
  EXPECT_TRUE(p.dry_run);
  EXPECT_EQ(p.config, "a_b-c");
}

TEST(FlagsTest, BooleansTakeAValueOnlyWithEquals) {
  Program p;
  RUBATO_ASSERT_OK(p.Parse({"--config=c", "--dry-run", "--dry-run=false", "true"}));
  EXPECT_FALSE(p.dry_run);
  EXPECT_EQ(p.input, "true");
}

TEST(FlagsTest, TwoHyphensEndTheFlags) {
  Program p;
  RUBATO_ASSERT_OK(p.Parse({"--config=c", "--", "--dry-run", "--"}));
  EXPECT_FALSE(p.dry_run);
  EXPECT_EQ(p.input, "--dry-run");
  EXPECT_EQ(p.output, "--");
}

TEST(FlagsTest, UnknownFlagNamesTheNearest) {
  Program p;
  EXPECT_THAT(
      p.Parse({"--confg=c", "in"}),
      IsError(kInvalid, "unknown flag --confg; did you mean --config? (see rubato test --help)"));
  EXPECT_THAT(p.Parse({"--dryrun"}), IsError(kInvalid, HasSubstr("did you mean --dry-run?")));
  EXPECT_THAT(p.Parse({"--vresion"}), IsError(kInvalid, HasSubstr("did you mean --version?")));
  EXPECT_THAT(p.Parse({"--zzzzzzzz"}), IsError(kInvalid, AllOf(HasSubstr("unknown flag --zzzzzzzz"),
                                                               Not(HasSubstr("did you mean")))));
  EXPECT_THAT(p.Parse({"-c", "x"}), IsError(kInvalid, HasSubstr("unknown flag -c")));
}

TEST(FlagsTest, MissingAndMalformedValuesAreNamed) {
  Program p;
  EXPECT_THAT(p.Parse({"in", "--config"}),
              IsError(kInvalid, HasSubstr("flag --config needs a value: --config FILE")));
  EXPECT_THAT(p.Parse({"--config", "--shard", "1"}),
              IsError(kInvalid, HasSubstr("flag --config needs a value")));
  EXPECT_THAT(p.Parse({"--config=c", "--shard=two", "in"}),
              IsError(kInvalid, HasSubstr("flag --shard: found 'two', expected an integer")));
  EXPECT_THAT(p.Parse({"--config=c", "--shard=3000000000", "in"}),
              IsError(kInvalid, HasSubstr("found '3000000000'")));
  EXPECT_THAT(p.Parse({"--config=c", "--dry-run=maybe", "in"}),
              IsError(kInvalid, HasSubstr("expected true or false")));
}

TEST(FlagsTest, MissingAndSurplusArgumentsAreNamed) {
  Program p;
  EXPECT_THAT(p.Parse({"in"}), IsError(kInvalid, HasSubstr("missing flag --config FILE")));
  EXPECT_THAT(p.Parse({"--config=c"}), IsError(kInvalid, HasSubstr("missing argument INPUT")));
  EXPECT_THAT(p.Parse({"--config=c", "a", "b", "c"}),
              IsError(kInvalid, HasSubstr("unexpected argument 'c'")));
}

TEST(FlagsTest, HelpAndVersionWinOverWhatIsMissing) {
  Program p;
  EXPECT_EQ(*p.Parse({"--help"}), Flags::Request::kHelp);
  EXPECT_EQ(*p.Parse({"in", "-h"}), Flags::Request::kHelp);
  EXPECT_EQ(*p.Parse({"--version"}), Flags::Request::kVersion);
}

TEST(FlagsTest, HelpShowsUsageDefaultsAndExamples) {
  Program p;
  RUBATO_ASSERT_OK(p.Parse(
      {"--config=c", "--listen=elsewhere:1", "in"}));  // defaults are those of the declaration
  EXPECT_EQ(p.flags.Help(),
            "usage: rubato test INPUT [OUTPUT] --config FILE [--listen HOST:PORT] [--shard K] "
            "[--bytes N]\n"
            "       [--dry-run] [--set KEY=VALUE ...]\n"
            "\n"
            "Does what a test needs.\n"
            "\n"
            "Arguments:\n"
            "  INPUT                 what is read\n"
            "  OUTPUT                what is written\n"
            "\n"
            "Flags:\n"
            "  --config FILE         the job (required)\n"
            "  --listen HOST:PORT    where to listen (default 127.0.0.1:0)\n"
            "  --shard K             which shard this is (default 0)\n"
            "  --bytes N             how many (default 5)\n"
            "  --dry-run             only say what would be done\n"
            "  --set KEY=VALUE       override a key\n"
            "  --help, -h            print this and exit\n"
            "  --version             print the version and exit\n"
            "\n"
            "Examples:\n"
            "  rubato test --config job.yaml in\n");
}

TEST(FlagsTest, LongRowsOfTheHelpAreWrapped) {
  int rank = -1;
  bool narrow = false;
  Flags flags("rubato test", "");
  flags.Add("rank", &rank, "K", std::string(70, 'x') + " 76 and more");
  flags.Add("narrow-or-not-so-narrow", &narrow, "", "below a name that is wide");
  EXPECT_THAT(flags.Help(), HasSubstr("\n  --rank K              " + std::string(70, 'x') +
                                      " 76\n"
                                      "                        and more\n"  // -1 is no default
                                      "  --narrow-or-not-so-narrow\n"
                                      "                        below a name that is wide\n"));
}

TEST(FlagsTest, HandlePrintsAndGivesTheExitCode) {
  Program p;
  testing::internal::CaptureStdout();
  EXPECT_EQ(p.flags.Handle({"--version"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), std::string("rubato test ") + kVersion + "\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(p.flags.Handle({"--help"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), p.flags.Help());
  testing::internal::CaptureStderr();
  EXPECT_EQ(p.flags.Handle({"--nonsense"}), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: unknown flag --nonsense (see rubato test --help)\n");
  EXPECT_EQ(p.flags.Handle({"--config=c", "in"}), std::nullopt);
}

TEST(FlagsTest, HandleSkipsTheProgramsName) {
  Program p;
  char name[] = "program", config[] = "--config=c", input[] = "in";
  char* argv[] = {name, config, input, nullptr};
  EXPECT_EQ(p.flags.Handle(3, argv), std::nullopt);
  EXPECT_EQ(p.input, "in");
}

TEST(FlagsTest, TheLastPositionalMayBeAList) {
  std::string first;
  std::vector<std::string> rest;
  Flags flags("rubato test", "");
  flags.AddPositional(&first, "FIRST", "one");
  flags.AddPositional(&rest, "MORE", "the others");
  RUBATO_EXPECT_OK(flags.Parse({"a", "b", "--", "--c", "d"}));
  EXPECT_EQ(first, "a");
  EXPECT_EQ(rest, (std::vector<std::string>{"b", "--c", "d"}));
  EXPECT_THAT(flags.Parse({"a"}).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("missing argument MORE...")));
  EXPECT_THAT(flags.Help(), HasSubstr("usage: rubato test FIRST MORE...\n"));
}

}  // namespace
}  // namespace rubato
