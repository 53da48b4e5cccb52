// Any bytes as the first of a connection, and as the metadata of a call: which method and job it
// says it is of, its offer of shared memory, and the answer to one. Of these each takes a third.
#include <algorithm>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "common/wire/http2_opening.h"
#include "common/wire/shared_segment.h"
#include "common/wire/stream_opening.h"
#include "tests/fuzz/input.h"

namespace rubato {
namespace {

// However the bytes come in pieces, what an opening is does not change once it is known.
void Open(const std::string& bytes) {
  Opening known = Opening::kUnfinished;
  for (size_t size = 0; size <= std::min(bytes.size(), kMaxOpeningBytes); ++size) {
    const Opening opening = ReadOpening(absl::string_view(bytes).substr(0, size));
    RUBATO_CHECK(known == Opening::kUnfinished || opening == known);
    known = opening;
  }
  RUBATO_CHECK(known != Opening::kUnfinished || bytes.size() < kMaxOpeningBytes);
}

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Open(bytes);
  Open("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes);
  FuzzInput input(data, size);
  const absl::string_view method = input.Bytes(size / 3), digest = input.Bytes(size / 3);
  const absl::string_view offer = input.Rest();
  const absl::Status opening = CheckOpening(method, digest, std::nullopt, {"0123456789abcdef"});
  RUBATO_CHECK(opening.ok() == (method == kDataMethod && digest == "0123456789abcdef"));
  const absl::Status term = CheckOpening(kDataMethod, "", offer, {"", 7});
  RUBATO_CHECK(!term.ok() || offer.find('7') != absl::string_view::npos);
  const absl::Status taken = SharedSegment::Open(offer).status();
  RUBATO_CHECK(!taken.ok());  // this process has offered none
  RUBATO_CHECK(ReadAnswer(AnswerToOffer(taken)).code() == absl::StatusCode::kUnavailable);
  RUBATO_CHECK(ReadAnswer(offer).ok() == (offer == "taken"));
  return 0;
}
