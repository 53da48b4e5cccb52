#include "server/run/journal.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Names of files and of processes may have any bytes.
TEST(JournalTest, AReasonThatIsNoUtf8CostsOnlyItsOwnBytes) {
  const std::string line = JournalLine({}, "worker 1 (\xff\xc3) leaves", absl::UnixEpoch());
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["reason"], "worker 1 (\xef\xbf\xbd\xef\xbf\xbd) leaves");
}

}  // namespace
}  // namespace rubato
