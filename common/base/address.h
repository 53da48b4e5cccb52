// Where a process can be reached.
#ifndef RUBATO_COMMON_BASE_ADDRESS_H_
#define RUBATO_COMMON_BASE_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

struct HostPort {
  std::string host;  // a name, an IPv4 or an IPv6 address; without brackets
  int port = 0;      // 0: any free one, for a listener

  friend bool operator==(const HostPort& a, const HostPort& b) {
    return a.host == b.host && a.port == b.port;
  }
};

// Reads "127.0.0.1:29500", "node-7.cluster:29500" or "[::1]:29500". InvalidArgument if it is none
// of these; the message says what was found and expected, without a prefix. Names are not looked
// up.
absl::StatusOr<HostPort> ParseAddress(absl::string_view text);

// Reads one address, or several of one host behind commas: "10.0.0.7:29500,10.1.0.7:29500". Several
// must be IPv4 addresses, or all IPv6, which is what gRPC connects to as one. InvalidArgument
// likewise.
absl::StatusOr<std::vector<HostPort>> ParseAddresses(absl::string_view text);

// Likewise, to connect to: port 0, which stands for any that is free, is none.
absl::StatusOr<std::vector<HostPort>> ParseReachableAddresses(absl::string_view text);

// What ParseAddress reads to `address`, and gRPC connects to.
std::string ToString(const HostPort& address);

// What ParseAddresses has read, as the target of a gRPC channel, which connects to the first that
// answers.
std::string ChannelTarget(const std::vector<HostPort>& addresses);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_ADDRESS_H_
