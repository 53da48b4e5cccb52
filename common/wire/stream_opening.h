// The words with which a data stream begins, in the metadata of its call: the worker says of which
// job it is, and may offer memory to share; the server takes that or says why not.
#ifndef RUBATO_COMMON_WIRE_STREAM_OPENING_H_
#define RUBATO_COMMON_WIRE_STREAM_OPENING_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The streaming method that carries frames.
constexpr char kDataMethod[] = "/rubato.Data/Stream";

// Keys of the metadata.
constexpr char kJobDigestKey[] = "rubato-job-digest";
constexpr char kSharedMemoryKey[] = "rubato-shared-memory";

// Whether a server of the job with this digest takes a call of `method`, which names `found`.
inline absl::Status CheckOpening(absl::string_view method, std::optional<absl::string_view> found,
                                 absl::string_view job_digest) {
  if (method != kDataMethod) return absl::UnimplementedError(absl::StrCat("no method ", method));
  if (found == job_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this server runs another job: the digests of the job differ");
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
