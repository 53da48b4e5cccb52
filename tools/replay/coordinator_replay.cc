#include "tools/replay/coordinator_replay.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_record.h"
#include "server/run/journal.h"

namespace rubato {
namespace {

std::string DescribeEvent(const proto::CoordinatorEvent& event) {
  if (event.has_message()) {
    return absl::StrCat(KindOf(event.message().message()), " of peer ", event.message().peer());
  }
  return KindOf(event);
}

std::string DescribeOutcome(const proto::CoordinatorOutcome& outcome) {
  if (outcome.has_send()) {
    return absl::StrCat(KindOf(outcome.send().message()), " to peer ", outcome.send().peer());
  }
  return absl::StrCat(KindOf(outcome), " {", Brief(outcome), "}");
}

}  // namespace

absl::StatusOr<CoordinatorReplay> ReplayCoordinator(const std::string& path) {
  CoordinatorReplay replay;
  replay.part.name = "coordinator";
  replay.part.path = path;
  RUBATO_ASSIGN_OR_RETURN(RecordingReader reader, RecordingReader::Open(path));
  replay.header = reader.header();
  replay.part.bytes = reader.size();
  const proto::RecordHeader& header = replay.header;
  if (header.has_shard()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is of shard ", header.shard(), ", expected the coordinator"));
  }
  Coordinator::Begin begin{std::nullopt,
                           header.last_checkpoint(),
                           header.shared_checkpoint(),
                           header.initial(),
                           header.restore_key(),
                           header.state(),
                           absl::Nanoseconds(header.stood_still_nanos())};
  if (header.has_resume()) begin.resume = header.resume();
  Coordinator core(header.job(), header.job_digest(), header.version(), begin,
                   absl::FromUnixNanos(header.begin_nanos()));
  const auto handle = [&](const proto::CoordinatorEvent& event, std::vector<float>,
                          std::vector<proto::CoordinatorOutcome>* outcomes) {
    *outcomes = coordinator::Replay(event, &core);
    for (const proto::CoordinatorOutcome& outcome : *outcomes) {
      if (outcome.has_journal()) {
        replay.views.push_back(
            JournalLine(outcome.journal().view(), outcome.journal().reason(), absl::UnixEpoch()));
      }
      if (outcome.has_collect()) replay.summary = core.summary();
    }
    const proto::CoordinatorEvent::Checkpointed& done = event.checkpointed();
    if (event.has_checkpointed() && done.result().code() == 0) {
      replay.checkpoints.push_back({done.snapshot(), done.path()});
    }
    return absl::OkStatus();
  };
  RUBATO_RETURN_IF_ERROR((ReplayEvents<proto::CoordinatorEvent, proto::CoordinatorOutcome>(
      &reader, handle, DescribeEvent, DescribeOutcome, &replay.part)));
  replay.view = core.view();
  return replay;
}

}  // namespace rubato
