#include "common/space/modes.h"

#include <utility>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(Modes, AManifestKnowsNoStalenessAndClaimsNone) {
  EXPECT_EQ(ModeName(BoundedMode(3)), "bounded, staleness 3");
  EXPECT_EQ(ModeName(BoundedMode(0)), "bounded, staleness 0");
  for (const auto& [mode, name] :
       {std::pair(SyncMode(), "sync"), {AsyncMode(), "async"}, {BoundedMode(3), "bounded"}}) {
    const proto::Mode found = FromManifest(ToManifest(mode));
    EXPECT_EQ(found.mode(), mode.mode());
    EXPECT_EQ(ModeName(found), name);
    EXPECT_EQ(found.staleness(), 0);
  }
}

}  // namespace
}  // namespace rubato
