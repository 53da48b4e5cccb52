#include "worker/data/text.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "worker/data/gzip_reader.h"

namespace rubato {
namespace {

// The length of the character with which `text` begins; 0 if it is no UTF-8 (RFC 3629: neither
// longer than needed, nor a surrogate, nor above U+10FFFF).
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(i < text.size() ? text[i] : 0); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;
  if (byte(0) == 0xed && byte(1) > 0x9f) return 0;
  if (byte(0) == 0xf0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

absl::StatusOr<Source> ReadText(const proto::Data& config) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadWholeText(config.path()));
  // By their bytes, which is the order of their code points.
  std::map<absl::string_view, int32_t> numbers;
  std::vector<absl::string_view> characters;
  int64_t line = 1, column = 1;
  for (absl::string_view rest = text; !rest.empty();) {
    const size_t length = CharacterLength(rest);
    if (length == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          config.path(), ":", line, ":", column, ": found the byte 0x",
          absl::BytesToHexString(rest.substr(0, 1)), ", expected a character in UTF-8"));
    }
    characters.push_back(rest.substr(0, length));
    numbers[characters.back()] = 0;
    ++column;
    if (rest[0] == '\n') {
      ++line;
      column = 1;
    }
    rest.remove_prefix(length);
  }
  Source source;
  for (auto& [character, number] : numbers) {
    number = static_cast<int32_t>(source.classes.size());
    source.classes.emplace_back(character);
  }
  const int64_t context = config.context();
  const int64_t count = (static_cast<int64_t>(characters.size()) - 1) / context;
  if (count <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.path(), ": holds ", characters.size(), " characters, expected at least ",
        context + 1, ": those of an example (data.context) and the next"));
  }
  for (Examples* examples : {&source.train, &source.test}) {
    examples->shape = {context, 0, 0};
    examples->classes = static_cast<int64_t>(source.classes.size());
    examples->labels_each = context;
  }
  source.train.features.reserve(count * context);
  source.train.labels.reserve(count * context);
  for (int64_t i = 0; i < count * context; ++i) {
    source.train.features.push_back(static_cast<float>(numbers[characters[i]]));
    source.train.labels.push_back(numbers[characters[i + 1]]);
  }
  source.digest = DigestOf(source);
  return source;
}

}  // namespace rubato
