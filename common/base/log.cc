#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/last_words_file.h"
#include "common/base/printable.h"
#include "common/base/terminal.h"

namespace rubato {
namespace {

// A newline never ends a line early; an apostrophe needs no escape.
std::string Escape(absl::string_view text) {
  return Printable(absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}}));
}

// Quoted where a reader that splits at spaces and at the first '=' would go wrong.
std::string Value(const std::string& value) {
  bool plain = !value.empty();
  for (const unsigned char c : value)
    plain = plain && c > ' ' && c != '"' && c != '\\' && c != 0x7f;
  return plain ? value : absl::StrCat("\"", Escape(value), "\"");
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string JsonLine(absl::Time time, const std::string& role, int rank, const char* level,
                     absl::string_view message, const LogFields& fields) {
  using Json = nlohmann::ordered_json;
  Json line;
  line["time"] = TimeText(time);
  line["role"] = role;
  line["rank"] = rank < 0 ? Json() : Json(rank);
  line["level"] = level;
  line["message"] = std::string(message);
  Json& values = line["fields"] = Json::object();
  for (const LogField& field : fields) {
    // "nan" and "inf" are no JSON, and so become null.
    const nlohmann::json number = ParseJson(field.value);
    values[field.key] = field.is_text           ? Json(field.value)
                        : number.is_discarded() ? Json()
                                                : Json(number);
  }
  // Bytes that are no UTF-8 must not cost the line.
  return JsonText(line) + "\n";
}

std::vector<std::string> Lines(const absl::Status& status) {
  std::vector<std::string> lines = absl::StrSplit(status.message(), '\n', absl::SkipWhitespace());
  // A message is a contract of every Status here; should one lack it, its code is better than
  // silence.
  if (lines.empty()) lines.push_back(absl::StatusCodeToString(status.code()));
  return lines;
}

// Where standard error does not take last words, as on a full disk, they go where the one that has
// started this process reads them, too.
void WriteLastWords(int fd, const std::string& text) {
  if (WriteAll(fd, text)) return;
  const char* const path = std::getenv(kLastWordsVariable);
  if (path == nullptr) return;
  const int other = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (other < 0) return;
  WriteAll(other, text);
  close(other);
}

}  // namespace

Log::Log(std::string role, int rank, LogLevel level, LogFormat format, int fd)
    : role_(std::move(role)), rank_(rank), level_(level), format_(format), fd_(fd) {}

std::string Log::Line(absl::Time time, LogLevel level, absl::string_view message,
                      const LogFields& fields) const {
  if (format_ == LogFormat::kJson) {
    constexpr const char* kNames[] = {"info", "warning", "error"};
    return JsonLine(time, role_, rank_, kNames[static_cast<int>(level)], message, fields);
  }
  std::string line = absl::StrCat(TimeText(time), " ", role_);
  if (rank_ >= 0) absl::StrAppend(&line, " ", rank_);
  if (level == LogLevel::kWarning) absl::StrAppend(&line, " warning:");
  if (level == LogLevel::kError) absl::StrAppend(&line, " error:");
  // Which stands in no quotes, so that its own need no escape.
  if (!message.empty()) {
    absl::StrAppend(&line, " ", absl::StrReplaceAll(Escape(message), {{"\\\"", "\""}}));
  }
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

void Log::Fatal(const absl::Status& status) const {
  if (format_ == LogFormat::kText) {
    PrintError(status);
    return;
  }
  LogFields fields;
  if (IsStoppedByOthers(status)) fields.push_back({"stopped", true});
  std::string text;
  for (const std::string& line : Lines(status)) {
    absl::StrAppend(&text, JsonLine(absl::Now(), role_, rank_, "fatal", line, fields));
  }
  WriteLastWords(fd_, text);
}

void PrintError(const absl::Status& status) {
  const char* mark = IsStoppedByOthers(status) ? "stopped:" : "error:";
  const bool color = UsesColor(2);
  std::string text;
  for (const std::string& line : Lines(status)) {
    absl::StrAppend(&text, color ? "\x1b[1;31m" : "", mark, color ? "\x1b[0m " : " ",
                    Printable(line), "\n");
  }
  WriteLastWords(2, text);
}

int PrintFailure(const absl::Status& status) {
  PrintError(status);
  return ExitCode(status);
}

int PrintResult(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return PrintFailure(text.status());
  // Of a pipe, the reader may have had enough.
  if (WriteAll(1, *text) || errno == EPIPE) return 0;
  return PrintFailure(absl::UnavailableError(
      absl::StrCat("cannot write to standard output: ", std::strerror(errno))));
}

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace rubato
