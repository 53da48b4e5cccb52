#include "server/process/pace.h"

#include <algorithm>
#include <ctime>
#include <fstream>

namespace rubato {
namespace {

// The kernel counts in hundredths of a second.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);

}  // namespace

absl::Duration Pace::Rest(absl::Time now, absl::Duration busy,
                          absl::FunctionRef<Processors()> read) {
  if (now - looked_at_ >= kBetweenLooks) {
    const Processors processors = read();
    const double all = processors.all - looked_.all;
    others_work_ = all > 0 && processors.others - looked_.others >= kOthers * all;
    looked_at_ = now;
    looked_ = processors;
  }
  const absl::Duration elapsed = now - begin_;
  const absl::Duration rest = std::min(busy / kShare, kLongest) - elapsed;
  return others_work_ && rest >= absl::Milliseconds(1) ? rest : absl::ZeroDuration();
}

Pace::Processors ReadProcessors(const std::string& path) {
  Pace::Processors processors;
  std::ifstream stat(path);
  std::string word;
  stat >> word;
  double time;  // user, user at a low priority, system, idle, waiting for disks, interrupts
  for (int i = 0; i < 8 && stat >> time; ++i) {
    processors.all += time;
    if (i == 0 || i == 2) processors.others += time;
  }
  return processors;
}

absl::Duration ThreadTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace rubato
