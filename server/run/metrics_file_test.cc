#include "server/run/metrics_file.h"

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Every number is another, so that none stands for one beside it.
TEST(SummaryJsonTest, TellsEachFigureByItsName) {
  Summary summary;
  summary.steps = 1;
  summary.samples = 2;
  summary.seconds = 3;
  summary.samples_per_second = 4;
  summary.test_loss = 5;
  summary.test_accuracy = 0.6;
  summary.test_others = {{"f1", 0.7}};
  summary.validation_loss = 8;
  summary.validation_accuracy = 0.9;
  summary.stopped = "asked to";
  summary.diverged = "the loss is nan";
  summary.skipped = 10;
  summary.duplicates = 11;
  proto::ShardReport::Block& block = summary.blocks.emplace_back();
  block.set_block(12);
  block.set_version(13);
  block.set_samples(14);
  block.set_staleness_sum(15);
  block.set_staleness_max(16);
  summary.staleness_counts = {17, 18};
  summary.work = {/*given=*/19, /*applied=*/20, /*left_out=*/21, /*partial=*/22, /*lost=*/23};
  summary.views = 24;
  summary.switches = 25;
  summary.workers_lost = 26;
  summary.workers_left = 27;
  summary.servers_lost = 28;
  summary.samples_rolled_back = 29;
  summary.residuals_lost = 30;
  summary.pushed_bytes = 31;
  summary.pulled_bytes = 32;
  summary.overlap = {/*waiting_seconds=*/33, /*communicating_seconds=*/44, /*told=*/3};
  summary.workers = {{/*computing=*/34, /*sending=*/35, /*waiting=*/36}};
  EXPECT_EQ(ParseJson(ToJson(summary, "abc")), ParseJson(R"({
    "steps": 1, "samples": 2, "seconds": 3.0, "samples_per_second": 4.0,
    "test_loss": 5.0, "test_accuracy": 0.6, "test_f1": 0.7,
    "validation_loss": 8.0, "validation_accuracy": 0.9,
    "stopped": "asked to", "diverged": "the loss is nan", "skipped": 10, "duplicates": 11,
    "blocks": [{"block": 12, "updates": 13, "samples": 14, "staleness_sum": 15,
                "staleness_max": 16}],
    "staleness_counts": [17, 18],
    "contributions": {"given": 19, "applied": 20, "left_out": 21, "partial": 22, "lost": 23},
    "views": 24, "switches": 25, "workers_lost": 26, "workers_left": 27, "servers_lost": 28,
    "samples_rolled_back": 29, "residuals_lost": 30,
    "payload_bytes": {"pushed": 31, "pulled": 32},
    "waiting_seconds": 11.0, "communication_hidden": 0.25,
    "workers": [{"computing_seconds": 34.0, "sending_seconds": 35.0, "waiting_seconds": 36.0}],
    "digest": "abc"})"));
}

TEST(SummaryJsonTest, WhatIsNotKnownIsLeftOut) {
  const nlohmann::json json = ParseJson(ToJson(Summary(), ""));
  EXPECT_TRUE(json["test_loss"].is_null());
  for (const char* name : {"test_accuracy", "validation_loss", "validation_accuracy", "stopped",
                           "diverged", "residuals_lost", "waiting_seconds", "workers",
                           "communication_hidden", "staleness_counts"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
}

}  // namespace
}  // namespace rubato
