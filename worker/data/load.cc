#include "worker/data/load.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/max_count.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/job/has_classes.h"
#include "common/job/is_script.h"
#include "worker/data/cifar10.h"
#include "worker/data/csv.h"
#include "worker/data/glyphs.h"
#include "worker/data/idx.h"
#include "worker/data/libsvm.h"
#include "worker/data/source.h"
#include "worker/data/split.h"
#include "worker/data/statistics.h"
#include "worker/data/text.h"
#include "worker/model/loss.h"

namespace rubato {
namespace {

// Whether the targets are labels. Formats of images always have labels.
absl::StatusOr<bool> IsClassification(const proto::Job& job) {
  if (job.data().task() == proto::Data::TASK_REGRESSION &&
      job.loss().name() == proto::Loss::NAME_CROSS_ENTROPY) {
    return absl::InvalidArgumentError(
        "data.task: found regression with loss: cross_entropy, expected mse, l1 or huber");
  }
  return HasClasses(job);
}

absl::StatusOr<Source> ReadSource(const proto::Job& job) {
  const proto::Data& config = job.data();
  Source source;
  switch (config.format()) {
    case proto::Data::FORMAT_GLYPHS:
      source.train = DrawGlyphs(config.seed(), "train", config.train_size());
      source.test = DrawGlyphs(config.seed(), "test", config.test_size());
      source.digest =
          Sha256Hex(absl::StrCat("glyphs ", kGlyphsVersion, " seed ", config.seed(), " train ",
                                 config.train_size(), " test ", config.test_size()));
      break;
    case proto::Data::FORMAT_IDX: {
      RUBATO_ASSIGN_OR_RETURN(IdxFolder folder, ReadIdxFolder(config.path()));
      source.train = std::move(folder.train);
      source.test = std::move(folder.test);
      source.digest = std::move(folder.digest);
      break;
    }
    case proto::Data::FORMAT_CSV:
    case proto::Data::FORMAT_LIBSVM: {
      RUBATO_ASSIGN_OR_RETURN(const bool classification, IsClassification(job));
      return config.format() == proto::Data::FORMAT_CSV ? ReadCsv(config, classification)
                                                        : ReadLibsvm(config, classification);
    }
    case proto::Data::FORMAT_TEXT:
      return ReadText(config);
    case proto::Data::FORMAT_CIFAR10: {
      RUBATO_ASSIGN_OR_RETURN(source, ReadCifar10(config.path()));
      break;
    }
  }
  source.quantities = source.train.shape.channels;
  return source;
}

// Without `normalize` features stay as they are, pixels in [0, 1].
absl::StatusOr<Normalization> MakeNormalization(const proto::Data& config, const Source& source) {
  const int64_t channels = source.train.shape.channels;
  Normalization result{std::vector<float>(channels, 0), std::vector<float>(channels, 1)};
  if (!config.has_normalize()) return result;
  const proto::Normalize& normalize = config.normalize();
  if (normalize.by() == proto::Normalize::BY_AUTO) {
    return ComputeNormalization(source.train, source.quantities);
  }
  const int64_t expected = source.quantities;
  if (normalize.mean_size() != expected || normalize.std_size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.normalize: found ", normalize.mean_size(), " entries of mean and ",
        normalize.std_size(), " of std, expected ", expected,
        " of each: ", source.train.shape.is_row() ? "the table has " : "the images have ", expected,
        source.train.shape.is_row() ? " numeric column" : " channel", expected == 1 ? "" : "s"));
  }
  for (int64_t i = 0; i < expected; ++i) {
    const float mean = static_cast<float>(normalize.mean(i));
    const float std = static_cast<float>(normalize.std(i));
    if (!(std > 0) || !std::isfinite((0 - mean) / std) || !std::isfinite((1 - mean) / std)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.normalize: found mean ", normalize.mean(i), " and std ",
                       normalize.std(i), ", with which values overflow a float32"));
    }
    result.mean[i] = mean;
    result.std[i] = std;
  }
  return result;
}

// Adds what is known now to the description that the format's reader has begun.
void Describe(const proto::Data& config, const Normalization& normalization, Source* source) {
  proto::DataDescription& description = source->description;
  for (const int64_t extent : source->train.shape.dimensions()) {
    description.add_shape(static_cast<uint32_t>(extent));
  }
  for (int64_t i = 0; config.has_normalize() && i < source->quantities; ++i) {
    description.add_mean(normalization.mean[i]);
    description.add_std(normalization.std[i]);
  }
  *description.mutable_classes() = {source->classes.begin(), source->classes.end()};
  const size_t bytes = description.ByteSizeLong();
  if (bytes <= kMaxDescription) return;
  source->notes.push_back(absl::StrCat(
      "warning: the run gets no data.json: the description of its inputs and classes takes ", bytes,
      " bytes, expected at most ", kMaxDescription));
  description.Clear();
}

