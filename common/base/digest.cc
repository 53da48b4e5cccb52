#include "common/base/digest.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace rubato {

void Sha256::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  RUBATO_CHECK(context_ != nullptr);
  RUBATO_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Update(absl::string_view bytes) {
  RUBATO_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::FinishHex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  RUBATO_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
  RUBATO_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.FinishHex();
}

}  // namespace rubato
