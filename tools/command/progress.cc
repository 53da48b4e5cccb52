#include "tools/command/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/terminal.h"
#include "nlohmann/json.hpp"

namespace rubato {
namespace {

constexpr absl::Duration kBetweenLines = absl::Seconds(5);
constexpr char kBold[] = "\x1b[1m", kRed[] = "\x1b[1;31m", kPlain[] = "\x1b[0m";

// The number under `key`; nothing if it is missing or null, which stands for what is not finite.
std::optional<double> Number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// 1.25 -> "1.2", 3 -> "3": one digit after the point, downwards, so that "3/3" means the end.
std::string OneDigit(double value) {
  const double tenths = std::floor(value * 10 + 1e-6) / 10;
  return tenths == std::floor(tenths) ? absl::StrFormat("%.0f", tenths)
                                      : absl::StrFormat("%.1f", tenths);
}

int TerminalWidth(int fd) {
  winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string ClockText(double seconds) {
  const int64_t whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e12)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? absl::StrFormat("%d:%02d:%02d", hours, minutes, whole % 60)
                   : absl::StrFormat("%d:%02d", minutes, whole % 60);
}

Progress::Progress(double total_samples, double epoch_samples)
    : total_samples_(total_samples), epoch_samples_(epoch_samples) {}

Progress::Kind Progress::OnLine(absl::string_view json) {
  const nlohmann::json line =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return Kind::kOther;
  const auto kind = line.find("kind");
  if (kind == line.end()) return Kind::kOther;
  if (*kind == "train") {
    started_ = has_trained_ = true;
    step_ = Number(line, "step").value_or(step_);
    samples_ = Number(line, "samples").value_or(samples_);
    time_ = Number(line, "time").value_or(time_);
    loss_ = Number(line, "loss");
    accuracy_ = Number(line, "accuracy");
    samples_per_second_ = Number(line, "samples_per_second");
    staleness_ = Number(line, "staleness");
    return Kind::kTrain;
  }
  if (*kind == "eval" || *kind == "test") {
    started_ = true;
    // It may tell of a moment before the last training line.
    step_ = std::max(step_, Number(line, "step").value_or(step_));
    samples_ = std::max(samples_, Number(line, "samples").value_or(samples_));
    time_ = std::max(time_, Number(line, "time").value_or(time_));
    tested_kind_ = kind->get<std::string>();
    const auto split = line.find("split");
    tested_split_ =
        split != line.end() && split->is_string() ? split->get<std::string>() : tested_kind_;
    tested_loss_ = Number(line, "loss");
    tested_accuracy_ = Number(line, "accuracy");
    return *kind == "eval" ? Kind::kEval : Kind::kTest;
  }
  return Kind::kOther;
}

std::optional<double> Progress::SecondsLeft() const {
  if (samples_ <= 0 || time_ <= 0 || total_samples_ <= 0) return std::nullopt;
  return std::max(0.0, total_samples_ - samples_) * time_ / samples_;
}

std::string Progress::LiveLine(int width, bool color) const {
  if (!started_) return std::string("waiting for the first step").substr(0, std::max(0, width - 1));
  struct Part {
    std::string text;
    int importance;
    const char* style = "";  // where colours are wanted
  };
  std::vector<Part> parts;
  const std::string total =
      total_samples_ > 0 ? absl::StrCat("/", OneDigit(total_samples_ / epoch_samples_)) : "";
  parts.push_back({absl::StrCat("epoch ", OneDigit(Epoch()), total), 6});
  parts.push_back({absl::StrFormat("step %.0f", step_), 0});
  parts.push_back(
      {loss_ ? absl::StrFormat("loss %.4f", *loss_) : "loss not finite", 5, loss_ ? "" : kRed});
  if (accuracy_) parts.push_back({absl::StrFormat("accuracy %.1f %%", 100 * *accuracy_), 2});
  if (tested_accuracy_) {
    parts.push_back(
        {absl::StrFormat("%s %.1f %%", tested_split_, 100 * *tested_accuracy_), 3, kBold});
  } else if (tested_loss_) {
    parts.push_back({absl::StrFormat("%s loss %.4f", tested_split_, *tested_loss_), 3, kBold});
  }
  if (samples_per_second_)
    parts.push_back({absl::StrFormat("%.0f samples/s", *samples_per_second_), 1});
  if (const auto left = SecondsLeft())
    parts.push_back({absl::StrCat(ClockText(*left), " left"), 4});

  while (true) {
    std::string line, styled;
    for (const Part& part : parts) {
      const char* space = line.empty() ? "" : "  ";
      absl::StrAppend(&line, space, part.text);
      const bool plain = !color || *part.style == '\0';
      absl::StrAppend(&styled, space, plain ? "" : part.style, part.text, plain ? "" : kPlain);
    }
    // One column stays free: a cursor past the last one would wrap.
    if (static_cast<int>(line.size()) < width) return styled;
    if (parts.size() == 1) return line.substr(0, std::max(0, width - 1));
    parts.erase(std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.importance < b.importance;
    }));
  }
}

