#include "tools/command/summary.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "tools/command/loss_text.h"

namespace rubato {
namespace {

constexpr char kUnknown[] = "-";

// The number under `key`, times `factor`, with `digits` after the point.
std::string Number(const nlohmann::json& object, const char* key, int digits, double factor = 1) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return kUnknown;
  return absl::StrFormat("%.*f", digits, factor * found->get<double>());
}

std::string Quoted(const std::string& word) {
  bool plain = !word.empty();
  for (const char c : word) {
    plain = plain && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                      absl::string_view("_@%+=:,./-").find(c) != absl::string_view::npos);
  }
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

int64_t Count(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number_integer() ? 0 : found->get<int64_t>();
}

std::string Workers(int64_t count) {
  return absl::StrCat(count, count == 1 ? " worker" : " workers");
}

// A line of what a script's final test has found beside loss and accuracy, if anything.
std::string Others(const nlohmann::json& summary) {
  std::vector<std::string> figures;
  for (const auto& figure : summary.items()) {
    absl::string_view name = figure.key();
    if (!absl::ConsumePrefix(&name, "test_") || name == "loss" || name == "accuracy") continue;
    figures.push_back(absl::StrCat(
        name, " ",
        figure.value().is_number() ? absl::StrFormat("%.4g", figure.value().get<double>())
                                   : kUnknown));
  }
  return figures.empty() ? ""
                         : absl::StrCat("test figures   ", absl::StrJoin(figures, "  "), "\n");
}

// What checkpoint.keep_best has kept, where it has.
std::string Best(const nlohmann::json& summary, absl::string_view run_path) {
  const auto best = summary.find("best_checkpoint");
  if (best == summary.end() || !best->is_object()) return "";
  const std::string metric = TextAt(*best, "metric");
  return absl::StrFormat("best           %s/%s  (%s %s)\n", run_path, TextAt(*best, "path"), metric,
                         LossAt(*best, "value"));
}

// What came of the contributions on arrival, and what changed while it ran; nothing where nothing
// did.
std::string Account(const nlohmann::json& summary) {
  std::string text;
  const auto work = summary.find("contributions");
  if (work != summary.end() && work->is_object() && Count(*work, "given") > 0) {
    const int64_t left_out = Count(*work, "left_out");
    absl::StrAppendFormat(&text, "contributions  %d sent = %d applied + %d partial + %d lost",
                          Count(*work, "given") - left_out, Count(*work, "applied"),
                          Count(*work, "partial"), Count(*work, "lost"));
    absl::StrAppend(&text, left_out > 0 ? absl::StrFormat("  (%d left out)", left_out) : "", "\n");
  }
  const int64_t skipped = Count(summary, "skipped");
  const bool counted = work != summary.end() && work->is_object() && Count(*work, "left_out") > 0;
  if (skipped > 0 && !counted) {
    absl::StrAppendFormat(&text,
                          "left out       %d of %d steps: a loss or gradient was not finite\n",
                          skipped, Count(summary, "steps"));
  }
  const int64_t switches = Count(summary, "switches"), lost = Count(summary, "workers_lost"),
                left = Count(summary, "workers_left");
  if (switches > 0 || lost > 0 || left > 0) {
    absl::StrAppendFormat(
        &text, "changes        %d of the mode, %s lost, %d departed\n", switches,
        Workers(lost), left);
  }
  const int64_t servers = Count(summary, "servers_lost");
  if (servers > 0) {
    absl::StrAppendFormat(&text, "servers        %d lost; %d samples trained again\n", servers,
                          Count(summary, "samples_rolled_back"));
  }
  const int64_t residuals = Count(summary, "residuals_lost");
  if (residuals > 0) {
    absl::StrAppendFormat(&text, "residuals      of %s lost with them\n", Workers(residuals));
  }
  return text;
}

// Of a server: with less, most of a wait is for messages, not for values.
constexpr int64_t kManyBytes = 4 << 20;

}  // namespace

