// Which checkpoints of a run are kept: the newest so many, and the best.
#ifndef RUBATO_SERVER_KEPT_CHECKPOINTS_H_
#define RUBATO_SERVER_KEPT_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace rubato {

class KeptCheckpoints {
 public:
  struct Entry {
    std::string path;
    int64_t step = 0;
    std::optional<double> metric;  // keep_best's, if the split had been tested by then
  };

  // Later than all before it.
  void Add(Entry entry);

  // Forgets those that `settings` does not keep, and returns their paths.
  std::vector<std::string> Expire(const proto::Checkpoint& settings);

 private:
  std::vector<Entry> entries_;  // oldest first
};

}  // namespace rubato

#endif  // RUBATO_SERVER_KEPT_CHECKPOINTS_H_
