// Numbers names in the order of reading; their final numbers are known when all names are.
#ifndef RUBATO_WORKER_DATA_NAMES_H_
#define RUBATO_WORKER_DATA_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace rubato {

class Names {
 public:
  // In the order of first appearance.
  int32_t Number(absl::string_view name);
  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  const std::string& name(int32_t number) const { return names_[number]; }

  // For each number, its rank in ascending order: as integers if all names are integers ("9" before
  // "10"; "1", "+1" and "1.0" are the same), else by bytes. So the result does not depend on the
  // order of lines. `ordered`, if not null, receives the names by rank.
  std::vector<int32_t> Ranks(std::vector<std::string>* ordered) const;

 private:
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, int32_t> numbers_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_NAMES_H_
