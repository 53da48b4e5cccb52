#include "common/wire/authentication.h"

#include <string>
#include <vector>

#include "common/base/hmac.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr char kMethod[] = "/rubato.Data/Stream";

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(1000 + seconds); }

class AuthenticationTest : public ::testing::Test {
 protected:
  Caller CallerOf(Role role) const { return Caller(*secret_.Of(role)); }
  // One who has been welcomed.
  Caller Welcomed(Role role, double seconds = 0) {
    Caller caller = CallerOf(role);
    const auto welcome = gate_.Welcome(caller.Hello(), At(seconds));
    RUBATO_EXPECT_OK(welcome);
    RUBATO_EXPECT_OK(caller.OnWelcome(*welcome, At(seconds)));
    return caller;
  }

  const JobKey secret_ = JobKey::DrawSecret();
  Gate gate_{secret_};
};

TEST_F(AuthenticationTest, WhoHoldsTheKeyOfARoleHasThatRole) {
  for (const Role role : {Role::kObserver, Role::kOperator, Role::kWorker, Role::kServer}) {
    Caller caller = Welcomed(role);
    EXPECT_TRUE(caller.is_welcome(At(1)));
    for (int call = 0; call < 100; ++call) {
      const auto found = gate_.Check(kMethod, caller.Show(kMethod), At(call));
      RUBATO_ASSERT_OK(found);
      EXPECT_EQ(*found, role);
    }
  }
}

TEST_F(AuthenticationTest, AServerWithoutTheKeyIsFoundOut) {
  Gate other(JobKey::DrawSecret());
  Caller caller = CallerOf(Role::kWorker);
  EXPECT_THAT(caller.OnWelcome(*other.Welcome(caller.Hello(), At(0)), At(0)),
              IsError(absl::StatusCode::kUnauthenticated, HasSubstr("does not hold")));
  EXPECT_FALSE(caller.is_welcome(At(0)));
  // Nor does one that has heard what was said to others, or sends back what it is told.
  const std::string heard = *gate_.Welcome(CallerOf(Role::kWorker).Hello(), At(0));
  const std::string hello = caller.Hello();
  EXPECT_FALSE(caller.OnWelcome(heard, At(0)).ok());
  EXPECT_FALSE(caller.OnWelcome(hello, At(0)).ok());
  EXPECT_FALSE(caller.OnWelcome("", At(0)).ok());
  // Whose proof has one bit of another.
  const std::string welcome = *gate_.Welcome(hello, At(0));
  for (size_t at = 0; at < welcome.size(); ++at) {
    std::string altered = welcome;
    altered[at] ^= 1;
    EXPECT_FALSE(caller.OnWelcome(altered, At(0)).ok()) << at;
  }
  RUBATO_EXPECT_OK(caller.OnWelcome(welcome, At(0)));
  EXPECT_FALSE(caller.OnWelcome(welcome, At(0)).ok()) << "a welcome counts once";
}

