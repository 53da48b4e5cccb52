// The handshake of a data stream, in the metadata of its call: the worker states its job and term,
// and may offer shared memory; the server accepts the offer or says why not.
#ifndef RUBATO_COMMON_WIRE_STREAM_OPENING_H_
#define RUBATO_COMMON_WIRE_STREAM_OPENING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The streaming method that carries frames.
constexpr char kDataMethod[] = "/rubato.Data/Stream";

// Keys of the metadata.
constexpr char kJobDigestKey[] = "rubato-job-digest";
constexpr char kTermKey[] = "rubato-term";
constexpr char kSharedMemoryKey[] = "rubato-shared-memory";

// What a stream is of. Frames name views, workers and clocks, which begin anew with each term (see
// proto::RunState), so a stream lives in one term only.
struct StreamScope {
  std::string job_digest;
  uint32_t term = 0;  // 0: the server has no view yet, or there are no terms
};

// Whether a server takes a call of `method` with these words.
inline absl::Status CheckOpening(absl::string_view method,
                                 std::optional<absl::string_view> job_digest,
                                 std::optional<absl::string_view> term, const StreamScope& own) {
  if (method != kDataMethod) return absl::UnimplementedError(absl::StrCat("no method ", method));
  if (job_digest != own.job_digest) {
    return absl::FailedPreconditionError(
        "this server runs another job: the digests of the job differ");
  }
  uint32_t found = 0;
  if (term.has_value() && !absl::SimpleAtoi(*term, &found)) {
    return absl::InvalidArgumentError("the stream's term is not a number");
  }
  if (found == own.term) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the stream is of term ", found, ", this server of term ", own.term));
}

// The server's answer to an offer of memory: that it is taken, or why not.
inline std::string AnswerToOffer(const absl::Status& taken) {
  return taken.ok() ? "taken" : std::string(taken.message());
}

// What the answer says. Unavailable, with the reason, if the offer is not taken.
inline absl::Status ReadAnswer(std::optional<absl::string_view> answer) {
  if (answer == absl::string_view("taken")) return absl::OkStatus();
  return absl::UnavailableError(answer.value_or("the server has not answered"));
}

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_OPENING_H_
