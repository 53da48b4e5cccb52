#include "common/wire/look_up.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

std::vector<HostPort> Hosts(int count) {
  std::vector<HostPort> hosts(count);
  for (int i = 0; i < count; ++i) hosts[i].host = std::to_string(i);
  return hosts;
}

// One after the other, none would come back: each waits until all are asked.
TEST(LookUpAllTest, NamesAreLookedUpSideBySide) {
  constexpr int kNames = 8;
  absl::BlockingCounter asked(kNames);
  const auto found =
      LookUpAll(Hosts(kNames), [&](const HostPort& host) -> absl::StatusOr<std::vector<Place>> {
        asked.DecrementCount();
        if (host.host == "0") asked.Wait();  // for all
        return absl::UnavailableError(host.host);
      });
  ASSERT_EQ(found.size(), kNames);
  for (int i = 0; i < kNames; ++i) EXPECT_EQ(found[i].status().message(), std::to_string(i));
}

TEST(LookUpAllTest, AnyNumberOfNamesIsLookedUp) {
  for (const int names : {0, 1, 500}) {
    const auto found = LookUpAll(
        Hosts(names), [](const HostPort& host) { return std::vector<Place>(host.host.size()); });
    ASSERT_EQ(found.size(), names);
    for (int i = 0; i < names; ++i) EXPECT_EQ(found[i]->size(), std::to_string(i).size());
  }
}

TEST(LookUpTest, AnAddressStandsForItself) {
  HostPort host;
  host.host = "127.0.0.1";
  host.port = 80;
  const auto found = LookUp(host);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->size(), 1);
}

// 192.0.2.0/24 is for documentation (RFC 5737), and `.invalid` is no name's end (RFC 6761).
TEST(LookUpTest, TellsThisMachineFromOthers) {
  const HostPort own{"127.0.0.1", 1}, other{"192.0.2.1", 1}, nobody{"nobody.invalid", 1};
  EXPECT_TRUE(*AreOfThisMachine({own}));
  EXPECT_FALSE(*AreOfThisMachine({other}));
  EXPECT_FALSE(*AreOfThisMachine({own, other}));
  const absl::StatusOr<bool> named = AreOfThisMachine({nobody});  // unless no name server answers
  EXPECT_TRUE(named.ok() ? !*named : absl::IsUnavailable(named.status()));
}

}  // namespace
}  // namespace rubato
