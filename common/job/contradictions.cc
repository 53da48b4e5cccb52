#include "common/job/contradictions.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/address.h"
#include "common/job/has_classes.h"
#include "common/job/is_script.h"
#include "common/job/schema.h"

namespace rubato {
namespace {

// In samples; nullopt where that takes the data set to know.
std::optional<double> Samples(const proto::Point& point, const proto::Job& job) {
  switch (point.at_case()) {
    case proto::Point::kSamples:
      return static_cast<double>(point.samples());
    case proto::Point::kSteps:
      return static_cast<double>(point.steps()) * static_cast<double>(job.train().batch_size());
    case proto::Point::kEpochs:
      if (job.data().format() != proto::Data::FORMAT_GLYPHS || IsScript(job)) {
        return std::nullopt;
      }
      // Without `validation` its fraction is 0.
      return point.epochs() * static_cast<double>(job.data().train_size()) *
             (1 - job.data().validation().fraction());
    case proto::Point::kTime:
    case proto::Point::AT_NOT_SET:
      break;
  }
  return std::nullopt;
}

constexpr absl::string_view kAccuracy = "eval/accuracy";

class Checks {
 public:
  Checks(const proto::Job& job, Report* report) : job_(job), report_(*report) {}

  void Run() {
    CheckAddress();
    CheckWorkers();
    CheckNormalize();
    CheckColumns();
    CheckSeparator();
    CheckUses();
    CheckTestSplit();
    CheckTargetScale();
    CheckHeads();
    CheckNesterov();
    CheckTopK();
    CheckBetas();
    CheckClassWeights();
    CheckWarmup();
    CheckMicroBatches();
    CheckPrecision();
    CheckTimes();
    CheckModes();
    CheckEvaluation();
    CheckStopWhen();
    CheckMetric("train.stop_when.metric", job_.train().has_stop_when(),
                job_.train().stop_when().metric());
    CheckMetric("checkpoint.keep_best.metric", job_.checkpoint().has_keep_best(),
                job_.checkpoint().keep_best().metric());
  }

 private:
  bool Sound(std::initializer_list<absl::string_view> keys) const {
    for (absl::string_view key : keys) {
      if (!report_.Sound(key)) return false;
    }
    return true;
  }

  void CheckAddress() {
    const absl::StatusOr<std::vector<HostPort>> hosts = ParseAddresses(job_.cluster().address());
    if (!Sound({"cluster.address"})) return;
    if (!hosts.ok()) {
      report_.Add("cluster.address", std::string(hosts.status().message()));
    } else if (std::any_of(hosts->begin(), hosts->end(), IsWildcard)) {
      report_.Add("cluster.address",
                  absl::StrCat("found \"", job_.cluster().address(),
                               "\", all addresses of a host; expected one by which the others "
                               "reach it (--listen and --advertise of rubato-server let it listen "
                               "at all)"));
    }
  }

  void CheckWorkers() {
    const proto::Workers& workers = job_.cluster().workers();
    if (!Sound({"cluster.workers"})) return;
    if (workers.min() > workers.start()) {
      report_.Add("cluster.workers.min",
                  absl::StrCat("found ", workers.min(), ", expected at most start, which is ",
                               workers.start()));
    }
    if (workers.max() < workers.start()) {
      report_.Add("cluster.workers.max",
                  absl::StrCat("found ", workers.max(), ", expected at least start, which is ",
                               workers.start()));
    }
  }

  void CheckNormalize() {
    const proto::Normalize& normalize = job_.data().normalize();
    if (!Sound({"data.normalize"}) || normalize.mean_size() == normalize.std_size()) return;
    report_.Add("data.normalize.std",
                absl::StrCat("found ", normalize.std_size(),
                             normalize.std_size() == 1 ? " number" : " numbers",
                             ", expected as many as mean has, which is ", normalize.mean_size()));
  }

