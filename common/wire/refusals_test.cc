#include "common/wire/refusals.h"

#include <unistd.h>

#include <optional>
#include <string>

#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A log, and what has been written to it since it was asked last.
class Written {
 public:
  Written() {
    RUBATO_CHECK(pipe(fds_) == 0);
    log_.emplace("server", 1, LogLevel::kInfo, LogFormat::kText, fds_[1]);
  }
  ~Written() {
    close(fds_[0]);
    close(fds_[1]);
  }
  const Log* log() const { return &*log_; }
  std::string Text() {
    const std::string end = "end\n";
    RUBATO_CHECK(WriteAll(fds_[1], end));
    std::string text(4096, 0);
    text.resize(static_cast<size_t>(read(fds_[0], &text[0], text.size())));
    return text.substr(0, text.size() - end.size());
  }

 private:
  int fds_[2];
  std::optional<Log> log_;
};

TEST(RefusalsTest, CountsAllAndTellsOfOneASecond) {
  Written written;
  Refusals refusals(written.log());
  const absl::Time start = absl::UnixEpoch();
  refusals.Add("ipv4:10.0.0.1:5", absl::UnauthenticatedError("no key"), start);
  refusals.Add("ipv4:10.0.0.2:5", absl::UnauthenticatedError("another"), start);
  EXPECT_THAT(written.Text(), AllOf(HasSubstr("warning: refuses a caller peer=ipv4:10.0.0.1:5 "
                                              "reason=\"no key\" refused_in_all=1"),
                                    Not(HasSubstr("another"))));
  refusals.Add("a", absl::UnauthenticatedError(""), start + absl::Milliseconds(999));
  EXPECT_THAT(written.Text(), IsEmpty());
  refusals.Add("b", absl::UnauthenticatedError(""), start + absl::Seconds(1));
  EXPECT_THAT(written.Text(), HasSubstr("refused_in_all=4"));
  EXPECT_EQ(refusals.count(), 4);
}

TEST(RefusalsTest, WithoutALogTheyAreCounted) {
  Refusals refusals;
  refusals.Add("peer", absl::UnauthenticatedError("no key"), absl::UnixEpoch());
  EXPECT_EQ(refusals.count(), 1);
}

}  // namespace
}  // namespace rubato
