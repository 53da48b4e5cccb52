#include "common/base/address.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(AddressTest, ReadsNamesAndAddressesAndWritesThemBack) {
  const struct {
    const char* text;
    HostPort expected;
  } kCases[] = {
      {"127.0.0.1:29500", {"127.0.0.1", 29500}},
      {"0.0.0.0:0", {"0.0.0.0", 0}},
      {"localhost:65535", {"localhost", 65535}},
      {"node-7.my_cluster.example:1", {"node-7.my_cluster.example", 1}},
      {"1and1.example.:80", {"1and1.example.", 80}},
      {"[::1]:29500", {"::1", 29500}},
      {"[::ffff:10.0.0.1]:29500", {"::ffff:10.0.0.1", 29500}},
      {"[fe80::1%eth0]:29500", {"fe80::1%eth0", 29500}},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<HostPort> address = ParseAddress(c.text);
    RUBATO_ASSERT_OK(address) << c.text;
    EXPECT_EQ(*address, c.expected) << c.text;
    EXPECT_EQ(ToString(*address), c.text);
  }
}

TEST(AddressTest, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "found \"\", expected HOST:PORT, such as 127.0.0.1:29500"},
      {"localhost", "found \"localhost\", expected HOST:PORT, such as 127.0.0.1:29500"},
      {":29500",
       "found \":29500\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"localhost:", "found \"localhost:\", expected a port from 0 to 65535 after the host"},
      {"localhost:65536",
       "found \"localhost:65536\", expected a port from 0 to 65535 after the host"},
      {"localhost:99999999999999999999",
       "found \"localhost:99999999999999999999\", expected a port from 0 to 65535 after the host"},
      {"localhost:-1", "found \"localhost:-1\", expected a port from 0 to 65535 after the host"},
      {"localhost: 80", "found \"localhost: 80\", expected a port from 0 to 65535 after the host"},
      {"::1:29500",
       "found \"::1:29500\", expected an IPv6 address to stand in brackets, such as [::1]:29500, "
       "and in YAML in quotes"},
      {"[::1]", "found \"[::1]\", expected [IPV6]:PORT, such as [::1]:29500"},
      {"[::1", "found \"[::1\", expected [IPV6]:PORT, such as [::1]:29500"},
      {"[:::]:1",
       "found \"[:::]:1\", expected an IPv6 address in the brackets, such as [::1]:29500"},
      {"[fe80::1%]:1",
       "found \"[fe80::1%]:1\", expected an IPv6 address in the brackets, such as [::1]:29500"},
      {"[localhost]:1",
       "found \"[localhost]:1\", expected an IPv6 address in the brackets, such as [::1]:29500"},
      {"127.0.0.256:1",
       "found \"127.0.0.256:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"127.0.0.1.1:1",
       "found \"127.0.0.1.1:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"a b:1",
       "found \"a b:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"-a:1",
       "found \"-a:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"a..b:1",
       "found \"a..b:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
      {"http://a:1",
       "found \"http://a:1\", expected a host's name or address before the port, such as "
       "127.0.0.1:29500"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(ParseAddress(c.text), IsError(absl::StatusCode::kInvalidArgument, c.message))
        << c.text;
  }
}

TEST(AddressTest, SeveralOfOneHostAreOneTarget) {
  const struct {
    const char* text;
    const char* target;
  } kCases[] = {
      {"node-7:29500", "node-7:29500"},
      {"[::1]:29500", "[::1]:29500"},
      {"10.0.0.7:29500,10.1.0.7:29501", "ipv4:10.0.0.7:29500,10.1.0.7:29501"},
      {"10.0.0.7:1, 10.1.0.7:2, 10.2.0.7:3", "ipv4:10.0.0.7:1,10.1.0.7:2,10.2.0.7:3"},
      {"[fd00::1]:29500,[fd01::1]:29500", "ipv6:[fd00::1]:29500,[fd01::1]:29500"},
  };
  for (const auto& c : kCases) {
    const auto addresses = ParseAddresses(c.text);
    ASSERT_THAT(addresses, IsOk()) << c.text;
    EXPECT_EQ(ChannelTarget(*addresses), c.target);
  }
  EXPECT_THAT(ParseAddresses("10.0.0.7:1,"),
              IsError(absl::StatusCode::kInvalidArgument,
                      "found \"\", expected HOST:PORT, such as 127.0.0.1:29500"));
  for (const char* mixed : {"10.0.0.7:1,[::1]:1", "10.0.0.7:1,node-7:1", "node-7:1,node-8:1"}) {
    EXPECT_THAT(
        ParseAddresses(mixed),
        IsError(absl::StatusCode::kInvalidArgument,
                absl::StrCat("found \"", mixed,
                             "\", expected several addresses to be all IPv4 or all IPv6; of "
                             "names one, which may stand for several addresses")));
  }
}

TEST(ReachableAddressesTest, HaveAPort) {
  EXPECT_THAT(ParseReachableAddresses("10.0.0.7:1,10.0.0.8:65535"), IsOk());
  EXPECT_THAT(ParseReachableAddresses("10.0.0.7:1,10.0.0.8:0"),
              IsError(absl::StatusCode::kInvalidArgument,
                      "found \"10.0.0.7:1,10.0.0.8:0\", expected a port that others can connect "
                      "to"));
  EXPECT_THAT(ParseReachableAddresses("10.0.0.7"),
              IsError(absl::StatusCode::kInvalidArgument,
                      "found \"10.0.0.7\", expected HOST:PORT, such as 127.0.0.1:29500"));
}

TEST(ReachableAddressesTest, AreNoWildcards) {
  for (const char* wildcard : {"0.0.0.0", "[::]", "[0:0::0]", "[::ffff:0.0.0.0]"}) {
    const std::string text = absl::StrCat(wildcard, ":29500");
    EXPECT_THAT(ParseReachableAddresses(text),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat("found \"", text,
                                     "\", expected a name or address that others can connect to")));
  }
  for (const char* one : {"0.0.0.1:1", "[::1]:1", "[::ffff:10.0.0.0]:1", "any:1"}) {
    EXPECT_THAT(ParseReachableAddresses(one), IsOk()) << one;
  }
}

TEST(AddressTest, LoopbackIsReachedByItsOwnHostAlone) {
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", "LocalHost"}) {
    EXPECT_TRUE(IsLoopback({own, 1})) << own;
  }
  for (const char* other : {"128.0.0.1", "10.127.0.1", "::", "::2", "fe80::1%lo", "127.example"}) {
    EXPECT_FALSE(IsLoopback({other, 1})) << other;
  }
}

TEST(AddressTest, TheSameHostsAtAnyPort) {
  const auto at_any_port = [](const char* text) { return AtAnyPort(*ParseAddresses(text)); };
  EXPECT_EQ(at_any_port("node-7:29500"), "node-7:0");
  EXPECT_EQ(at_any_port("[fd00::1]:29500,[fd01::1]:1"), "[fd00::1]:0,[fd01::1]:0");
}

}  // namespace
}  // namespace rubato
