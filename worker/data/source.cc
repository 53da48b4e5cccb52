#include "worker/data/source.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/base/host_memory.h"

namespace rubato {
namespace {

// Sizes stand before values, so that no two sources give the same bytes.
template <typename Value>
void Update(const std::vector<Value>& values, Sha256* digest) {
  digest->Update(absl::StrCat(values.size(), ":"));
  digest->Update(AsBytes(absl::MakeConstSpan(values)));
}

void Update(const std::vector<std::string>& texts, Sha256* digest) {
  digest->Update(absl::StrCat(texts.size(), ":"));
  for (const std::string& text : texts) digest->Update(absl::StrCat(text.size(), ":", text));
}

}  // namespace

absl::Status CheckSize(const proto::Data& config, const std::string& path, int64_t examples,
                       int64_t floats_each) {
  const double taken_out = config.test_fraction() + config.validation().fraction();
  const double bytes = static_cast<double>(examples) * static_cast<double>(floats_each) *
                       sizeof(float) * (1 + taken_out);
  const std::optional<int64_t> available = AvailableMemory();
  if (!available.has_value() || bytes <= static_cast<double>(*available)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: found %d examples of %d features, which take %.1f GB as dense floats%s; expected no "
      "more "
      "than the %.1f GB of memory that this process may still take (every worker holds all of "
      "them)",
      path, examples, floats_each, bytes * 1e-9, taken_out > 0 ? " with the splits" : "",
      *available * 1e-9));
}

std::string DigestOf(const Source& source) {
  Sha256 digest;
  Update(source.columns, &digest);
  Update(source.classes, &digest);
  for (const Examples* examples : {&source.train, &source.test}) {
    digest.Update(absl::StrCat(examples->shape.channels, ":"));
    Update(examples->features, &digest);
    Update(examples->labels, &digest);
    Update(examples->values, &digest);
  }
  return digest.FinishHex();
}

}  // namespace rubato
