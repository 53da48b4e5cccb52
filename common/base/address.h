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

// Reads "127.0.0.1:29500", "node-7.cluster:29500" or "[::1]:29500". InvalidArgument for any other
// text; the message says what was found and expected, without a prefix. Names are not resolved.
absl::StatusOr<HostPort> ParseAddress(absl::string_view text);

// Reads one address, or a comma-separated list of addresses of one host:
// "10.0.0.7:29500,10.1.0.7:29500". The addresses of a list must all be IPv4 or all IPv6, because
// gRPC takes them as one target. InvalidArgument likewise.
absl::StatusOr<std::vector<HostPort>> ParseAddresses(absl::string_view text);

// The same for addresses to connect to: port 0, which means any free port, is refused, and so is a
// wildcard.
absl::StatusOr<std::vector<HostPort>> ParseReachableAddresses(absl::string_view text);

// Whether it stands for all addresses of a host: one can listen there, and be reached nowhere.
bool IsWildcard(const HostPort& address);

// Whether only its own host reaches it: by number, or as localhost.
bool IsLoopback(const HostPort& address);

// The same hosts, at any free port of each: text that ParseAddresses reads.
std::string AtAnyPort(std::vector<HostPort> addresses);

// Text that ParseAddress reads back to `address`, and that gRPC can connect to.
std::string ToString(const HostPort& address);

// The target of a gRPC channel for addresses that ParseAddresses has read. The channel connects to
// the first address that answers.
std::string ChannelTarget(const std::vector<HostPort>& addresses);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_ADDRESS_H_
