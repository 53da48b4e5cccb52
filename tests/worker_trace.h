// What a worker has written under RUBATO_TEST_TRACE (worker/process/test_hooks.h): what it pulled
// and computed, in order. The order in which the shards applied its contributions can be told from
// it.
#ifndef RUBATO_TESTS_WORKER_TRACE_H_
#define RUBATO_TESTS_WORKER_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

struct WorkerTrace {
  struct Pulled {
    int64_t clock, version;
  };
  struct Computed {
    int64_t lineage = 0, clock = 0, unit = 0;
    // By block: the version that it was computed at and, on arrival, how stale it was when it was
    // applied, as the next pull told (-1: there was none).
    std::vector<int64_t> read, staleness;
    // On arrival: the version that came of it.
    int64_t made(int64_t block) const { return read[block] + staleness[block] + 1; }
  };

  std::vector<std::vector<Pulled>> pulls;  // by block
  std::vector<Computed> computed;
};

// Of the text of such a file; lines that are not whole are left out.
WorkerTrace ReadWorkerTrace(const std::string& text);

}  // namespace rubato

#endif  // RUBATO_TESTS_WORKER_TRACE_H_
