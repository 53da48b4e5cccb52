#include "common/wire/certificates.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kUnfit = absl::StatusCode::kFailedPrecondition;

absl::Time At(int day) { return absl::FromUnixSeconds(1'800'000'000) + day * absl::Hours(24); }

class CertificatesTest : public ::testing::Test {
 protected:
  CertificatesTest() { std::filesystem::create_directory(folder_); }
  ~CertificatesTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& file, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", file);
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
  }
  // What a process of `role` gets, valid for days 0 to 10.
  void WriteFolder(Role role) {
    const absl::StatusOr<CertificateAndKey> own =
        IssueCertificate(authority_, role, {At(0), At(10)});
    RUBATO_EXPECT_OK(own);
    own_ = *own;
    Write("ca.crt", authority_.certificate);
    Write("tls.crt", own_.certificate);
    Write("tls.key", own_.key);
  }
  absl::Status Check(Role as, int day = 5) const { return CheckCertificates(folder_, as, At(day)); }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/own");
  const CertificateAndKey authority_ = MakeAuthority({At(0), At(100)});
  const CertificateAndKey other_authority_ = MakeAuthority({At(0), At(100)});
  CertificateAndKey own_;
};

TEST_F(CertificatesTest, ACertificateIsForItsRoleAlone) {
  for (const Role role : kRoles) {
    WriteFolder(role);
    for (const Role as : kRoles) {
      const absl::Status checked = Check(as);
      if (as == role || as == Role::kObserver) {
        RUBATO_EXPECT_OK(checked);
      } else {
        EXPECT_THAT(checked,
                    IsError(kUnfit, absl::StrCat(folder_, "/tls.crt: the certificate is the ",
                                                 RoleName(role), "'s; the ", RoleName(as),
                                                 "'s is needed")));
      }
    }
  }
}

TEST_F(CertificatesTest, ACertificateIsForItsTime) {
  WriteFolder(Role::kWorker);
  RUBATO_EXPECT_OK(Check(Role::kWorker, 0));
  RUBATO_EXPECT_OK(Check(Role::kWorker, 9));
  EXPECT_THAT(Check(Role::kWorker, 10),
              IsError(kUnfit, HasSubstr("tls.crt: the certificate was valid until 2027-01-25 08:00 "
                                        "UTC: make a new one (rubato certificates --from ")));
  EXPECT_THAT(Check(Role::kWorker, -1),
              IsError(kUnfit, HasSubstr("tls.crt: the certificate is valid from 2027-01-15 08:00 "
                                        "UTC on: is this host's clock right?")));
}

TEST_F(CertificatesTest, ACertificateOfAnotherAuthorityIsRefused) {
  WriteFolder(Role::kWorker);
  Write("ca.crt", other_authority_.certificate);
  EXPECT_THAT(Check(Role::kWorker),
              IsError(kUnfit, HasSubstr("tls.crt: the authority in ca.crt does not stand for the "
                                        "certificate: unable to get local issuer certificate")));
  // Two authorities, while one takes the place of the other.
  Write("ca.crt", other_authority_.certificate + authority_.certificate);
  RUBATO_EXPECT_OK(Check(Role::kWorker));
  // Who has a certificate can sign none.
  const absl::StatusOr<CertificateAndKey> by_worker =
      IssueCertificate(own_, Role::kServer, {At(0), At(10)});
  EXPECT_THAT(by_worker, IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no authority")));
}

TEST_F(CertificatesTest, ACertificateWithoutARoleIsRefused) {
  WriteFolder(static_cast<Role>(9));
  for (const Role as : kRoles) {
    EXPECT_THAT(Check(as), IsError(kUnfit, HasSubstr("tls.crt: the certificate does not name one "
                                                     "role")));
  }
}

TEST_F(CertificatesTest, AKeyBelongsToItsCertificateAndItsOwner) {
  WriteFolder(Role::kWorker);
  chmod((folder_ + "/tls.key").c_str(), 0640);
  EXPECT_THAT(Check(Role::kWorker), IsError(kUnfit, HasSubstr("/tls.key: others may read this")));
  Write("tls.key", other_authority_.key);
  EXPECT_THAT(Check(Role::kWorker),
              IsError(kUnfit, HasSubstr("/tls.key: this key does not belong to the certificate")));
}

TEST_F(CertificatesTest, WhatIsNoFileOfItsKindIsRefusedByName) {
  for (const std::string file : {"ca.crt", "tls.crt", "tls.key"}) {
    const std::string path = absl::StrCat(folder_, "/", file, ": ");
    const std::string kind =
        file == "tls.key" ? "this is no private key" : "this is no certificate";
    for (const std::string text : {"", "nonsense", "-----BEGIN CERTIFICATE-----\nQUJD\n"}) {
      WriteFolder(Role::kWorker);
      Write(file, text);
      EXPECT_THAT(Check(Role::kWorker), IsError(kUnfit, StartsWith(path + kind))) << text;
    }
    std::filesystem::remove(folder_ + "/" + file);
    EXPECT_THAT(Check(Role::kWorker), IsError(kUnfit, path + "No such file or directory"));
  }
}

TEST_F(CertificatesTest, AnAuthoritySignsForAsLongAsItIsValid) {
  RUBATO_EXPECT_OK(IssueCertificate(authority_, Role::kServer, {At(0), At(100)}));
  EXPECT_THAT(IssueCertificate(authority_, Role::kServer, {At(0), At(101)}),
              IsError(kUnfit, HasSubstr("the authority is valid until 2027-04-25 08:00 UTC")));
  for (const CertificateAndKey& none :
       {CertificateAndKey(), CertificateAndKey{authority_.certificate, other_authority_.key},
        CertificateAndKey{authority_.certificate, ""}, CertificateAndKey{"", authority_.key}}) {
    EXPECT_THAT(IssueCertificate(none, Role::kServer, {At(0), At(10)}),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no authority")));
  }
}

TEST(RoleOfUrisTest, NamesOneRole) {
  const auto worker = RoleOfUris({"https://example.com", "rubato:role:worker"});
  RUBATO_ASSERT_OK(worker);
  EXPECT_EQ(*worker, Role::kWorker);
  for (const std::vector<std::string>& uris :
       std::vector<std::vector<std::string>>{{},
                                             {"rubato:role:"},
                                             {"rubato:role:nobody"},
                                             {"rubato:role:worker "},
                                             {std::string("rubato:role:server\0", 19)},
                                             {"Rubato:role:worker"},
                                             {"rubato:role:worker", "rubato:role:server"},
                                             {"rubato:role:worker", "rubato:role:worker"},
                                             {"rubato:role:worker", "rubato:role:nobody"}}) {
    EXPECT_THAT(RoleOfUris(uris),
                IsError(absl::StatusCode::kUnauthenticated, HasSubstr("does not name one role")));
  }
}

}  // namespace
}  // namespace rubato
