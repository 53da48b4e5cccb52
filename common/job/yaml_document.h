// YAML text as a tree of nodes, and nodes in words.
#ifndef RUBATO_COMMON_JOB_YAML_DOCUMENT_H_
#define RUBATO_COMMON_JOB_YAML_DOCUMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "yaml-cpp/yaml.h"

namespace rubato {

// Where `text` is broken, both from 1.
struct TextPosition {
  int line = 1;
  int column = 1;
};

// The one document in `text`; a null node if it holds none. InvalidArgument, with `where`, if it is
// broken, nested too deeply or followed by another.
absl::StatusOr<YAML::Node> ParseYaml(absl::string_view text, TextPosition* where);

// What stands there, for an error message: "a map", "an empty list", "nothing", "0.1", "\"a b\"".
// Always short, and printable.
std::string Describe(const YAML::Node& node);

// `text` as an error message shows it: cut where long, in quotes and escaped where it would be
// misread.
std::string Show(absl::string_view text);

// Whether the scalar is text and nothing else, because it stands in quotes.
bool IsQuoted(const YAML::Node& scalar);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_YAML_DOCUMENT_H_
