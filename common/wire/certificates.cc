#include "common/wire/certificates.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/given_file.h"

namespace rubato {
namespace {

constexpr absl::string_view kRoleUri = "rubato:role:";
// No file of certificates is longer: what else is given as one is not read whole.
constexpr size_t kMaxFile = 64 << 10;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;
using Store = std::unique_ptr<X509_STORE, Freed<X509_STORE_free>>;
using Context = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

Bio Reader(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextIn(const Bio& bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);  // NOLINT: OpenSSL's type
  return std::string(bytes, static_cast<size_t>(size));
}

CertificateAndKey ToPem(const Certificate& certificate, const Key& key) {
  CertificateAndKey pem;
  const Bio certificate_bio(BIO_new(BIO_s_mem())), key_bio(BIO_new(BIO_s_mem()));
  RUBATO_CHECK(PEM_write_bio_X509(certificate_bio.get(), certificate.get()) == 1);
  RUBATO_CHECK(PEM_write_bio_PKCS8PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                             nullptr) == 1);
  return {TextIn(certificate_bio), TextIn(key_bio)};
}

// No question for a password is put to whoever sits at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// All of them; none if there is something else.
std::vector<Certificate> CertificatesIn(absl::string_view pem) {
  const auto clear = absl::MakeCleanup([] { ERR_clear_error(); });
  const Bio bio = Reader(pem);
  std::vector<Certificate> certificates;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    certificates.emplace_back(next);
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) certificates.clear();
  return certificates;
}

Key KeyIn(absl::string_view pem) {
  const auto clear = absl::MakeCleanup([] { ERR_clear_error(); });
  return Key(PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, NoPassword, nullptr));
}

bool BelongTogether(const Certificate& certificate, const Key& key) {
  const auto clear = absl::MakeCleanup([] { ERR_clear_error(); });
  return X509_check_private_key(certificate.get(), key.get()) == 1;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

Validity ValidityOf(const Certificate& certificate) {
  return {ToTime(X509_get0_notBefore(certificate.get())),
          ToTime(X509_get0_notAfter(certificate.get()))};
}

// Without names, extensions and a signature.
Certificate Begin(const Key& key, const Validity& validity) {
  Certificate certificate(X509_new());
  RUBATO_CHECK(X509_set_version(certificate.get(), X509_VERSION_3) == 1);
  unsigned char number[16];
  RUBATO_CHECK(RAND_bytes(number, sizeof number) == 1);
  number[0] = (number[0] & 0x7f) | 0x40;  // above zero, and no byte less
  const std::unique_ptr<BIGNUM, Freed<BN_free>> big(BN_bin2bn(number, sizeof number, nullptr));
  BN_to_ASN1_INTEGER(big.get(), X509_get_serialNumber(certificate.get()));
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.from));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.until));
  RUBATO_CHECK(X509_set_pubkey(certificate.get(), key.get()) == 1);
  return certificate;
}

void SetName(X509_NAME* name, const std::string& text) {
  RUBATO_CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                          reinterpret_cast<const unsigned char*>(text.data()),
                                          static_cast<int>(text.size()), -1, 0) == 1);
}

void Extend(X509* issuer, int kind, const std::string& value, X509* certificate) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  RUBATO_CHECK(extension != nullptr);
  RUBATO_CHECK(X509_add_ext(certificate, extension.get(), -1) == 1);
}

void Sign(const Key& key, const Certificate& certificate) {
  RUBATO_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
}

std::vector<std::string> UrisIn(const Certificate& certificate) {
  std::vector<std::string> uris;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

// Why the first certificate of `chain` is not what the authority's certificates stand for, as one
// that is shown for `purpose`; empty if it is.
std::string WhyForeign(const std::vector<Certificate>& authority,
                       const std::vector<Certificate>& chain, int purpose, absl::Time now) {
  const auto clear = absl::MakeCleanup([] { ERR_clear_error(); });
  const Store store(X509_STORE_new());
  for (const Certificate& known : authority) X509_STORE_add_cert(store.get(), known.get());
  STACK_OF(X509)* const between = sk_X509_new_null();
  const auto free_between = absl::MakeCleanup([between] { sk_X509_free(between); });
  for (const Certificate& certificate : chain) sk_X509_push(between, certificate.get());
  const Context context(X509_STORE_CTX_new());
  RUBATO_CHECK(X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between) == 1);
  X509_VERIFY_PARAM* const how = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(how, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_purpose(how, purpose);
  if (X509_verify_cert(context.get()) == 1) return "";
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

absl::Status NoRole() {
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate does not name one role: its alternative names have no URI:", kRoleUri,
      "ROLE of a role of Rubato, or several"));
}

