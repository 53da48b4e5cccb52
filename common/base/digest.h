// SHA-256 (FIPS 180-4), for digests of jobs, data and parameters.
#ifndef RUBATO_COMMON_BASE_DIGEST_H_
#define RUBATO_COMMON_BASE_DIGEST_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace rubato {

// The digest of bytes that arrive in pieces; how they are cut does not matter.
class Sha256 {
 public:
  Sha256();

  void Update(absl::string_view bytes);
  // 64 lower-case hexadecimal digits. Resets the object to its initial state.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// The digest of `bytes`.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_DIGEST_H_
