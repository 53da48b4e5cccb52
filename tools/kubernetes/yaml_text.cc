#include "tools/kubernetes/yaml_text.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace rubato::kubernetes {
namespace {

using Json = nlohmann::ordered_json;

// Begins with a letter or a path's slash and has nothing but what means nothing in YAML: then only
// the words for truth and nothing can be mistaken.
bool IsPlain(absl::string_view text) {
  constexpr std::array<absl::string_view, 9> kWords = {"y",   "n",    "yes",   "no",  "on",
                                                       "off", "true", "false", "null"};
  if (text.empty() || (!absl::ascii_isalpha(text.front()) && text.front() != '/')) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("-_./", c)) return false;
  }
  return std::none_of(kWords.begin(), kWords.end(),
                      [&](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

// Whether it may stand as lines behind `|`, which keeps every character.
bool IsBlock(absl::string_view text) {
  if (!absl::EndsWith(text, "\n") || absl::EndsWith(text, "\n\n") || text.size() < 2) return false;
  if (absl::ascii_isspace(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  });
}

std::string Scalar(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : value.dump();  // JSON's strings are YAML's
}

std::string Key(const std::string& key) { return IsPlain(key) ? key : Json(key).dump(); }

// `value` behind a key or a dash, whose own lines begin with `indent`.
void Write(const Json& value, const std::string& indent, std::string* out);

void WriteItems(const Json& value, const std::string& indent, bool begins_line, std::string* out) {
  for (auto it = value.begin(); it != value.end(); ++it) {
    absl::StrAppend(out, begins_line ? indent : "");
    begins_line = true;
    if (value.is_array()) {
      absl::StrAppend(out, "-");
      // A map's first key stands beside the dash.
      if (it->is_object() && !it->empty()) {
        absl::StrAppend(out, " ");
        WriteItems(*it, absl::StrCat(indent, "  "), /*begins_line=*/false, out);
        continue;
      }
    } else {
      absl::StrAppend(out, Key(it.key()), ":");
    }
    Write(*it, absl::StrCat(indent, "  "), out);
  }
}

void Write(const Json& value, const std::string& indent, std::string* out) {
  if (value.is_structured() && !value.empty()) {
    absl::StrAppend(out, "\n");
    WriteItems(value, indent, /*begins_line=*/true, out);
  } else if (value.is_string() && IsBlock(value.get_ref<const std::string&>())) {
    absl::StrAppend(out, " |\n");
    std::vector<absl::string_view> lines =
        absl::StrSplit(value.get_ref<const std::string&>(), '\n');
    lines.pop_back();  // behind the last end of a line
    for (const absl::string_view line : lines) {
      absl::StrAppend(out, line.empty() ? "" : indent, line, "\n");
    }
  } else {
    absl::StrAppend(out, " ", Scalar(value), "\n");
  }
}

}  // namespace

std::string YamlText(const Json& document) {
  std::string text;
  WriteItems(document, "", /*begins_line=*/true, &text);
  return text;
}

std::string YamlText(const std::vector<Json>& documents) {
  std::string text;
  for (const Json& document : documents) absl::StrAppend(&text, "---\n", YamlText(document));
  return text;
}

}  // namespace rubato::kubernetes