std::optional<MoreServers> SuggestServers(const nlohmann::json& summary, int64_t servers,
                                          int64_t idle, int64_t block_bytes) {
  if (!summary.is_object() || idle < servers) return std::nullopt;
  const auto blocks = summary.find("blocks"), workers = summary.find("workers");
  if (blocks == summary.end() || workers == summary.end() || !workers->is_array()) {
    return std::nullopt;
  }
  if (static_cast<int64_t>(blocks->size()) * block_bytes < kManyBytes * servers) {
    return std::nullopt;
  }
  double least = 1;
  for (const nlohmann::json& worker : *workers) {
    if (!worker.is_object()) return std::nullopt;
    const double waited = NumberAt(worker, "waiting_seconds");
    const double all = waited + NumberAt(worker, "computing_seconds");
    least = std::min(least, all > 0 ? waited / all : 0);
  }
  if (workers->empty() || least <= 0.5) return std::nullopt;
  return MoreServers{std::min(std::max<int64_t>(4, 2 * servers), servers + idle), least};
}

std::string ShellLine(const std::vector<std::string>& words) {
  return absl::StrJoin(
      words, " ", [](std::string* out, const std::string& word) { out->append(Quoted(word)); });
}

absl::StatusOr<std::string> SummaryText(const nlohmann::json& summary, absl::string_view run_path,
                                        const std::vector<std::string>& next,
                                        std::optional<TrainedBefore> before) {
  if (!summary.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(run_path, "/summary.json is not a JSON object"));
  }
  const std::string others = Others(summary);
  const std::string test_loss = LossAt(summary, "test_loss");
  // Where targets are numbers there is no accuracy.
  const std::string tested =
      summary.contains("test_accuracy")
          ? absl::StrCat("test accuracy  ", Number(summary, "test_accuracy", 2, 100), " %",
                         test_loss != kUnknown ? absl::StrCat("  (loss ", test_loss, ")") : "",
                         "\n")
      : test_loss != kUnknown || others.empty()
          ? absl::StrCat("test loss      ", test_loss, "\n")
          : "";
  const std::string validation_loss = LossAt(summary, "validation_loss");
  const std::string validated =
      summary.contains("validation_accuracy")
          ? absl::StrCat("validation     ", Number(summary, "validation_accuracy", 2, 100),
                         " %  (loss ", validation_loss, ")\n")
      : summary.contains("validation_loss")
          ? absl::StrCat("validation loss ", validation_loss, "\n")
          : "";
  // Of the whole run, as samples and seconds are. Nobody trains where nothing was left to train.
  const double seconds = NumberAt(summary, "seconds");
  const std::string speed =
      NumberAt(summary, "samples_per_second") > 0
          ? absl::StrCat("speed          ",
                         seconds > 0 ? Number(summary, "samples", 0, 1 / seconds) : kUnknown,
                         " samples/s  (", Number(summary, "samples", 0), " samples, ",
                         Number(summary, "steps", 0),
                         NumberAt(summary, "steps") == 1 ? " step, " : " steps, ",
                         Number(summary, "seconds", 1), " s)\n")
          : "";
  const std::string resumed =
      before.has_value() && !speed.empty()
          ? absl::StrFormat("resumed        after %d samples and %.1f s, which are counted above\n",
                            before->samples, before->seconds)
          : "";
  const auto why = summary.find("stopped");
  const std::string stopped =
      why == summary.end() || !why->is_string()
          ? ""
          : absl::StrCat("stopped        before train.until: ", why->get<std::string>(), "\n");
  return absl::StrCat(stopped, tested, others, validated, speed, resumed, Account(summary),
                      Best(summary, run_path), "files          ", run_path, "\n\n", "Try next:\n  ",
                      absl::StrJoin(next, "\n  "), "\n");
}

}  // namespace rubato
