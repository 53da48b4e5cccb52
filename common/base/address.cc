#include "common/base/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rubato {
namespace {

bool IsIpv4(const std::string& host) {
  in_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1;
}

// With or without the zone of a link-local address: fe80::1%eth0.
bool IsIpv6(const std::string& host) {
  in6_addr ignored;
  const size_t zone = host.find('%');
  if (zone != std::string::npos) {
    const bool named = zone + 1 < host.size() &&
                       std::all_of(host.begin() + zone + 1, host.end(), absl::ascii_isgraph);
    if (!named) return false;
  }
  return inet_pton(AF_INET6, host.substr(0, zone).c_str(), &ignored) == 1;
}

// What the host says by number, an IPv4 address as ::ffff:a.b.c.d; none if it is a name.
std::optional<in6_addr> NumberOf(const std::string& host) {
  const std::string text = IsIpv4(host) ? "::ffff:" + host : host.substr(0, host.find('%'));
  in6_addr number;
  if (inet_pton(AF_INET6, text.c_str(), &number) != 1) return std::nullopt;
  return number;
}

// Of one that begins with ::ffff.
uint32_t Ipv4Of(const in6_addr& number) {
  const uint8_t* const bytes = &number.s6_addr[12];
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// RFC 1123, with the underscore that container networks allow.
bool IsName(absl::string_view host) {
  if (host.size() > 253) return false;
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  for (absl::string_view label : absl::StrSplit(host, '.')) {
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') {
      return false;
    }
    for (char c : label) {
      if (!absl::ascii_isalnum(c) && c != '-' && c != '_') return false;
    }
  }
  // What looks like an IPv4 address must be one.
  return host.find_first_not_of("0123456789.") != absl::string_view::npos;
}

}  // namespace

absl::StatusOr<HostPort> ParseAddress(absl::string_view text) {
  const auto error = [text](absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found \"", absl::Utf8SafeCEscape(text.substr(0, 300)), "\", expected ", expected));
  };
  HostPort address;
  absl::string_view port;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find("]:");
    if (close == absl::string_view::npos) return error("[IPV6]:PORT, such as [::1]:29500");
    address.host = std::string(text.substr(1, close - 1));
    port = text.substr(close + 2);
    if (!IsIpv6(address.host)) return error("an IPv6 address in the brackets, such as [::1]:29500");
  } else {
    const size_t colon = text.rfind(':');
    if (colon == absl::string_view::npos) return error("HOST:PORT, such as 127.0.0.1:29500");
    address.host = std::string(text.substr(0, colon));
    port = text.substr(colon + 1);
    if (IsIpv6(address.host)) {
      return error(
          "an IPv6 address to stand in brackets, such as [::1]:29500, and in YAML in quotes");
    }
    if (!IsIpv4(address.host) && !IsName(address.host)) {
      return error("a host's name or address before the port, such as 127.0.0.1:29500");
    }
  }
  const bool digits = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port, &address.port) || address.port > 65535) {
    return error("a port from 0 to 65535 after the host");
  }
  return address;
}

absl::StatusOr<std::vector<HostPort>> ParseAddresses(absl::string_view text) {
  std::vector<HostPort> addresses;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<HostPort> address = ParseAddress(absl::StripAsciiWhitespace(part));
    if (!address.ok()) return address.status();
    addresses.push_back(*std::move(address));
  }
  const bool ipv4 = std::all_of(addresses.begin(), addresses.end(),
                                [](const HostPort& address) { return IsIpv4(address.host); });
  const bool ipv6 = std::all_of(addresses.begin(), addresses.end(),
                                [](const HostPort& address) { return IsIpv6(address.host); });
  if (addresses.size() > 1 && !ipv4 && !ipv6) {
    return absl::InvalidArgumentError(
        absl::StrCat("found \"", absl::Utf8SafeCEscape(text.substr(0, 300)),
                     "\", expected several addresses to be all IPv4 or all IPv6; of names one, "
                     "which may stand for several addresses"));
  }
  return addresses;
}

absl::StatusOr<std::vector<HostPort>> ParseReachableAddresses(absl::string_view text) {
  absl::StatusOr<std::vector<HostPort>> addresses = ParseAddresses(text);
  if (!addresses.ok()) return addresses;
  for (const HostPort& address : *addresses) {
    const bool is_wildcard = IsWildcard(address);
    if (!is_wildcard && address.port != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("found \"", text, "\", expected a ",
                                                   is_wildcard ? "name or address" : "port",
                                                   " that others can connect to"));
  }
  return addresses;
}

bool IsWildcard(const HostPort& address) {
  const std::optional<in6_addr> number = NumberOf(address.host);
  if (!number.has_value()) return false;
  return IN6_IS_ADDR_UNSPECIFIED(&*number) ||
         (IN6_IS_ADDR_V4MAPPED(&*number) && Ipv4Of(*number) == INADDR_ANY);
}

bool IsLoopback(const HostPort& address) {
  if (absl::EqualsIgnoreCase(address.host, "localhost")) return true;
  const std::optional<in6_addr> number = NumberOf(address.host);
  if (!number.has_value()) return false;
  return IN6_IS_ADDR_LOOPBACK(&*number) ||
         (IN6_IS_ADDR_V4MAPPED(&*number) && Ipv4Of(*number) >> 24 == IN_LOOPBACKNET);
}

std::string AtAnyPort(std::vector<HostPort> addresses) {
  for (HostPort& address : addresses) address.port = 0;
  return absl::StrJoin(addresses, ",", [](std::string* out, const HostPort& address) {
    out->append(ToString(address));
  });
}

std::string ToString(const HostPort& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", address.host, ipv6 ? "]:" : ":", address.port);
}

std::string ChannelTarget(const std::vector<HostPort>& addresses) {
  const std::string all = absl::StrJoin(
      addresses, ",",
      [](std::string* out, const HostPort& address) { out->append(ToString(address)); });
  if (addresses.size() == 1) return all;
  return absl::StrCat(IsIpv4(addresses[0].host) ? "ipv4:" : "ipv6:", all);
}

}  // namespace rubato
