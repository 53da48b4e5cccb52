// Tests of jobs whose workers compute on emulated GPUs (worker/step/test_gpus.h).
#ifndef RUBATO_TESTS_EMULATED_GPUS_H_
#define RUBATO_TESTS_EMULATED_GPUS_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "tests/cluster.h"

namespace rubato {

// The worker that can emulate GPUs is the one that `rubato` and StartWorker start. It has one.
class EmulatedGpusTest : public ClusterTest {
 protected:
  EmulatedGpusTest() {
    namespace fs = std::filesystem;
    worker_ = "worker/rubato-worker-on-emulated-gpus";
    fs::create_directory(Path("programs"));
    for (const std::string name :
         {"tools/rubato", "server/rubato-server", "worker/rubato-worker"}) {
      fs::create_symlink(fs::absolute(name == "worker/rubato-worker" ? worker_ : name),
                         Path("programs") / fs::path(name).filename());
    }
    setenv("RUBATO_BIN_DIR", Path("programs").c_str(), 1);
    SetGpus("emulated");
  }
  ~EmulatedGpusTest() override {
    unsetenv("RUBATO_TEST_GPU");
    unsetenv("RUBATO_BIN_DIR");
  }

  // As test_gpus.h says, or "none".
  static void SetGpus(const std::string& gpus) { setenv("RUBATO_TEST_GPU", gpus.c_str(), 1); }
};

}  // namespace rubato

#endif  // RUBATO_TESTS_EMULATED_GPUS_H_
