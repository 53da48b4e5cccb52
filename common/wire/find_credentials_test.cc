#include "common/wire/find_credentials.h"

#include <map>
#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

absl::StatusOr<Credentials> Find(SecurityMode mode, Role role,
                                 const std::map<std::string, std::string>& environment) {
  return FindCredentials(mode, role, [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(FindCredentialsTest, ByTokenAProcessShowsTheKeyOfItsRole) {
  const JobKey secret = JobKey::DrawSecret();
  const JobKey worker_key = *secret.Of(Role::kWorker);
  auto server = Find(SecurityMode::kToken, Role::kServer, {{"RUBATO_KEY", secret.ToText()}});
  ASSERT_THAT(server, IsOk());
  EXPECT_NE(server->gate(), nullptr);
  for (const JobKey& key : {secret, worker_key}) {
    auto worker = Find(SecurityMode::kToken, Role::kWorker, {{"RUBATO_KEY", key.ToText()}});
    ASSERT_THAT(worker, IsOk());
    EXPECT_TRUE(worker->NewCaller().has_value());
    EXPECT_FALSE(worker->KeyOf(Role::kServer).has_value());
  }
  EXPECT_THAT(Find(SecurityMode::kToken, Role::kServer, {{"RUBATO_KEY", worker_key.ToText()}}),
              IsError(Code::kFailedPrecondition, HasSubstr("the job's secret")));
}

TEST(FindCredentialsTest, ByMtlsAProcessNeedsItsFolder) {
  for (const char* folder : {"", "/nowhere"}) {
    EXPECT_THAT(Find(SecurityMode::kMtls, Role::kWorker, {{"RUBATO_CERTIFICATES", folder}}),
                IsError(Code::kFailedPrecondition,
                        HasSubstr(*folder == '\0' ? "DIR/worker of `rubato certificates --out DIR`"
                                                  : "RUBATO_CERTIFICATES: /nowhere")));
  }
}

TEST(FindCredentialsTest, OpenToAllIsOnlyWhoSaysSo) {
  for (const Role role : {Role::kServer, Role::kWorker}) {
    EXPECT_THAT(Find(SecurityMode::kToken, role, {}),
                IsError(Code::kFailedPrecondition,
                        AllOf(HasSubstr("RUBATO_KEY_FILE"), HasSubstr("rubato token"),
                              HasSubstr("security.mode: none"))));
    const std::string key = JobKey::DrawSecret().ToText();
    auto open = Find(SecurityMode::kNone, role, {{"RUBATO_KEY", key}});
    ASSERT_THAT(open, IsOk());
    EXPECT_FALSE(open->NewCaller().has_value());
    EXPECT_EQ(open->gate(), nullptr);
  }
}

}  // namespace
}  // namespace rubato
