#include "common/wire/key.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kDigits(64, 'a');

TEST(KeyTest, TheTextOfAKeyIsRead) {
  const JobKey secret = JobKey::DrawSecret();
  const auto read = JobKey::Parse(absl::StrCat(" ", secret.ToText(), "\n"));
  RUBATO_ASSERT_OK(read);
  EXPECT_TRUE(read->is_secret());
  EXPECT_EQ(read->bytes(), secret.bytes());
  EXPECT_EQ(secret.bytes().size(), 32u);
  EXPECT_NE(secret.bytes(), JobKey::DrawSecret().bytes());
  const auto worker = JobKey::Parse(absl::StrCat("worker-", kDigits));
  RUBATO_ASSERT_OK(worker);
  EXPECT_FALSE(worker->is_secret());
  EXPECT_EQ(worker->role(), Role::kWorker);
  EXPECT_EQ(worker->ToText(), absl::StrCat("worker-", kDigits));
}

TEST(KeyTest, WhatIsNoKeyIsRefusedAndNotRepeated) {
  for (const std::string& text :
       {std::string(), std::string("secret"), kDigits, absl::StrCat("boss-", kDigits),
        absl::StrCat("worker-", kDigits, "a"), absl::StrCat("worker-", kDigits.substr(1)),
        absl::StrCat("worker-g", kDigits.substr(1)), absl::StrCat("-", kDigits)}) {
    const auto key = JobKey::Parse(text);
    EXPECT_THAT(key, IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no key"))) << text;
    EXPECT_THAT(std::string(key.status().message()), Not(HasSubstr("aaaa")));
  }
}

TEST(KeyTest, OfTheSecretEachRoleHasItsOwnKey) {
  const auto secret = JobKey::Parse(absl::StrCat("secret-", kDigits));
  RUBATO_ASSERT_OK(secret);
  std::map<std::string, Role> found;
  for (const Role role : {Role::kObserver, Role::kOperator, Role::kWorker, Role::kServer}) {
    const auto key = secret->Of(role);
    RUBATO_ASSERT_OK(key);
    EXPECT_EQ(key->role(), role);
    EXPECT_TRUE(found.emplace(key->bytes(), role).second);
    EXPECT_EQ(secret->Of(role)->bytes(), key->bytes());
    RUBATO_EXPECT_OK(key->Of(role));
  }
  // HMAC-SHA-256 of "rubato key of the worker", by Python's hmac module.
  EXPECT_EQ(secret->Of(Role::kWorker)->ToText(),
            "worker-35fa6f7725fc6af0e5869290b53b96098d7e3f9805fbb39ebc7c254c87f3fc3d");
  EXPECT_THAT(secret->Of(Role::kWorker)->Of(Role::kServer),
              IsError(absl::StatusCode::kPermissionDenied, HasSubstr("worker's")));
}

class KeyFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  absl::StatusOr<std::optional<JobKey>> Find() {
    return FindKey([this](const char* name) -> const char* {
      const auto value = environment_.find(name);
      return value == environment_.end() ? nullptr : value->second.c_str();
    });
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/key");
  std::map<std::string, std::string> environment_;
};

TEST_F(KeyFileTest, AProcessFindsItsKeyByTheEnvironment) {
  auto key = Find();
  RUBATO_ASSERT_OK(key);
  EXPECT_FALSE(key->has_value());
  environment_["RUBATO_KEY"] = absl::StrCat("operator-", kDigits);
  key = Find();
  RUBATO_ASSERT_OK(key);
  EXPECT_EQ((*key)->role(), Role::kOperator);
  Write(absl::StrCat("worker-", kDigits, "\n"), 0600);
  environment_["RUBATO_KEY_FILE"] = path_;
  EXPECT_THAT(Find(), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("both set")));
  environment_.erase("RUBATO_KEY");
  key = Find();
  RUBATO_ASSERT_OK(key);
  EXPECT_EQ((*key)->role(), Role::kWorker);
}

TEST_F(KeyFileTest, WhatIsNoFileOfAKeyIsRefusedByName) {
  environment_["RUBATO_KEY_FILE"] = path_;
  Write(absl::StrCat("worker-", kDigits), 0644);
  EXPECT_THAT(Find(), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("chmod 600")));
  Write("nonsense", 0600);
  EXPECT_THAT(Find(), IsError(absl::StatusCode::kFailedPrecondition,
                              HasSubstr(absl::StrCat("RUBATO_KEY_FILE: ", path_, ": this is no"))));
  environment_["RUBATO_KEY_FILE"] = path_ + "-that-is-not";
  EXPECT_THAT(Find(), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("No such file")));
  environment_["RUBATO_KEY_FILE"] = ::testing::TempDir();
  EXPECT_THAT(Find(), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("is no file")));
}

}  // namespace
}  // namespace rubato
