#include "common/base/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace rubato {

bool IsTerminal(int fd) {
  const char* term = getenv("TERM");
  return isatty(fd) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

bool UsesColor(int fd) {
  const char* no_color = getenv("NO_COLOR");
  return IsTerminal(fd) && (no_color == nullptr || *no_color == '\0');
}

}  // namespace rubato