  // Of a table.
  void CheckSeparator() {
    const std::string& separator = job_.data().separator();
    if (!report_.Given("data.separator") || !Sound({"data.separator"})) return;
    if (separator.size() == 1 && absl::string_view("\"\n\r").find(separator) == separator.npos)
      return;
    report_.Add(
        "data.separator",
        absl::StrCat("found \"", absl::Utf8SafeCEscape(separator),
                     "\", expected one ASCII character that is neither a quotation mark nor a "
                     "line's end, such as \",\" or \"\\t\""));
  }

  // A column has one use.
  void CheckUses() {
    const proto::Data& data = job_.data();
    std::map<std::string, absl::string_view> uses;
    if (data.has_target()) uses[data.target()] = "data.target";
    for (const auto& [key, columns] : {std::pair("data.categorical", &data.categorical()),
                                       {"data.numeric", &data.numeric()},
                                       {"data.ignore", &data.ignore()}}) {
      for (const std::string& column : *columns) {
        const auto [use, is_new] = uses.emplace(column, key);
        if (is_new || !Sound({key})) continue;
        report_.Add(key,
                    absl::StrCat("found the column \"", absl::Utf8SafeCEscape(column), "\" that ",
                                 use->second, " names already, expected each once"));
        break;
      }
    }
  }

  // What the list is by default has no name, and an empty list would be the same.
  void CheckColumns() {
    if (!report_.Given("data.numeric") || !Sound({"data.numeric", "data.ignore"})) return;
    if (job_.data().numeric_size() == 0) {
      report_.Add("data.numeric",
                  "found an empty list, expected at least one column; without the key all columns "
                  "that are neither the target nor categorical nor ignored are inputs");
    } else if (job_.data().ignore_size() > 0) {
      report_.Add("data.ignore",
                  "found beside data.numeric, expected one of the two: numeric names all columns "
                  "that are read as numbers");
    }
  }

  void CheckTestSplit() {
    const proto::Data& data = job_.data();
    if (!Sound({"data.format", "data.test_path", "data.test_fraction"})) return;
    if (data.has_test_path() && data.has_test_fraction()) {
      report_.Add("data.test_fraction", "found with test_path, expected one of the two");
    }
    const bool of_one_file =
        data.format() == proto::Data::FORMAT_CSV || data.format() == proto::Data::FORMAT_LIBSVM;
    if (of_one_file && !data.has_test_path() && !data.has_test_fraction()) {
      report_.Add("data", "found neither test_path nor test_fraction, expected one of the two");
    }
    if (data.format() == proto::Data::FORMAT_TEXT && !data.has_test_fraction()) {
      report_.Add("data.test_fraction", "found nothing, expected a part of the text to test with");
    }
  }

  void CheckTargetScale() {
    const proto::Data& data = job_.data();
    if (!Sound({"data.target_scale", "data.task", "loss"}) || !data.has_target_scale()) return;
    if (data.target_scale() == 1 || !HasClasses(job_)) return;
    const bool by_loss = data.task() == proto::Data::TASK_AUTO;
    report_.Add(
        "data.target_scale",
        absl::StrCat(
            "found beside ", by_loss ? "loss: cross_entropy" : "data.task: classification",
            ", whose targets are classes, expected it in a regression (loss: mse, l1 or huber)"));
  }

  void CheckHeads() {
    const proto::Model& model = job_.model();
    if (!model.has_heads() || !Sound({"model.heads", "model.channels"})) return;
    if (model.channels() % model.heads() == 0) return;
    report_.Add("model.heads",
                absl::StrCat("found ", model.heads(), ", expected a divisor of channels, which is ",
                             model.channels()));
  }

  void CheckNesterov() {
    const proto::Optimizer& optimizer = job_.optimizer();
    if (!optimizer.nesterov()) return;
    if (Sound({"optimizer.nesterov", "optimizer.momentum"}) && optimizer.momentum() == 0) {
      report_.Add("optimizer.nesterov", "found true with momentum 0, expected momentum above 0");
    }
    if (Sound({"optimizer.nesterov", "optimizer.dampening"}) && optimizer.dampening() != 0) {
      report_.Add("optimizer.nesterov",
                  absl::StrCat("found true with dampening ", optimizer.dampening(),
                               ", expected dampening 0"));
    }
  }

