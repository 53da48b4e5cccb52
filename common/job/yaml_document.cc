#include "common/job/yaml_document.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"

namespace rubato {
namespace {

constexpr size_t kMaxShown = 60;

// From 1; empty if there is none.
absl::string_view Line(absl::string_view text, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  return line < 1 || static_cast<size_t>(line) > lines.size() ? "" : lines[line - 1];
}

// Whether a line begins with a tab among its spaces: the usual reason why a file that looks right
// is broken.
bool HasTabIndent(absl::string_view text, int line) {
  const absl::string_view content = Line(text, line);
  return content.substr(0, content.find_first_not_of(" \t")).find('\t') != absl::string_view::npos;
}

// Where the document being read begins.
class DocumentStart : public YAML::EventHandler {
 public:
  const YAML::Mark& mark() const { return mark_; }

  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark mark_;
};

// The place of a second document in `text`; the null mark if there is none. In place of
// YAML::LoadAll, which never returns for a text such as ",": it takes it for documents without end.
YAML::Mark SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  for (int documents = 0; documents < 2; ++documents) {
    if (!parser.HandleNextDocument(start)) return YAML::Mark::null_mark();
  }
  return start.mark();
}

// What yaml-cpp calls by the names of its grammar, in words that say what to look for.
std::string Explain(const std::string& message) {
  static constexpr struct {
    const char* message;
    const char* explanation;
  } kExplanations[] = {
      {"illegal map value",
       "found a key where none can be; is the indentation right, with a space after every colon?"},
      {"end of map not found", "found a line that is not indented like its map"},
      {"end of sequence not found", "found a line that is not indented like its list"},
      {"end of map flow not found", "found a { without its }, or no comma between keys"},
      {"end of sequence flow not found", "found a [ without its ], or no comma between entries"},
      {"unknown token", "found a character that cannot begin a value; does it belong in quotes?"},
      {"illegal flow end", "found a } or ] that closes nothing"},
      {"illegal block entry", "found a list entry (-) where none can be"},
      {"illegal EOF in scalar", "found the end of the file inside quotes"},
      {"the referenced anchor is not defined", "found an alias (*) without its anchor (&)"},
  };
  for (const auto& known : kExplanations) {
    // yaml-cpp 0.8 adds the anchor's name.
    if (absl::StartsWith(message, known.message)) return known.explanation;
  }
  return absl::Utf8SafeCEscape(message);  // it may repeat what it met
}

// Whether reading it comes to an end soon: by aliases a node may be in itself, or many times in
// others. `values` are those that may still come.
bool IsFinite(const YAML::Node& node, int depth, int64_t* values) {
  constexpr int kMostDepth = 100;
  if (depth > kMostDepth || --*values < 0) return false;
  for (const auto& entry : node) {
    const bool is_finite = node.IsMap() ? IsFinite(entry.first, depth + 1, values) &&
                                              IsFinite(entry.second, depth + 1, values)
                                        : IsFinite(entry, depth + 1, values);
    if (!is_finite) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<YAML::Node> ParseYaml(absl::string_view text, TextPosition* where) {
  const auto error = [&](const YAML::Mark& mark, absl::string_view what) {
    where->line = std::max(mark.line, 0) + 1;
    where->column = std::max(mark.column, 0) + 1;
    return absl::InvalidArgumentError(what);
  };
  // yaml-cpp would read what follows a NUL as if it were not there.
  if (text.find('\0') != absl::string_view::npos) {
    return error(YAML::Mark(), "found binary data, expected YAML");
  }
  try {
    const std::string copy(text);
    const YAML::Mark second = SecondDocument(copy);
    if (!second.is_null()) {
      return error(second, absl::StartsWith(Line(text, second.line + 1), "---")
                               ? "found a second document after ---, expected only one"
                               : "broken YAML: found something that does not belong to what is "
                                 "above it");
    }
    const YAML::Node node = YAML::Load(copy);
    // Without aliases there are no more values than characters.
    int64_t values = 100'000 + static_cast<int64_t>(text.size());
    if (!IsFinite(node, 0, &values)) {
      return error(YAML::Mark(),
                   "found aliases (*) within what they stand for, or for far too much in all");
    }
    return node;
  } catch (const YAML::DeepRecursion& e) {
    return error(e.mark, "broken YAML: nested too deeply");
  } catch (const YAML::Exception& e) {
    return error(e.mark, absl::StrCat("broken YAML: ", Explain(e.msg),
                                      HasTabIndent(text, e.mark.line + 1)
                                          ? " (this line is indented with a tab; YAML wants spaces)"
                                          : ""));
  } catch (const std::exception& e) {
    return error(YAML::Mark(), absl::StrCat("broken YAML: ", Explain(e.what())));
  }
}

std::string Show(absl::string_view text) {
  std::string shown(text.substr(0, kMaxShown));
  const bool cut = shown.size() < text.size();
  const bool plain = !text.empty() && std::all_of(shown.begin(), shown.end(), [](char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '\'' && c != ',' && c != '\\';
  });
  if (plain) return cut ? shown + "..." : shown;
  // A character of several bytes may have been cut in two.
  if (cut) {
    while (!shown.empty() && (shown.back() & 0xC0) == 0x80) shown.pop_back();
    if (!shown.empty() && (shown.back() & 0x80) != 0) shown.pop_back();
  }
  return absl::StrCat("\"", absl::Utf8SafeCEscape(shown), cut ? "...\"" : "\"");
}

bool IsQuoted(const YAML::Node& scalar) {
  return scalar.Tag() == "!" || scalar.Tag() == "tag:yaml.org,2002:str";
}

std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      return "nothing";
    case YAML::NodeType::Map:
      return node.begin() == node.end() ? "an empty map" : "a map";
    case YAML::NodeType::Sequence:
      return node.begin() == node.end() ? "an empty list" : "a list";
    case YAML::NodeType::Scalar:
      break;
  }
  return Show(node.Scalar());
}

}  // namespace rubato