// Why `chain` does not let a process take part as `as`; empty if it does.
std::string WhyUnfit(const std::vector<Certificate>& authority,
                     const std::vector<Certificate>& chain, Role as, absl::Time now) {
  const Validity validity = ValidityOf(chain[0]);
  if (now >= validity.until) {
    return absl::StrCat("the certificate was valid until ", DateText(validity.until),
                        ": make a new one (rubato certificates --from AUTHORITY --out DIR)");
  }
  if (now < validity.from) {
    return absl::StrCat("the certificate is valid from ", DateText(validity.from),
                        " on: is this host's clock right?");
  }
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}) {
    if (purpose == X509_PURPOSE_SSL_SERVER && as != Role::kServer) continue;
    if (const std::string why = WhyForeign(authority, chain, purpose, now); !why.empty()) {
      return absl::StrCat("the authority in ", kAuthorityFile,
                          " does not stand for the certificate: ", why);
    }
  }
  const absl::StatusOr<Role> role = RoleOfUris(UrisIn(chain[0]));
  if (!role.ok()) return std::string(role.status().message());
  if (*role == as || as == Role::kObserver) return "";
  return absl::StrFormat("the certificate is the %s's; the %s's is needed", RoleName(*role),
                         RoleName(as));
}

}  // namespace

CertificateAndKey MakeAuthority(const Validity& validity) {
  const Key key(EVP_EC_gen("P-256"));
  RUBATO_CHECK(key != nullptr);
  const Certificate certificate = Begin(key, validity);
  SetName(X509_get_subject_name(certificate.get()), "Rubato job authority");
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  X509* const own = certificate.get();
  Extend(own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0", own);
  Extend(own, NID_key_usage, "critical,keyCertSign,cRLSign", own);
  Extend(own, NID_subject_key_identifier, "hash", own);
  Sign(key, certificate);
  return ToPem(certificate, key);
}

absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, Role role,
                                                   const Validity& validity) {
  const std::vector<Certificate> issuers = CertificatesIn(authority.certificate);
  const Key issuer_key = KeyIn(authority.key);
  if (issuers.empty() || issuer_key == nullptr || !BelongTogether(issuers[0], issuer_key) ||
      X509_check_ca(issuers[0].get()) != 1) {
    return absl::InvalidArgumentError("this is no authority: its certificate and key do not fit");
  }
  X509* const issuer = issuers[0].get();
  const absl::Time last = ValidityOf(issuers[0]).until;
  if (last <
      absl::FromTimeT(absl::ToTimeT(validity.until))) {  // whole seconds, as they are written
    return absl::FailedPreconditionError(absl::StrCat(
        "the authority is valid until ", DateText(last),
        " and can sign nothing that is so for longer: ask for fewer days, or make a new one"));
  }
  const Key key(EVP_EC_gen("P-256"));
  RUBATO_CHECK(key != nullptr);
  const Certificate certificate = Begin(key, validity);
  SetName(X509_get_subject_name(certificate.get()), absl::StrCat("rubato ", RoleName(role)));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  X509* const own = certificate.get();
  Extend(issuer, NID_basic_constraints, "critical,CA:FALSE", own);
  Extend(issuer, NID_key_usage, "critical,digitalSignature", own);
  Extend(issuer, NID_ext_key_usage, "clientAuth,serverAuth", own);
  Extend(issuer, NID_subject_alt_name, absl::StrCat("URI:", kRoleUri, RoleName(role)), own);
  Extend(issuer, NID_subject_key_identifier, "hash", own);
  Extend(issuer, NID_authority_key_identifier, "keyid", own);
  Sign(issuer_key, certificate);
  return ToPem(certificate, key);
}

absl::Status CheckCertificates(const std::string& folder, Role as, absl::Time now) {
  const auto path = [&](const char* file) { return absl::StrCat(folder, "/", file); };
  const auto failure = [&](const char* file, absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(path(file), ": ", what));
  };
  RUBATO_ASSIGN_OR_RETURN(const std::string authority_pem,
                          ReadGivenFile(path(kAuthorityFile), kMaxFile, Secrecy::kNone));
  RUBATO_ASSIGN_OR_RETURN(const std::string chain_pem,
                          ReadGivenFile(path(kCertificateFile), kMaxFile, Secrecy::kNone));
  RUBATO_ASSIGN_OR_RETURN(const std::string key_pem,
                          ReadGivenFile(path(kPrivateKeyFile), kMaxFile, Secrecy::kOwnerOnly));
  const std::vector<Certificate> authority = CertificatesIn(authority_pem);
  const std::vector<Certificate> chain = CertificatesIn(chain_pem);
  const Key key = KeyIn(key_pem);
  if (authority.empty()) return failure(kAuthorityFile, "this is no certificate (PEM)");
  if (chain.empty()) return failure(kCertificateFile, "this is no certificate (PEM)");
  if (key == nullptr) return failure(kPrivateKeyFile, "this is no private key (PEM)");
  if (!BelongTogether(chain[0], key)) {
    return failure(kPrivateKeyFile, "this key does not belong to the certificate in tls.crt");
  }
  if (const std::string why = WhyUnfit(authority, chain, as, now); !why.empty()) {
    return failure(kCertificateFile, why);
  }
  return absl::OkStatus();
}

absl::StatusOr<Role> RoleOfUris(const std::vector<std::string>& uris) {
  std::optional<Role> found;
  for (const std::string& uri : uris) {
    if (!absl::StartsWith(uri, kRoleUri)) continue;
    const auto role = std::find_if(std::begin(kRoles), std::end(kRoles), [&](Role known) {
      return uri == absl::StrCat(kRoleUri, RoleName(known));
    });
    if (found.has_value() || role == std::end(kRoles)) return NoRole();
    found = *role;
  }
  if (!found.has_value()) return NoRole();
  return *found;
}

std::string DateText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

}  // namespace rubato
