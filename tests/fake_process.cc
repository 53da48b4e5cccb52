// A process that does what its arguments say, in order; it stands for a server or a worker in tests
// of the launcher.
//
//   announce FIFO   opens FIFO for writing, keeps it open until the process ends, writes its number
//   and a newline await FIFO      reads FIFO until nobody has it open for writing ignore-term from
//   now on ignores SIGTERM on-term N       from now on exits with N on SIGTERM print TEXT writes
//   TEXT and a newline to standard output complain TEXT   the same to standard error describe
//   writes what it has inherited to standard output fork            starts a child that does
//   nothing until killed raise N         raises signal N exit N          exits with N pause does
//   nothing until killed
//
// Reader and writer of a FIFO see each other's end, so that tests need no sleeping to know who
// lives.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int exit_on_term = 0;

// In one write: lines of several processes must not mix.
void Say(int fd, const std::string& text) {
  const std::string line = text + "\n";
  (void)!write(fd, line.data(), line.size());
}

void Announce(const char* fifo) {
  const int fd = open(fifo, O_WRONLY);
  if (fd < 0) abort();
  Say(fd, std::to_string(getpid()));
}

void Await(const char* fifo) {
  const int fd = open(fifo, O_RDONLY);
  if (fd < 0) abort();
  char buffer[64];
  while (read(fd, buffer, sizeof buffer) > 0) {
  }
  close(fd);
}

void Describe() {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  int blocked = 0, ignored = 0, open_files = 0;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    blocked += sigismember(&mask, number) == 1;
    ignored += sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }
  for (int fd = 0; fd < 256; ++fd) open_files += fcntl(fd, F_GETFD) != -1;
  char byte;
  char text[256];
  snprintf(text, sizeof text, "leads_group=%d blocked=%d ignored=%d open_files=%d stdin_bytes=%zd",
           getpgrp() == getpid(), blocked, ignored, open_files, read(0, &byte, 1));
  Say(1, text);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string verb = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (verb == "ignore-term") {
      signal(SIGTERM, SIG_IGN);
    } else if (verb == "describe") {
      Describe();
    } else if (verb == "fork") {
      if (fork() == 0) {
        while (true) pause();
      }
    } else if (verb == "pause") {
      while (true) pause();
    } else {
      ++i;
      if (verb == "announce") {
        Announce(value);
      } else if (verb == "await") {
        Await(value);
      } else if (verb == "on-term") {
        exit_on_term = atoi(value);
        signal(SIGTERM, [](int) { _exit(exit_on_term); });
      } else if (verb == "print") {
        Say(1, value);
      } else if (verb == "complain") {
        Say(2, value);
      } else if (verb == "raise") {
        raise(atoi(value));
      } else if (verb == "exit") {
        return atoi(value);
      } else {
        abort();
      }
    }
  }
  return 0;
}