LogFields Progress::Fields() const {
  LogFields fields = {{"step", static_cast<int64_t>(step_)},
                      {"epoch", std::round(100 * Epoch()) / 100}};
  if (has_trained_) fields.push_back({"loss", loss_.value_or(std::nan(""))});
  if (accuracy_) fields.push_back({"accuracy", *accuracy_});
  if (tested_loss_) fields.push_back({absl::StrCat(tested_kind_, "_loss"), *tested_loss_});
  if (tested_accuracy_) {
    fields.push_back({absl::StrCat(tested_kind_, "_accuracy"), *tested_accuracy_});
  }
  if (samples_per_second_)
    fields.push_back({"samples_per_second", std::round(*samples_per_second_)});
  if (staleness_) fields.push_back({"staleness", *staleness_});
  if (const auto left = SecondsLeft()) fields.push_back({"seconds_left", std::ceil(*left)});
  return fields;
}

LineTail::LineTail(std::string path) : path_(std::move(path)) {}

LineTail::~LineTail() {
  if (fd_ >= 0) close(fd_);
}

std::optional<std::string> LineTail::Next() {
  if (fd_ < 0) fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  while (true) {
    const size_t end = buffer_.find('\n', begin_);
    if (end != std::string::npos) {
      std::string line = buffer_.substr(begin_, end - begin_);
      begin_ = end + 1;
      return line;
    }
    buffer_.erase(0, std::exchange(begin_, 0));
    if (fd_ < 0) return std::nullopt;
    char bytes[1 << 14];
    const ssize_t got = read(fd_, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

ProgressDisplay::ProgressDisplay(std::string metrics_path, Progress progress, int fd, bool terminal,
                                 LogLevel level, LogFormat format)
    : tail_(std::move(metrics_path)),
      progress_(std::move(progress)),
      fd_(fd),
      terminal_(terminal),
      color_(terminal && UsesColor(fd)),
      log_("launcher", 0, level, format, fd) {}

ProgressDisplay::~ProgressDisplay() { Clear(); }

void ProgressDisplay::Clear() {
  if (drawn_) WriteAll(fd_, "\r\x1b[K");
  drawn_ = false;
}

void ProgressDisplay::SetNotice(const std::string& notice) {
  if (notice == notice_) return;
  notice_ = notice;
  if (terminal_) {
    Draw();
  } else if (!notice.empty()) {
    log_.Info(notice);
  }
}

void ProgressDisplay::Draw() {
  // Back to the first column, the new text, the rest of the old line erased: in one write, so that
  // nothing flickers.
  const int width = TerminalWidth(fd_);
  const std::string line = notice_.empty() ? progress_.LiveLine(width, color_)
                                           : notice_.substr(0, std::max(0, width - 1));
  WriteAll(fd_, absl::StrCat("\r", line, "\x1b[K"));
  drawn_ = true;
}

void ProgressDisplay::Update(absl::Time now) {
  bool changed = false, tested = false;
  while (const std::optional<std::string> line = tail_.Next()) {
    const Progress::Kind kind = progress_.OnLine(*line);
    changed = changed || kind != Progress::Kind::kOther;
    tested = tested || kind == Progress::Kind::kEval || kind == Progress::Kind::kTest;
  }
  if (changed) last_change_ = now;
  if (terminal_) {
    if (changed || !drawn_) Draw();
  } else if (changed && (tested || now >= next_line_)) {
    log_.Info("", progress_.Fields());
    next_line_ = now + kBetweenLines;
  }
}

}  // namespace rubato
