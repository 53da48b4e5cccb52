// Reads the progress of a run from the lines that shard 0 writes to metrics.jsonl, and displays it.
#ifndef RUBATO_TOOLS_COMMAND_PROGRESS_H_
#define RUBATO_TOOLS_COMMAND_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"

namespace rubato {

// What is known so far. No I/O.
class Progress {
 public:
  // Training ends after `total_samples`, of which an epoch has `epoch_samples`. A total of 0: it is
  // not known.
  Progress(double total_samples, double epoch_samples);
  // For a job whose first lines say how many samples an epoch has: `total_of` computes from that
  // the total number of samples; 0: it is not known.
  explicit Progress(std::function<double(int64_t)> total_of);

  // A line of metrics.jsonl, and of which kind it was. What is not known is skipped, so that newer
  // files can be read.
  enum class Kind { kTrain, kEval, kTest, kOther };
  Kind OnLine(absl::string_view json);

  // Such as "step 1312  epoch 1.4/3  loss 0.2134  accuracy 94.1 %  41200 samples/s  validation 95.2
  // %  0:23 left": the figures that are declared live (server/run/figures.h), and of a script's
  // test the first three others. Under `width` columns, by leaving out what matters least. ASCII,
  // no newline. With `color` the figure of the last test, which is called by its split, is bold and
  // a loss that is not finite red.
  std::string LiveLine(int width, bool color = false) const;

  // For a log line: the figures that are declared logged.
  LogFields Fields() const;

 private:
  // Figures of a line by name, without those that are null, that is, not finite.
  using Values = std::map<std::string, double, std::less<>>;

  double Epoch() const { return epoch_samples_ > 0 ? samples_ / epoch_samples_ : 0; }
  // Of the live line.
  struct Part {
    std::string text;
    int live;                // as of a Figure
    const char* style = "";  // where colours are wanted
  };
  std::vector<Part> Parts() const;
  void AppendTest(std::vector<Part>* parts) const;
  // Seconds, at the average speed so far.
  std::optional<double> SecondsLeft() const;

  std::function<double(int64_t)> total_of_;
  double total_samples_;
  double epoch_samples_;  // 0: not known yet
  bool started_ = false;
  bool has_trained_ = false;  // a training line has come
  double step_ = 0;
  double samples_ = 0;
  double time_ = 0;  // seconds of training
  Values trained_;   // of the last training line
  // The last test, beside the training or at its end.
  std::string tested_kind_;   // "eval", "test"
  std::string tested_split_;  // "validation", "test"
  Values tested_;
  Values others_;  // of it, a script's
};

// Lines that are appended to a file, each once and whole. The file may come later, and it may be
// begun anew: renamed and made again (RecordFile), or emptied (CutLog).
class LineTail {
 public:
  explicit LineTail(std::string path);
  LineTail(const LineTail&) = delete;
  LineTail& operator=(const LineTail&) = delete;
  ~LineTail();

  const std::string& path() const { return path_; }

  // The next line, without its newline; nothing while there is none. A carriage return, by which
  // progress bars draw over themselves, ends a line, too.
  std::optional<std::string> Next();
  // What is left when Next has nothing and nothing more will come: a line without its newline.
  std::optional<std::string> TakeRest();
  // Whether the last one ended with a carriage return alone: what follows is drawn over it.
  bool is_overwritten() const { return is_overwritten_; }

 private:
  // At the end of what has been read: whether there is another file, or the same from its
  // beginning.
  bool BeginAnew();

  const std::string path_;
  int fd_ = -1;
  std::string buffer_;
  size_t begin_ = 0;  // of what has not been returned
  bool is_overwritten_ = false;
};

// Shows progress on `fd`: one live line on a terminal. Otherwise log lines: one every few seconds,
// and at tests no more often than that. These lines are kept, so the intervals grow with the run
// (server/run/line_stride.h).
class ProgressDisplay {
 public:
  // `terminal`: whether a line can be redrawn in place; see common/base/terminal.h. Log lines are
  // of level info: a higher `level` drops them.
  ProgressDisplay(std::string metrics_path, Progress progress, int fd, bool terminal,
                  LogLevel level, LogFormat format = LogFormat::kText);
  // Removes the live line.
  ~ProgressDisplay();

  // Reads what is new and shows it if it is time.
  void Update(absl::Time now);
  // Shown in place of progress until it is empty again; without a terminal as one line.
  void SetNotice(const std::string& notice);
  // Removes the live line, so that something else can be said; the next Update draws it again.
  void Clear();
  // When Update has last found something new; at first, when this was made.
  absl::Time last_change() const { return last_change_; }

 private:
  void Draw();

  LineTail tail_;
  Progress progress_;
  const int fd_;
  const bool terminal_;
  const bool color_;
  const Log log_;
  std::string notice_;
  absl::Time last_change_ = MonotonicNow();
  bool drawn_ = false;
  std::optional<absl::Time> begin_;  // of the lines
  absl::Time next_line_ = absl::InfinitePast();
  absl::Time next_test_ = absl::InfinitePast();  // a line because of one
};

// "0:07", "12:34", "3:00:00".
std::string ClockText(double seconds);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PROGRESS_H_
