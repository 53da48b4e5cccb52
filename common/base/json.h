// JSON, as all files and replies of Rubato use it.
#ifndef RUBATO_COMMON_BASE_JSON_H_
#define RUBATO_COMMON_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// Writing and reading are compiled once, in json.cc: they are most of what JSON costs a source that
// includes it.

// The text of `json`, on one line or, with `indent`, on several. Bytes that are not UTF-8, which
// file names and texts of peers may contain, become U+FFFD, so that the line is not lost. Numbers
// that are not finite become null.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// Parses `text`; returns a value that is_discarded() if it is not JSON.
nlohmann::json ParseJson(absl::string_view text);

// The value of `key` in an object, if it has the expected type (string, number or boolean); files
// may be damaged.
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
