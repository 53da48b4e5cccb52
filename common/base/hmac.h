// Keyed hashes and what goes with them, by libcrypto: HMAC-SHA-256 (RFC 2104, FIPS 198-1), random
// bytes that nobody can guess, and a comparison in constant time.
#ifndef RUBATO_COMMON_BASE_HMAC_H_
#define RUBATO_COMMON_BASE_HMAC_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

constexpr size_t kHmacBytes = 32;

// kHmacBytes of bytes.
std::string HmacSha256(absl::string_view key, absl::string_view message);

// Random bytes from the system's cryptographic generator.
std::string RandomBytes(size_t count);

// Whether they are the same bytes. Only their sizes show in the time that it takes.
bool IsSameSecret(absl::string_view a, absl::string_view b);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_HMAC_H_
