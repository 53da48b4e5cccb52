#include "common/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/base/check.h"

namespace rubato {
namespace {

unsigned char* Bytes(std::string* text) { return reinterpret_cast<unsigned char*>(text->data()); }

}  // namespace

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  std::string mac(kHmacBytes, '\0');
  unsigned int size = 0;
  RUBATO_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                    Bytes(&mac), &size) != nullptr);
  RUBATO_CHECK(size == kHmacBytes);
  return mac;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  RUBATO_CHECK(RAND_bytes(Bytes(&bytes), static_cast<int>(count)) == 1);
  return bytes;
}

bool IsSameSecret(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace rubato
