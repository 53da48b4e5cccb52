#include "tools/command/processor_shares.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// Some 5 % lie between processors that are alike.
constexpr double kAlike = 1.15;

int64_t ReadNumber(const std::string& path) {
  int64_t number = 0;
  std::ifstream(path) >> number;  // 0 if there is none
  return number;
}

}  // namespace

std::vector<Processor> AllowedProcessors(const std::string& sys) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on a machine with more than CPU_SETSIZE, 1024.
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<Processor> processors;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &allowed)) continue;
    const std::string folder = absl::StrCat(sys, "/cpu", number);
    Processor processor;
    processor.number = number;
    processor.package = static_cast<int>(ReadNumber(folder + "/topology/physical_package_id"));
    processor.core = static_cast<int>(ReadNumber(folder + "/topology/core_id"));
    processor.speed = ReadNumber(folder + "/cpu_capacity");
    if (processor.speed == 0) processor.speed = ReadNumber(folder + "/cpufreq/cpuinfo_max_freq");
    processors.push_back(processor);
  }
  return processors;
}

std::vector<std::vector<int>> ProcessorShares(std::vector<Processor> processors, int workers,
                                              int threads) {
  const int64_t busy = int64_t{workers} * threads;
  const auto all = static_cast<int64_t>(processors.size());
  if (workers < 2 || processors.empty() || 2 * busy <= all) return {};
  if (busy > all ? threads > 1 || workers % all != 0 : all % workers != 0) return {};
  const auto [slowest, fastest] =
      std::minmax_element(processors.begin(), processors.end(),
                          [](const Processor& a, const Processor& b) { return a.speed < b.speed; });
  if (static_cast<double>(fastest->speed) > kAlike * static_cast<double>(slowest->speed)) return {};
  std::sort(processors.begin(), processors.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.package, a.core, a.number) < std::tie(b.package, b.core, b.number);
  });
  std::vector<std::vector<int>> shares(workers);
  const int64_t places = std::max<int64_t>(all, workers);
  for (int64_t i = 0; i < places; ++i) {
    shares[i * workers / places].push_back(processors[i * all / places].number);
  }
  return shares;
}

}  // namespace rubato
