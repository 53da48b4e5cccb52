#include "tools/command/certificates.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/files/run_folder.h"
#include "common/wire/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

absl::Duration Days(int days) { return days * absl::Hours(24); }

class CertificatesCommandTest : public ::testing::Test {
 protected:
  ~CertificatesCommandTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::string Text(const std::string& name) const {
    const auto text = ReadSmallFile(Path(name));
    RUBATO_EXPECT_OK(text);
    return text.ok() ? *text : "";
  }
  absl::Status Check(Role role, absl::Time now) const {
    return CheckCertificates(Path(std::string(RoleName(role))), role, now);
  }
  // Of all files, by their paths.
  std::map<std::string, std::string> Contents() const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = fs::relative(entry.path(), folder_);
      contents[name] = Text(name);
    }
    return contents;
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/certificates");
};

TEST_F(CertificatesCommandTest, EachRoleGetsWhatItNeedsAndNoMore) {
  RUBATO_ASSERT_OK(MakeCertificates(folder_, Days(30), kNow));
  std::vector<std::string> names;
  for (const auto& [name, text] : Contents()) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("authority/ca.crt", "authority/ca.key", "observer/ca.crt",
                          "observer/tls.crt", "observer/tls.key", "operator/ca.crt",
                          "operator/tls.crt", "operator/tls.key", "server/ca.crt", "server/tls.crt",
                          "server/tls.key", "worker/ca.crt", "worker/tls.crt", "worker/tls.key"));
  for (const Role role : kRoles) {
    RUBATO_EXPECT_OK(Check(role, kNow));
    RUBATO_EXPECT_OK(Check(role, kNow + Days(30) - absl::Seconds(1)));
    RUBATO_EXPECT_OK(Check(role, kNow - absl::Minutes(4)));  // of a host that is late
    EXPECT_THAT(Check(role, kNow + Days(30)),
                IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("valid until")));
  }
}

TEST_F(CertificatesCommandTest, OnlyTheOwnerMayReadFoldersAndKeys) {
  const mode_t before = umask(0);
  RUBATO_EXPECT_OK(MakeCertificates(folder_, Days(30), kNow));
  umask(before);
  int keys = 0;
  const auto mode = [](const fs::path& path) {
    struct stat about = {};
    EXPECT_EQ(stat(path.c_str(), &about), 0);
    return about.st_mode & 0777;
  };
  EXPECT_EQ(mode(folder_), 0700u);
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.is_directory()) {
      EXPECT_EQ(mode(entry.path()), 0700u) << entry.path();
    }
    if (entry.path().extension() != ".key") continue;
    EXPECT_EQ(mode(entry.path()), 0600u) << entry.path();
    ++keys;
  }
  EXPECT_EQ(keys, 5);
}

TEST_F(CertificatesCommandTest, AnAuthorityIsNotOverwritten) {
  RUBATO_ASSERT_OK(MakeCertificates(folder_, Days(30), kNow));
  const auto before = Contents();
  EXPECT_THAT(CertificatesText(folder_, 30, ""),
              IsError(absl::StatusCode::kAlreadyExists,
                      HasSubstr(absl::StrCat("/authority is there already: --from ", folder_,
                                             "/authority makes new certificates"))));
  EXPECT_EQ(Contents(), before);
  // Nor are certificates whose authority is kept elsewhere.
  fs::remove_all(Path("authority"));
  EXPECT_THAT(MakeCertificates(folder_, Days(30), kNow),
              IsError(absl::StatusCode::kAlreadyExists, HasSubstr("observer is there already")));
  EXPECT_EQ(Text("worker/tls.crt"), before.at("worker/tls.crt"));
}

TEST_F(CertificatesCommandTest, AnAuthorityRenewsItsCertificates) {
  RUBATO_ASSERT_OK(MakeCertificates(folder_, Days(30), kNow));
  const auto before = Contents();
  RUBATO_ASSERT_OK(RenewCertificates(folder_, Path("authority"), Days(30), kNow + Days(20)));
  const auto after = Contents();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, text] : after) {
    const bool stays = name.find("ca.") != std::string::npos;
    EXPECT_EQ(text == before.at(name), stays) << name;
  }
  for (const Role role : kRoles) RUBATO_EXPECT_OK(Check(role, kNow + Days(49)));
  // Into another place, too.
  const std::string elsewhere = Path("elsewhere");
  RUBATO_ASSERT_OK(RenewCertificates(elsewhere, Path("authority"), Days(1), kNow));
  RUBATO_EXPECT_OK(CheckCertificates(elsewhere + "/server", Role::kServer, kNow));
  EXPECT_FALSE(fs::exists(elsewhere + "/authority"));
  // For as long as it is valid itself.
  EXPECT_THAT(RenewCertificates(folder_, Path("authority"), Days(3650), kNow + Days(1)),
              IsError(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("/authority: the authority is valid until")));
  RUBATO_EXPECT_OK(Check(Role::kServer, kNow + Days(49)));
}

TEST_F(CertificatesCommandTest, MistakesAreToldByName) {
  for (const int days : {-1, 0, 3651}) {
    EXPECT_THAT(CertificatesText(folder_, days, ""),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat("--days: found ", days, ", expected 1 to 3650")));
  }
  EXPECT_THAT(CertificatesText(Path("in/no/folder"), 30, ""),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("no/folder: No such file")));
  EXPECT_THAT(CertificatesText(folder_, 30, Path("authority")),
              IsError(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat(folder_, "/authority/ca.crt: No such file or directory")));
  EXPECT_FALSE(fs::exists(folder_));
  const auto text = CertificatesText(folder_, 3650, "");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr(Path("worker\n")));
  // A role's certificate signs nothing.
  fs::copy(Path("worker/tls.crt"), Path("worker/ca.crt"), fs::copy_options::overwrite_existing);
  fs::copy(Path("worker/tls.key"), Path("worker/ca.key"));
  EXPECT_THAT(
      CertificatesText(folder_, 30, Path("worker")),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("worker: this is no authority")));
}

}  // namespace
}  // namespace rubato
