#include "common/base/last_words.h"

#include <unistd.h>

#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "common/base/exit_code.h"

namespace rubato {
namespace {

[[noreturn]] void EndWith(const char* before, const char* what, const char* after) {
  char line[512] = "error: ";
  for (const char* part : {before, what, after, "\n"}) {
    std::strncat(line, part, sizeof line - std::strlen(line) - 1);
  }
  (void)!write(2, line, std::strlen(line));
  _exit(kExitFailure);
}

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr exception = std::current_exception()) {
      std::rethrow_exception(exception);
    }
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  } catch (const std::system_error& error) {
    EndWith("the system refuses what this process needs: ", error.what(),
            ": a limit of its memory, threads or descriptors, or the host's are used up");
  } catch (const std::exception& error) {
    EndWith("internal: ", error.what(), "");
  } catch (...) {
  }
  EndWith("internal: ", "an exception was not caught", "");
}

}  // namespace

void EndOutOfMemory() {
  EndWith("out of memory: ", "the system gives this process no more",
          " (a limit of it, or the host's is used up); `rubato train --dry-run` tells what each "
          "process of a job takes");
}

void InstallLastWords() {
  std::set_new_handler(EndOutOfMemory);
  std::set_terminate(OnTerminate);
}

}  // namespace rubato
