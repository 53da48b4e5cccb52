// JSON as every file and reply of Rubato has it.
#ifndef RUBATO_COMMON_BASE_JSON_H_
#define RUBATO_COMMON_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// Writing and reading are compiled once, in json.cc: they are most of what JSON costs a source that
// includes it.

// The text of `json`, on one line or, with `indent`, on several. Bytes that are no UTF-8, as names
// of files and what a peer says may hold, become U+FFFD: they must not cost the line. What is not
// finite becomes null.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// What `text` says; if it is no JSON, a value that is_discarded().
nlohmann::json ParseJson(absl::string_view text);

// What an object has under `key`, if it is a text, a number or a truth; files may have been
// damaged.
inline std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
inline double NumberAt(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
inline bool FlagAt(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_JSON_H_
