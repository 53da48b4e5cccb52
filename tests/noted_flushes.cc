// Preloaded into a process: notes in the file $RUBATO_TEST_FLUSHES, a line each, the inodes of what
// it has flushed to the disk.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" int fsync(int fd) {
  static auto* const next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  const int result = next(fd);
  const char* const path = getenv("RUBATO_TEST_FLUSHES");
  struct stat file;
  if (result != 0 || path == nullptr || fstat(fd, &file) != 0) return result;
  const int notes = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dprintf(notes, "%llu\n", static_cast<unsigned long long>(file.st_ino));
  close(notes);
  return result;
}
