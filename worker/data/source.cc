#include "worker/data/source.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"

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
