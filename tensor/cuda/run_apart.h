// Runs code over the tests' CUDA and cuBLAS in a process of its own, which it may end.
#ifndef RUBATO_TENSOR_CUDA_RUN_APART_H_
#define RUBATO_TENSOR_CUDA_RUN_APART_H_

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"

namespace rubato {

struct Ended {
  int code = -1;     // -1: of no exit, such as a crash or a hang
  std::string said;  // on standard error
};

// Begins with the fakes as they are at first; `run` returns the exit code. More than a minute is a
// hang.
inline Ended RunApart(const std::function<int()>& run) {
  constexpr unsigned kSeconds = 60;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    alarm(kSeconds);
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
    _exit(run());
  }
  close(ends[1]);
  Ended ended;
  char part[512];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) ended.said.append(part, n);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_RUN_APART_H_
