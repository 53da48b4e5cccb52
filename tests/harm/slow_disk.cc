// Preloaded into a process: while the file $RUBATO_TEST_SLOW_DISK exists, each of its writes to a
// file takes as many milliseconds as that file says.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace {

void Delay(int fd) {
  static const char* const path = getenv("RUBATO_TEST_SLOW_DISK");
  struct stat file;
  if (path == nullptr || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return;
  FILE* const said = fopen(path, "r");
  if (said == nullptr) return;
  long milliseconds = 0;
  if (fscanf(said, "%ld", &milliseconds) != 1) milliseconds = 0;
  fclose(said);
  const timespec time = {milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  Delay(fd);
  return next(fd, bytes, size);
}

extern "C" int fsync(int fd) {
  static auto* const next = Next<int(int)>("fsync");
  Delay(fd);
  return next(fd);
}
