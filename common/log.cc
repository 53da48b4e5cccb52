#include "common/log.h"

#include <errno.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/process_exit.h"

namespace rubato {
namespace {

// A newline never ends a line early; an apostrophe needs no escape.
std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}});
}

// Quoted where a reader that splits at spaces and at the first '=' would go wrong.
std::string Value(const std::string& value) {
  bool plain = !value.empty();
  for (const unsigned char c : value)
    plain = plain && c > ' ' && c != '"' && c != '\\' && c != 0x7f;
  return plain ? value : absl::StrCat("\"", Escape(value), "\"");
}

}  // namespace

Log::Log(std::string role, int rank, LogLevel level, int fd)
    : role_(std::move(role)), rank_(rank), level_(level), fd_(fd) {}

std::string Log::Line(absl::Time time, LogLevel level, absl::string_view message,
                      const LogFields& fields) const {
  std::string line =
      absl::StrCat(absl::FormatTime("%E4Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()), " ",
                   role_, " ", rank_);
  if (level == LogLevel::kWarning) absl::StrAppend(&line, " warning:");
  if (level == LogLevel::kError) absl::StrAppend(&line, " error:");
  if (!message.empty()) absl::StrAppend(&line, " ", Escape(message));
  for (const LogField& field : fields)
    absl::StrAppend(&line, " ", field.key, "=", Value(field.value));
  return absl::StrCat(line, "\n");
}

void Log::Write(LogLevel level, absl::string_view message, const LogFields& fields) const {
  if (level < level_) return;
  WriteAll(fd_, Line(absl::Now(), level, message, fields));
}

void Log::Info(absl::string_view message, const LogFields& fields) const {
  Write(LogLevel::kInfo, message, fields);
}

void Log::Warning(absl::string_view message, const LogFields& fields) const {
  Write(LogLevel::kWarning, message, fields);
}

void Log::Error(absl::string_view message, const LogFields& fields) const {
  Write(LogLevel::kError, message, fields);
}

void PrintError(const absl::Status& status) {
  std::string text;
  for (const absl::string_view line :
       absl::StrSplit(status.message(), '\n', absl::SkipWhitespace())) {
    absl::StrAppend(&text, IsStoppedByOthers(status) ? "stopped: " : "error: ", line, "\n");
  }
  // A message is a contract of every Status here; should one lack it, its code is better than
  // silence.
  if (text.empty()) text = absl::StrCat("error: ", absl::StatusCodeToString(status.code()), "\n");
  WriteAll(2, text);
}

void WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace rubato
