#include "tools/simulator/apart.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "common/base/check.h"

namespace rubato {
namespace {

// In the new process: what is wrong goes to `out`.
[[noreturn]] void RunTo(int out, absl::FunctionRef<absl::Status()> run, rlim_t most_seconds) {
  std::signal(SIGABRT, SIG_DFL);
  const rlimit time{most_seconds, most_seconds}, no_core{0, 0};
  RUBATO_CHECK(setrlimit(RLIMIT_CPU, &time) == 0 && setrlimit(RLIMIT_CORE, &no_core) == 0);
  // What a core says before it aborts is not wanted.
  RUBATO_CHECK(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO) >= 0);
  const absl::Status status = run();
  const std::string text(status.message());
  const bool is_told = write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(!is_told ? 2 : status.ok() ? 0 : 1);
}

}  // namespace

absl::Status RunApart(absl::FunctionRef<absl::Status()> run, int most_seconds) {
  int ends[2];
  RUBATO_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  RUBATO_CHECK(child >= 0);
  if (child == 0) RunTo(ends[1], run, static_cast<rlim_t>(most_seconds));
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = read(ends[0], part, sizeof(part))) > 0;) text.append(part, size);
  close(ends[0]);
  int status = 0;
  RUBATO_CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) return absl::AbortedError("a core aborted");
  return WEXITSTATUS(status) == 0 ? absl::OkStatus() : absl::InternalError(text);
}

}  // namespace rubato
