// JSON documents as the YAML that people read and kubectl applies.
#ifndef RUBATO_TOOLS_KUBERNETES_YAML_TEXT_H_
#define RUBATO_TOOLS_KUBERNETES_YAML_TEXT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace rubato::kubernetes {

// One document, its keys in their order, without a mark at its beginning. Text of several lines
// stands as it is, behind `|`; other text in quotes where YAML, of version 1.1 or 1.2, would take
// it for something else.
std::string YamlText(const nlohmann::ordered_json& document);

// Several, each behind `---`.
std::string YamlText(const std::vector<nlohmann::ordered_json>& documents);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_YAML_TEXT_H_