TEST_F(AuthenticationTest, WhoShowsNothingOrAnythingElseIsRefused) {
  EXPECT_THAT(gate_.Check(kMethod, "", At(0)),
              IsError(absl::StatusCode::kUnauthenticated, HasSubstr("RUBATO_KEY")));
  Caller caller = Welcomed(Role::kWorker);
  const std::string shown = caller.Show(kMethod);
  for (size_t size = 0; size < shown.size(); ++size) {
    EXPECT_FALSE(gate_.Check(kMethod, shown.substr(0, size), At(0)).ok()) << size;
  }
  EXPECT_FALSE(gate_.Check(kMethod, shown + "x", At(0)).ok());
  for (size_t bit = 0; bit < 8 * shown.size(); ++bit) {
    std::string altered = shown;
    altered[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(gate_.Check(kMethod, altered, At(0)).ok()) << bit;
  }
  EXPECT_FALSE(gate_.Check("/rubato.Coordination/Join", shown, At(0)).ok());
  EXPECT_EQ(gate_.sessions(), 0u) << "nothing is kept of who shows no key";
  RUBATO_EXPECT_OK(gate_.Check(kMethod, shown, At(0)));
}

TEST_F(AuthenticationTest, ASessionIsOfOneServer) {
  Gate again(secret_);  // the same server, started again
  Caller caller = Welcomed(Role::kWorker);
  EXPECT_THAT(again.Check(kMethod, caller.Show(kMethod), At(0)),
              IsError(absl::StatusCode::kUnauthenticated, HasSubstr("say hello")));
}

TEST_F(AuthenticationTest, WhoKnowsTheSessionAloneCannotCall) {
  // All that travels but the key: an eavesdropper has it.
  Caller eavesdropper(*JobKey::DrawSecret().Of(Role::kWorker));
  Caller caller = CallerOf(Role::kWorker);
  const std::string welcome = *gate_.Welcome(caller.Hello(), At(0));
  EXPECT_FALSE(eavesdropper.OnWelcome(welcome, At(0)).ok());
  const std::string session = welcome.substr(0, welcome.size() - kHmacBytes);
  const std::string counter = std::string("\1\0\0\0\0\0\0\0", 8);
  for (const std::string& mac : {std::string(kHmacBytes, '\0'), welcome.substr(session.size()),
                                 session.substr(session.size() - kHmacBytes)}) {
    EXPECT_FALSE(gate_.Check(kMethod, session + counter + mac, At(0)).ok());
  }
}

TEST_F(AuthenticationTest, AnotherRolesKeyDoesNotOpenARole) {
  // Says that it is a server, and holds the worker's key.
  Caller worker = CallerOf(Role::kWorker);
  std::string hello = worker.Hello();
  hello[1] = static_cast<char>(Role::kServer);
  EXPECT_FALSE(worker.OnWelcome(*gate_.Welcome(hello, At(0)), At(0)).ok());
  EXPECT_THAT(gate_.Welcome("", At(0)), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  hello[1] = 9;
  EXPECT_THAT(gate_.Welcome(hello, At(0)),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no such role")));
  hello[0] = 2;
  EXPECT_THAT(gate_.Welcome(hello, At(0)),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no hello")));
}

TEST_F(AuthenticationTest, ACallCountsOnce) {
  Caller caller = Welcomed(Role::kWorker);
  std::vector<std::string> shown;
  for (int i = 0; i < 200; ++i) shown.push_back(caller.Show(kMethod));
  // Calls that began together come in any order.
  for (const int i : {5, 3, 4, 0, 40, 2}) RUBATO_EXPECT_OK(gate_.Check(kMethod, shown[i], At(0)));
  for (const int i : {5, 3, 4, 0, 40, 2}) {
    EXPECT_THAT(gate_.Check(kMethod, shown[i], At(0)),
                IsError(absl::StatusCode::kUnauthenticated, HasSubstr("before")));
  }
  RUBATO_EXPECT_OK(gate_.Check(kMethod, shown[199], At(0)));
  EXPECT_FALSE(gate_.Check(kMethod, shown[1], At(0)).ok()) << "nobody remembers whether it was";
  RUBATO_EXPECT_OK(gate_.Check(kMethod, shown[150], At(0)));
  EXPECT_FALSE(gate_.Check(kMethod, shown[150], At(0)).ok());
  EXPECT_EQ(gate_.sessions(), 1u);
}

TEST_F(AuthenticationTest, ASessionEnds) {
  Caller caller = Welcomed(Role::kWorker);
  const double time = absl::ToDoubleSeconds(Gate::kSessionTime);
  const std::string shown = caller.Show(kMethod);
  RUBATO_EXPECT_OK(gate_.Check(kMethod, shown, At(time - 1)));
  EXPECT_FALSE(caller.is_welcome(At(time - 1))) << "the caller says hello in good time";
  EXPECT_THAT(gate_.Check(kMethod, caller.Show(kMethod), At(time + 1)),
              IsError(absl::StatusCode::kUnauthenticated, HasSubstr("is over")));
  // It is forgotten when nobody could call by it again.
  Caller next = Welcomed(Role::kWorker, 2 * time);
  RUBATO_EXPECT_OK(gate_.Check(kMethod, next.Show(kMethod), At(2 * time)));
  EXPECT_EQ(gate_.sessions(), 1u);
  EXPECT_FALSE(gate_.Check(kMethod, shown, At(2 * time)).ok());
}

}  // namespace
}  // namespace rubato
