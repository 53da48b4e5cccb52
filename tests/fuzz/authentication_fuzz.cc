// Any bytes as what a stranger shows: as a hello, as a call's proof, as a server's welcome, as the
// text of a key and as a certificate; and honest bytes with some of them changed.
#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/wire/authentication.h"
#include "common/wire/certificates.h"
#include "common/wire/key.h"
#include "tests/fuzz/input.h"

namespace rubato {
namespace {

constexpr char kSecret[] =
    "secret-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
constexpr char kMethod[] = "/method";
const absl::Time kNow = absl::FromUnixSeconds(1000);

// `honest` with the bytes of `input` added to its first.
std::string Changed(std::string honest, absl::string_view input) {
  for (size_t i = 0; i < std::min(honest.size(), input.size()); ++i) {
    honest[i] = static_cast<char>(honest[i] + input[i]);
  }
  return honest;
}

void Show(absl::string_view bytes) {
  Gate gate(*JobKey::Parse(kSecret));
  const JobKey key = *JobKey::Parse(kSecret)->Of(Role::kWorker);
  RUBATO_CHECK(!gate.Check(kMethod, bytes, kNow).ok());
  gate.Welcome(bytes, kNow).IgnoreError();
  Caller caller(key);
  const std::string welcome = *gate.Welcome(caller.Hello(), kNow);
  RUBATO_CHECK(!caller.OnWelcome(bytes, kNow).ok());
  const std::string bent = Changed(welcome, bytes);
  const bool is_welcome = caller.OnWelcome(bent, kNow).ok();
  RUBATO_CHECK(is_welcome == (bent == welcome));
  RUBATO_CHECK(is_welcome || caller.OnWelcome(welcome, kNow).ok());
  const std::string shown = caller.Show(kMethod), other = Changed(shown, bytes);
  RUBATO_CHECK(gate.Check(kMethod, other, kNow).ok() == (other == shown));
}

void ReadKey(absl::string_view text) {
  const absl::StatusOr<JobKey> key = JobKey::Parse(text);
  if (key.ok()) RUBATO_CHECK(JobKey::Parse(key->ToText())->bytes() == key->bytes());
}

void ReadCertificates(FuzzInput input, size_t size) {
  for (const char* file : {kAuthorityFile, kCertificateFile, kPrivateKeyFile}) {
    const std::string path = FuzzFile(file, input.Bytes(size / 3));
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  CheckCertificates(FuzzFolder(), Role::kWorker, kNow).IgnoreError();
}

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  rubato::Show(bytes);
  rubato::ReadKey(bytes);
  rubato::ReadCertificates(rubato::FuzzInput(data, size), size);
  return 0;
}
