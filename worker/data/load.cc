#include "worker/data/load.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "worker/data/glyphs.h"
#include "worker/data/idx.h"

namespace rubato {
namespace {

struct Source {
  Examples train, test;
  std::string digest;
};

Source DrawSource(const proto::Data& config) {
  return {DrawGlyphs(config.seed(), "train", config.train_size()),
          DrawGlyphs(config.seed(), "test", config.test_size()),
          Sha256Hex(absl::StrCat("glyphs ", kGlyphsVersion, " seed ", config.seed(), " train ",
                                 config.train_size(), " test ", config.test_size()))};
}

absl::StatusOr<Source> ReadSource(const proto::Data& config) {
  switch (config.format()) {
    case proto::Data::FORMAT_GLYPHS:
      return DrawSource(config);
    case proto::Data::FORMAT_IDX: {
      RUBATO_ASSIGN_OR_RETURN(IdxFolder folder, ReadIdxFolder(config.path()));
      return Source{std::move(folder.train), std::move(folder.test), std::move(folder.digest)};
    }
  }
  RUBATO_CHECK(false);
}

// Of images with `channels` channels; without `normalize` pixels stay in [0, 1].
absl::StatusOr<Normalization> MakeNormalization(const proto::Data& config, int64_t channels) {
  if (!config.has_normalize()) {
    return Normalization{std::vector<float>(channels, 0), std::vector<float>(channels, 1)};
  }
  const proto::Normalize& normalize = config.normalize();
  if (normalize.mean_size() != channels || normalize.std_size() != channels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.normalize: found ", normalize.mean_size(), " entries of mean and ",
        normalize.std_size(), " of std, expected ", channels, " of each: the images have ",
        channels, channels == 1 ? " channel" : " channels"));
  }
  Normalization result;
  for (int64_t i = 0; i < channels; ++i) {
    const float mean = static_cast<float>(normalize.mean(i));
    const float std = static_cast<float>(normalize.std(i));
    if (!(std > 0) || !std::isfinite((0 - mean) / std) || !std::isfinite((1 - mean) / std)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.normalize: found mean ", normalize.mean(i), " and std ",
                       normalize.std(i), ", with which pixels overflow a float32"));
    }
    result.mean.push_back(mean);
    result.std.push_back(std);
  }
  return result;
}

}  // namespace

absl::StatusOr<Data> LoadData(const proto::Data& config) {
  RUBATO_ASSIGN_OR_RETURN(Source source, ReadSource(config));
  RUBATO_ASSIGN_OR_RETURN(const Normalization normalization,
                          MakeNormalization(config, source.train.shape.channels));
  return Data{Dataset(std::move(source.train), normalization),
              Dataset(std::move(source.test), normalization), std::move(source.digest)};
}

}  // namespace rubato
