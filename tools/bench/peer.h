// A second process of a measurement: this program again, in another role.
#ifndef RUBATO_TOOLS_BENCH_PEER_H_
#define RUBATO_TOOLS_BENCH_PEER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rubato {

// Lives until it is destroyed, at the latest until this process ends.
class Peer {
 public:
  // Starts this program with `arguments`. It prints the address at which it serves, as one line,
  // and ends when its standard input does.
  static absl::StatusOr<std::unique_ptr<Peer>> Start(const std::vector<std::string>& arguments);
  ~Peer();

  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }
  // Processor time that it has used so far.
  double CpuSeconds() const;
  // How often its threads have gone to sleep so far.
  int64_t Switches() const;
  int64_t ResidentBytes() const;

 private:
  Peer(pid_t pid, int input, std::string address)
      : pid_(pid), input_(input), address_(std::move(address)) {}

  const pid_t pid_;
  const int input_;  // closing it ends the peer
  const std::string address_;
};

// In the peer: prints the address, and returns when the standard input has ended.
void ServeUntilTold(const std::string& address);

// Processor time that this process has used so far, and how often its threads have gone to sleep.
double OwnCpuSeconds();
int64_t OwnSwitches();

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_PEER_H_