// Whether the loss ignores all targets, or weighs them with 0. A loss that does not fit the data is
// refused where its objective is made.
bool NoneCounts(const proto::Loss& loss, const Examples& examples) {
  if (examples.size() == 0 || examples.classes == 0) return false;
  const absl::StatusOr<Objective> objective =
      ObjectiveFor(loss, examples.classes, /*target_values=*/0, examples.labels_each);
  return objective.ok() && WeighsLabels(*objective) &&
         WeightOfLabels(*objective, examples.labels) == 0;
}

absl::Status CheckTargets(const proto::Loss& loss, const Examples& validation, Source* source) {
  const std::string by =
      absl::StrCat(loss.has_ignore_index() ? "loss.ignore_index" : "",
                   loss.has_ignore_index() && loss.class_weights_size() > 0 ? " and " : "",
                   loss.class_weights_size() > 0 ? "loss.class_weights" : "");
  if (NoneCounts(loss, source->train)) {
    return absl::InvalidArgumentError(
        absl::StrCat(by, ": none of the training's targets counts, expected some to learn from"));
  }
  for (const auto& [split, examples] :
       {std::pair("validation", &validation), {"test", &source->test}}) {
    if (!NoneCounts(loss, *examples)) continue;
    source->notes.push_back(absl::StrCat("warning: none of the targets of the ", split,
                                         " split counts, by ", by, ", so it has no loss"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ValidationSize(const proto::Data& config, int64_t size) {
  return config.has_validation() ? FractionOf(size, config.validation().fraction()) : 0;
}

absl::Status CheckValidation(const proto::Data& config, int64_t size) {
  if (!config.has_validation()) return absl::OkStatus();
  return CheckFraction(config.validation().fraction(), "data.validation.fraction", size);
}

absl::StatusOr<Data> LoadData(const proto::Job& job) {
  if (IsScript(job)) {
    return absl::FailedPreconditionError(
        "the job's model and data are a script's, which has to be run for them: by `rubato train` "
        "where the job has `script`, or by itself");
  }
  const proto::Data& config = job.data();
  RUBATO_ASSIGN_OR_RETURN(Source source, ReadSource(job));
  if (config.has_test_fraction()) {
    constexpr char kKey[] = "data.test_fraction";
    absl::StatusOr<Examples> test =
        config.format() == proto::Data::FORMAT_TEXT
            ? TakeEnd(config.test_fraction(), kKey, &source.train)
            : TakeFraction(config.test_fraction(), Key(config.seed(), "test split"), kKey,
                           &source.train);
    if (!test.ok()) return test.status();
    source.test = *std::move(test);
  }
  if (source.test.size() == 0) {
    return absl::InvalidArgumentError(
        "data: found neither test_path nor test_fraction, expected one of the two");
  }
  Examples validation;
  validation.shape = source.train.shape;
  if (config.has_validation()) {
    RUBATO_ASSIGN_OR_RETURN(
        validation, TakeFraction(config.validation().fraction(), Key(job.seed(), "validation"),
                                 "data.validation.fraction", &source.train));
  }
  RUBATO_RETURN_IF_ERROR(CheckTargets(job.loss(), validation, &source));
  if (config.impute() == proto::Data::IMPUTE_MEAN) {
    RUBATO_ASSIGN_OR_RETURN(
        std::vector<float> means,
        ImputeMeans(source.train, source.columns, {&validation, &source.test, &source.train}));
    means.resize(source.quantities);
    *source.description.mutable_impute() = {means.begin(), means.end()};
  }
  RUBATO_ASSIGN_OR_RETURN(const Normalization normalization, MakeNormalization(config, source));
  Normalization computed;
  if (config.has_normalize() && config.normalize().by() == proto::Normalize::BY_AUTO) {
    computed = normalization;
    computed.mean.resize(source.quantities);
    computed.std.resize(source.quantities);
  }
  Describe(config, normalization, &source);
  const Augmentation augmentation = {config.augment().crop_padding(),
                                     config.augment().horizontal_flip()};
  return Data{Dataset(std::move(source.train), normalization, augmentation),
              Dataset(std::move(validation), normalization),
              Dataset(std::move(source.test), normalization),
              std::move(source.columns),
              std::move(source.classes),
              std::move(computed),
              std::move(source.digest),
              std::move(source.description),
              std::move(source.notes)};
}

}  // namespace rubato
