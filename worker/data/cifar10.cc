#include "worker/data/cifar10.h"

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "worker/data/gzip_reader.h"

namespace rubato {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32, kRecord = 1 + kPixels;
constexpr int kClasses = 10, kTrainFiles = 5;

bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Appends the records of one file.
absl::Status ReadBatch(const std::string& path, Examples* examples, Sha256* digest) {
  RUBATO_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(path));
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size % kRecord != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds ", size,
                                                   " bytes, expected whole records of ", kRecord,
                                                   ": a label and 3 x 32 x 32 pixels"));
  }
  for (int64_t at = 0; at < size; at += kRecord) {
    const uint8_t label = static_cast<uint8_t>(bytes[at]);
    if (label >= kClasses) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": record ", at / kRecord,
                                                     ": found label ", label, ", expected 0 to ",
                                                     kClasses - 1));
    }
    examples->labels.push_back(label);
    examples->pixels.insert(examples->pixels.end(), bytes.begin() + at + 1,
                            bytes.begin() + at + kRecord);
  }
  digest->Update(absl::StrCat(size, ":"));
  digest->Update(bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Source> ReadCifar10(const std::string& folder) {
  std::filesystem::path place(folder);
  std::error_code ignored;
  if (!std::filesystem::is_directory(place, ignored)) {
    return absl::NotFoundError(absl::StrCat(
        folder, ": there is no such folder, expected one with CIFAR-10's binary files"));
  }
  if (Exists(place / "cifar-10-batches-bin")) place /= "cifar-10-batches-bin";
  std::vector<std::string> paths, missing;
  for (int i = 1; i <= kTrainFiles + 1; ++i) {
    const std::string name =
        i <= kTrainFiles ? absl::StrCat("data_batch_", i, ".bin") : std::string("test_batch.bin");
    const std::filesystem::path plain = place / name, gzip = place / (name + ".gz");
    if (!Exists(plain) && !Exists(gzip)) missing.push_back(name);
    paths.push_back(Exists(plain) ? plain.string() : gzip.string());
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(
        place.string(), ": lacks ", absl::StrJoin(missing, ", "), " (also looked for with .gz)"));
  }
  Source source;
  Sha256 digest;
  for (Examples* examples : {&source.train, &source.test}) {
    examples->shape = {3, 32, 32};
    examples->classes = kClasses;
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    RUBATO_RETURN_IF_ERROR(
        ReadBatch(paths[i], i < kTrainFiles ? &source.train : &source.test, &digest));
  }
  const std::filesystem::path names = place / "batches.meta.txt";
  if (Exists(names)) {
    RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadWhole(names.string()));
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      line = absl::StripAsciiWhitespace(line);
      if (!line.empty()) source.classes.emplace_back(line);
    }
    if (source.classes.size() != kClasses) {
      return absl::InvalidArgumentError(absl::StrCat(
          names.string(), ": holds ", source.classes.size(), " names, expected ", kClasses));
    }
  }
  source.digest = digest.FinishHex();
  return source;
}

}  // namespace rubato
