// Preloaded into a process: its wall clock is set an hour forward or back again and again, a few
// times a second. The machine's stays as it is.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

void Read(clockid_t clock, timespec* time) { syscall(SYS_clock_gettime, clock, time); }

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  constexpr time_t kSteps[] = {0, 3600, -3600};
  Read(clock, time);
  if (clock == CLOCK_REALTIME) {
    timespec now;
    Read(CLOCK_MONOTONIC, &now);
    time->tv_sec += kSteps[(now.tv_sec * 4 + now.tv_nsec / 250'000'000) % 3];
  }
  return 0;
}
