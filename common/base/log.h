// One line per event, to standard error, for people and for grep:
//
//   2026-11-21T07:59:01.123Z worker 1 step=120 loss=0.3123
//   2026-11-21T07:59:02.001Z server 0 warning: a worker has left worker=1 reason="lease lapsed"
//
// or for programs:
//
//   {"time":"2026-11-21T07:59:01.123Z","role":"worker","rank":1,"level":"info","message":"",
//    "fields":{"step":120,"loss":0.3123}}       (in one line)
//
// UTC, independent of the locale, one write(2) per line so that lines of several processes do not
// mix.
#ifndef RUBATO_COMMON_BASE_LOG_H_
#define RUBATO_COMMON_BASE_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace rubato {

// Numbered as proto::Log::Level.
enum class LogLevel { kInfo, kWarning, kError };

// Numbered as proto::Log::Format.
enum class LogFormat { kText, kJson };

// key=value of a line. Floats are printed with six significant digits, a value with spaces in
// quotes. In JSON, numbers and booleans keep their type, and a number that is not finite is null.
struct LogField {
  LogField(absl::string_view key, absl::string_view value) : key(key), value(value) {}
  LogField(absl::string_view key, const char* value) : key(key), value(value) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  LogField(absl::string_view key, T value) : key(key), is_text(false) {
    if constexpr (std::is_same_v<T, bool>) {
      this->value = value ? "true" : "false";
    } else {
      this->value = absl::StrCat(value);
    }
  }

  std::string key;
  std::string value;
  bool is_text = true;
};
using LogFields = std::vector<LogField>;

// Who writes lines, and which. Immutable: any thread may use it.
class Log {
 public:
  // `role` is "server", "worker", "launcher"; lines below `level` are dropped. Does not close `fd`.
  // A negative rank is one that is not known yet, and is not written.
  Log(std::string role, int rank, LogLevel level = LogLevel::kInfo,
      LogFormat format = LogFormat::kText, int fd = 2);

  LogFormat format() const { return format_; }

  // `message` may be empty: then the fields are the line.
  void Info(absl::string_view message, const LogFields& fields = {}) const;
  void Warning(absl::string_view message, const LogFields& fields = {}) const;
  void Error(absl::string_view message, const LogFields& fields = {}) const;

  // The last words of a process that fails: as PrintError, in JSON with the level "fatal" and, for
  // `stopped: `, the field "stopped": true. Written whatever the level.
  void Fatal(const absl::Status& status) const;

  // The line that would be written, with its newline.
  std::string Line(absl::Time time, LogLevel level, absl::string_view message,
                   const LogFields& fields) const;

 private:
  void Write(LogLevel level, absl::string_view message, const LogFields& fields) const;

  std::string role_;
  int rank_;
  LogLevel level_;
  LogFormat format_;
  int fd_;
};

// Writes `error: <line>` to standard error for each line of the message, in one write; `stopped:
// <line>` if the process ends because others did (IsStoppedByOthers). The launcher shows a
// process's last such lines as its reason, so that a main prints its failure this way, or by
// Log::Fatal, and last.
void PrintError(const absl::Status& status);
// The same, and the process's exit code.
int PrintFailure(const absl::Status& status);
// For a command whose result is a text: writes it to standard output, or its error as above. The
// exit code.
int PrintResult(const absl::StatusOr<std::string>& text);

// Writes all of `text` in as few write(2) as the kernel allows, one normally. False, with errno, if
// the descriptor does not take it.
bool WriteAll(int fd, absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LOG_H_