  // With top-k part of a gradient comes steps later, and momentum is the workers'.
  void CheckTopK() {
    const proto::Optimizer& optimizer = job_.optimizer();
    if (job_.wire().push().codec() != proto::Push::CODEC_TOPK || !Sound({"wire.push"})) return;
    if (IsScript(job_)) {
      report_.Add("wire.push",
                  "found topk beside a script, expected another codec: its optimizer is not known");
      return;
    }
    const auto refuse = [this](const std::string& key, bool found, const std::string& why) {
      if (found && Sound({key})) report_.Add(key, why);
    };
    bool decays = optimizer.weight_decay() != 0;
    for (const proto::ParameterGroup& group : optimizer.groups()) {
      decays = decays || group.weight_decay() != 0;
    }
    refuse("optimizer.name", optimizer.name() != proto::Optimizer::NAME_SGD,
           "found another than sgd beside wire.push: topk, expected sgd: its averages would take "
           "values that come later for gradients of 0");
    refuse(
        "optimizer.dampening", optimizer.dampening() != 0,
        "found beside wire.push: topk, expected 0: the momentum is the workers', which has none");
    refuse(
        "optimizer.weight_decay", decays && optimizer.momentum() > 0,
        "found beside momentum and wire.push: topk, expected one of the two: the momentum is the "
        "workers', and the decay would not be in it");
    refuse(
        "optimizer.clip_grad_norm", optimizer.has_clip_grad_norm(),
        "found beside wire.push: topk, expected none: what is sent of a step is not its gradient");
    refuse(
        "train.on_non_finite", job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP,
        "found skip beside wire.push: topk, expected stop: what a step that is left out had sent "
        "of earlier ones would be lost");
  }

  void CheckBetas() {
    const int found = job_.optimizer().betas_size();
    if (!Sound({"optimizer.betas"}) || found == 0 || found == 2) return;
    report_.Add("optimizer.betas",
                absl::StrCat("found ", found, found == 1 ? " number" : " numbers", ", expected 2"));
  }

  void CheckClassWeights() {
    const auto& weights = job_.loss().class_weights();
    if (!Sound({"loss.class_weights"}) || weights.empty()) return;
    const int64_t ignored = job_.loss().has_ignore_index() ? job_.loss().ignore_index() : -1;
    for (int i = 0; i < weights.size(); ++i) {
      if (static_cast<float>(weights[i]) > 0 && i != ignored) return;
    }
    report_.Add("loss.class_weights",
                absl::StrCat("found only 0", ignored >= 0 ? " beside loss.ignore_index" : "",
                             ", expected a class whose targets count"));
  }

  void CheckWarmup() {
    const proto::Schedule& schedule = job_.optimizer().schedule();
    if (!schedule.has_warmup() || !schedule.has_until()) return;
    if (!Sound({"optimizer.schedule", "train", "data"})) return;
    const std::optional<double> warmup = Samples(schedule.warmup(), job_);
    const std::optional<double> until = Samples(schedule.until(), job_);
    if (warmup.has_value() && until.has_value() && *warmup >= *until) {
      report_.Add("optimizer.schedule.warmup",
                  absl::StrCat("found ", *warmup, " samples, expected fewer than until, which is ",
                               *until, " samples"));
    }
  }

  // Of a point, at its time: --set may have given that alone.
  void AddTime(const std::string& key) {
    report_.Add(report_.PlaceOf(absl::StrCat(key, ".time")), key,
                "found a time, expected epochs, steps or samples");
  }

  // What is a function of samples knows no time.
  void CheckTimes() {
    const proto::Schedule& schedule = job_.optimizer().schedule();
    const std::pair<const char*, const proto::Point*> points[] = {
        {"optimizer.schedule.warmup", &schedule.warmup()},
        {"optimizer.schedule.every", &schedule.every()},
        {"optimizer.schedule.until", &schedule.until()},
        {"evaluation.every", &job_.evaluation().every()},
        {"metrics.every", &job_.metrics().every()},
    };
    for (const auto& [key, point] : points) {
      if (point->has_time() && Sound({key})) AddTime(key);
    }
  }

