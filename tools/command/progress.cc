#include "tools/command/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/max_count.h"
#include "common/base/terminal.h"
#include "nlohmann/json.hpp"
#include "server/run/figures.h"
#include "server/run/line_stride.h"
#include "tools/command/loss_text.h"

namespace rubato {
namespace {

constexpr absl::Duration kBetweenLines = absl::Seconds(5);
constexpr int64_t kLines = 512;  // for each doubling of the run
constexpr char kBold[] = "\x1b[1m", kRed[] = "\x1b[1;31m", kPlain[] = "\x1b[0m";

// Of what no figure tells, among the figures' own (Figure::live).
constexpr int kLiveTestStep = 1, kLiveOther = 3, kLiveTest = 4, kLiveTimeLeft = 5;

// 1.25 -> "1.2", 3 -> "3": one digit after the point, downwards, so that "3/3" means the end.
std::string OneDigit(double value) {
  const double tenths = std::floor(value * 10 + 1e-6) / 10;
  return tenths == std::floor(tenths) ? absl::StrFormat("%.0f", tenths)
                                      : absl::StrFormat("%.1f", tenths);
}

std::string Text(const Figure& figure, double value) {
  switch (figure.unit) {
    case Unit::kCount:
      return absl::StrFormat("%s %.0f", figure.name, value);
    case Unit::kShare:
      return absl::StrFormat("%s %.1f %%", figure.name, 100 * value);
    case Unit::kSamplesPerSecond:
      return absl::StrFormat("%.0f samples/s", value);
    default:
      return absl::StrCat(figure.name, " ", LossText(value));
  }
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

Progress::Progress(std::function<double(int64_t)> total_of)
    : total_of_(std::move(total_of)), total_samples_(0), epoch_samples_(0) {}

Progress::Kind Progress::OnLine(absl::string_view json) {
  const nlohmann::json line = ParseJson(json);
  if (!line.is_object()) return Kind::kOther;
  const auto found = line.find("kind");
  if (found == line.end() || !found->is_string()) return Kind::kOther;
  const std::string kind = found->get<std::string>();
  const bool is_test = kind == "eval" || kind == "test";
  if (kind != "train" && !is_test) return Kind::kOther;
  started_ = true;
  Values values;
  for (const Figure& figure : Figures()) {
    const auto value = line.find(std::string(figure.name));
    if (value != line.end() && value->is_number()) {
      values[std::string(figure.name)] = value->get<double>();
    }
  }
  if (const double epoch = NumberAt(line, "epoch"); epoch_samples_ <= 0 && epoch > 0) {
    epoch_samples_ = NumberAt(line, "samples") / epoch;
    if (total_of_) total_samples_ = total_of_(std::llround(epoch_samples_));
  }
  // A test may tell of a moment before the last training line.
  const auto update = [&](absl::string_view name, double* value) {
    const auto now = values.find(name);
    if (now != values.end()) *value = is_test ? std::max(*value, now->second) : now->second;
  };
  update("step", &step_);
  update("samples", &samples_);
  update("time", &time_);
  if (!is_test) {
    has_trained_ = true;
    trained_ = std::move(values);
    return Kind::kTrain;
  }
  tested_ = std::move(values);
  others_.clear();
  for (const auto& [name, value] : line.items()) {
    if (others_.size() == kMostOthers) break;
    if (IsFreeName(name) && value.is_number()) others_[name] = value.get<double>();
  }
  tested_kind_ = kind;
  const auto split = line.find("split");
  tested_split_ = split != line.end() && split->is_string() ? split->get<std::string>() : kind;
  return kind == "eval" ? Kind::kEval : Kind::kTest;
}

std::optional<double> Progress::SecondsLeft() const {
  if (samples_ <= 0 || time_ <= 0 || total_samples_ <= 0) return std::nullopt;
  return std::max(0.0, total_samples_ - samples_) * time_ / samples_;
}

std::vector<Progress::Part> Progress::Parts() const {
  std::vector<Part> parts;
  for (const Figure& figure : Figures()) {
    if (figure.live == 0) continue;
    const auto value = trained_.find(figure.name);
    if (figure.name == "epoch") {
      const std::string total =
          total_samples_ > 0 ? absl::StrCat("/", OneDigit(total_samples_ / epoch_samples_)) : "";
      parts.push_back({absl::StrCat("epoch ", OneDigit(Epoch()), total), figure.live});
    } else if (figure.name == "step") {
      parts.push_back({Text(figure, step_), figure.live});
    } else if (value != trained_.end()) {
      parts.push_back({Text(figure, value->second), figure.live});
    } else if (figure.name == "loss") {
      parts.push_back({"loss not finite", figure.live, kRed});
    }
  }
  AppendTest(&parts);
  if (const auto left = SecondsLeft())
    parts.push_back({absl::StrCat(ClockText(*left), " left"), kLiveTimeLeft});
  return parts;
}

void Progress::AppendTest(std::vector<Part>* parts) const {
  constexpr size_t kMost = 3;
  std::vector<std::string> figures;
  if (const auto accuracy = tested_.find("accuracy"); accuracy != tested_.end()) {
    figures.push_back(absl::StrFormat("%.1f %%", 100 * accuracy->second));
  } else if (const auto loss = tested_.find("loss"); loss != tested_.end()) {
    figures.push_back(absl::StrCat("loss ", LossText(loss->second)));
  }
  const size_t most = figures.size() + kMost;
  for (const auto& [name, value] : others_) {
    if (figures.size() == most) break;
    figures.push_back(absl::StrFormat("%s %.4g", name, value));
  }
  if (figures.empty()) return;
  parts->push_back({absl::StrCat(tested_split_, " ", figures[0]), kLiveTest, kBold});
  for (size_t i = 1; i < figures.size(); ++i) parts->push_back({figures[i], kLiveOther, kBold});
  // The training may be further.
  if (const auto step = tested_.find("step"); step != tested_.end()) {
    parts->push_back({absl::StrFormat("of step %.0f", step->second), kLiveTestStep});
  }
}

std::string Progress::LiveLine(int width, bool color) const {
  if (!started_) return std::string("waiting for the first step").substr(0, std::max(0, width - 1));
  std::vector<Part> parts = Parts();
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
    // Of equals the last.
    parts.erase(
        std::prev(std::min_element(parts.rbegin(), parts.rend(), [](const Part& a, const Part& b) {
                    return a.live < b.live;
                  }).base()));
  }
}

LogFields Progress::Fields() const {
  LogFields fields;
  for (const Figure& figure : Figures()) {
    const std::string name(figure.name);
    const auto value = trained_.find(name);
    if (!figure.logged) continue;
    if (name == "step") {
      fields.push_back({name, ClampedCount(step_)});
    } else if (name == "epoch") {
      fields.push_back({name, std::round(100 * Epoch()) / 100});
    } else if (value != trained_.end()) {
      const bool is_rate = figure.unit == Unit::kSamplesPerSecond;
      fields.push_back({name, is_rate ? std::round(value->second) : value->second});
    } else if (name == "loss" && has_trained_) {
      fields.push_back({name, std::nan("")});
    }
  }
  // A test goes on beside the training, which may be further by now.
  if (const auto step = tested_.find("step"); step != tested_.end()) {
    fields.push_back({absl::StrCat(tested_kind_, "_step"), ClampedCount(step->second)});
  }
  for (const char* name : {"loss", "accuracy"}) {
    if (const auto value = tested_.find(name); value != tested_.end()) {
      fields.push_back({absl::StrCat(tested_kind_, "_", name), value->second});
    }
  }
  for (const auto& [name, value] : others_) {
    fields.push_back({absl::StrCat(tested_kind_, "_", name), value});
  }
  if (const auto left = SecondsLeft()) fields.push_back({"seconds_left", std::ceil(*left)});
  return fields;
}

// What has no end is cut.
constexpr size_t kLongestLine = 1 << 20;

LineTail::LineTail(std::string path) : path_(std::move(path)) {}

LineTail::~LineTail() {
  if (fd_ >= 0) close(fd_);
}

std::optional<std::string> LineTail::Next() {
  if (fd_ < 0) fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find_first_of("\n\r", searched);
    // What follows a carriage return says what it is.
    const bool is_found = end != std::string::npos;
    const bool is_open = is_found && end + 1 == buffer_.size() && buffer_[end] == '\r';
    if (is_found && !is_open) {
      std::string line = buffer_.substr(begin_, end - begin_);
      const bool is_whole = buffer_[end] == '\n' || buffer_.compare(end, 2, "\r\n") == 0;
      is_overwritten_ = !is_whole;
      begin_ = end + (is_whole && buffer_[end] == '\r' ? 2 : 1);
      return line;
    }
    buffer_.erase(0, std::exchange(begin_, 0));
    searched = buffer_.size() - (is_open ? 1 : 0);
    if (buffer_.size() >= kLongestLine) {
      std::string line;
      line.swap(buffer_);
      is_overwritten_ = false;
      return line;
    }
    if (fd_ < 0) return std::nullopt;
    char bytes[1 << 14];
    const ssize_t got = read(fd_, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || (got == 0 && !BeginAnew())) return std::nullopt;
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

std::optional<std::string> LineTail::TakeRest() {
  std::string rest = buffer_.substr(std::exchange(begin_, 0));
  buffer_.clear();
  is_overwritten_ = absl::EndsWith(rest, "\r");
  if (is_overwritten_) rest.pop_back();
  return rest.empty() ? std::nullopt : std::make_optional(std::move(rest));
}

bool LineTail::BeginAnew() {
  struct stat now, read;
  // Looked at first: to a file that has been renamed nothing is added any more.
  const bool is_there = stat(path_.c_str(), &now) == 0;
  if (fstat(fd_, &read) != 0) return false;
  const off_t at = lseek(fd_, 0, SEEK_CUR);
  if (at > read.st_size) return lseek(fd_, 0, SEEK_SET) == 0;
  if (at < read.st_size) return true;
  if (!is_there || now.st_ino == read.st_ino) return false;
  const int next = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (next < 0) return false;
  close(std::exchange(fd_, next));
  return true;
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
  } else if (changed && now >= (tested ? next_test_ : next_line_)) {
    log_.Info("", progress_.Fields());
    if (!begin_.has_value()) begin_ = now;
    const int64_t intervals = (now - *begin_) / kBetweenLines;
    next_line_ = now + kBetweenLines * LineStride(intervals, kLines);
    if (tested) next_test_ = next_line_;
  }
}

}  // namespace rubato