  // Of two points whether the first is before the second; nullopt where that takes the data set to
  // know.
  std::optional<bool> IsBefore(const proto::Point& a, const proto::Point& b) const {
    if (a.has_epochs() && b.has_epochs()) return a.epochs() < b.epochs();
    const std::optional<double> first = Samples(a, job_), second = Samples(b, job_);
    if (!first.has_value() || !second.has_value()) return std::nullopt;
    return *first < *second;
  }

  void CheckModes() {
    const proto::Consistency& consistency = job_.consistency();
    const int stages = consistency.schedule_size();
    if (stages == 0 || !Sound({"consistency", "train", "data"})) return;
    for (const char* key : {"consistency.mode", "consistency.staleness"}) {
      if (report_.Given(key)) report_.Add(key, "found beside schedule, expected one of the two");
    }
    for (int i = 0; i < stages; ++i) {
      const proto::Point& until = consistency.schedule(i).until();
      const std::string key = absl::StrCat("consistency.schedule[", i, "].until");
      if (until.has_time()) {
        AddTime(key);
      } else if (until.at_case() == proto::Point::AT_NOT_SET) {
        if (i + 1 == stages) continue;
        report_.Add(key, "found nothing, expected epochs, steps or samples: another mode follows");
      } else if (i > 0 && !IsBefore(consistency.schedule(i - 1).until(), until).value_or(true)) {
        report_.Add(key,
                    "found a point that is not after that of the mode before, expected "
                    "ascending ones");
      }
    }
  }

  void CheckEvaluation() {
    if (job_.evaluation().split() == proto::Evaluation::SPLIT_VALIDATION &&
        !job_.data().has_validation() && Sound({"evaluation.split", "data"})) {
      report_.Add("evaluation.split",
                  "found validation without data.validation, expected test, or a split of its own "
                  "such as data.validation: {fraction: 0.1}");
    }
  }

  void CheckMetric(const std::string& key, bool is_given, const std::string& metric) {
    if (!is_given || IsScript(job_) || !Sound({key, "loss", "model", "script"})) return;
    if (metric != "eval/loss" && metric != kAccuracy) {
      report_.Add(key, absl::StrCat("found ", metric, ", expected eval/loss or eval/accuracy: ",
                                    "other figures are of scripts' tests"));
    } else if (metric == kAccuracy && job_.loss().name() != proto::Loss::NAME_CROSS_ENTROPY) {
      report_.Add(key, absl::StrCat("found eval/accuracy beside loss: ",
                                    YamlName(job_.loss().name()), ", expected eval/loss"));
    }
  }

  void CheckStopWhen() {
    const proto::StopWhen& stop = job_.train().stop_when();
    if (!Sound({"train.stop_when"}) || stop.metric() != kAccuracy) return;
    if (stop.has_at_least() && stop.at_least() > 1) {
      report_.Add("train.stop_when.at_least",
                  absl::StrCat("found ", stop.at_least(),
                               ", expected at most 1: eval/accuracy is a "
                               "part of the examples"));
    }
  }

  void CheckMicroBatches() {
    const proto::Train& train = job_.train();
    if (!Sound({"train.batch_size", "train.micro_batches"}) || !train.has_batch_size()) return;
    if (train.batch_size() % train.micro_batches() == 0) return;
    report_.Add("train.micro_batches",
                absl::StrCat("found ", train.micro_batches(),
                             ", expected a divisor of batch_size, which is ", train.batch_size()));
  }

  void CheckPrecision() {
    if (!Sound({"device.precision", "train.on_non_finite"})) return;
    if (job_.device().precision() != proto::Device::PRECISION_FP16) return;
    if (job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP) return;
    report_.Add("device.precision",
                "found fp16 with train.on_non_finite: stop, expected it with skip: steps that "
                "overflow are left out");
  }

  const proto::Job& job_;
  Report& report_;
};

}  // namespace

void CheckContradictions(const proto::Job& job, Report* report) { Checks(job, report).Run(); }

}  // namespace rubato
