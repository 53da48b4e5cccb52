#include "tools/replay/shard_replay.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_protocol.h"
#include "server/shard/shard_record.h"

namespace rubato {
namespace {

// The replay's own, to read the parameters.
constexpr uint64_t kReader = ~uint64_t{0};

absl::StatusOr<Frame> FrameOf(const std::string& header) {
  return DecodeFrame(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(header.data()), header.size()));
}

std::string Who(const Frame& frame) {
  return frame.worker == kObserver ? "an observer" : absl::StrCat("worker ", frame.worker);
}

std::string DescribeFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kPush:
      return absl::StrFormat("push of %s, block %d, clock %d", Who(frame), frame.block,
                             frame.clock);
    case FrameKind::kPull:
    case FrameKind::kRetire:
      return absl::StrFormat("%s of %s, blocks %d to %d, clock %d",
                             frame.kind == FrameKind::kPull ? "pull" : "retirement", Who(frame),
                             frame.blocks().begin, frame.blocks().end, frame.clock);
    case FrameKind::kRestore:
      return absl::StrFormat("restored block %d, slot %d", frame.block, frame.slot);
    case FrameKind::kParameters:
      return absl::StrFormat("block %d at version %d", frame.block, frame.version);
  }
  return "frame";
}

std::string DescribeEvent(const proto::ShardEvent& event) {
  if (event.has_message()) return absl::StrCat("message ", KindOf(event.message()));
  if (event.has_gone()) return absl::StrCat("stream ", event.stream(), " gone");
  const absl::StatusOr<Frame> frame = FrameOf(event.frame());
  return frame.ok() ? DescribeFrame(*frame) : "frame";
}

std::string DescribeOutcome(const proto::ShardOutcome& outcome) {
  if (outcome.has_update()) {
    return absl::StrFormat("block %d at version %d with bits %08x", outcome.update().block(),
                           outcome.update().version(), outcome.update().bits());
  }
  if (outcome.has_sent()) {
    const absl::StatusOr<Frame> frame = FrameOf(outcome.sent().frame());
    return absl::StrCat(frame.ok() ? DescribeFrame(*frame) : "frame", " to stream ",
                        outcome.sent().stream());
  }
  if (outcome.has_part()) {
    return absl::StrFormat("part of snapshot %d with bits %s", outcome.part().snapshot(),
                           Brief(outcome.part()));
  }
  if (outcome.has_read()) return absl::StrCat("is to read ", outcome.read());
  if (outcome.has_refused()) return absl::StrCat("refused: ", outcome.refused().message());
  return absl::StrCat("says ", KindOf(outcome.said()), " {", Brief(outcome.said()), "}");
}

absl::Status ReadParameters(ShardProtocol* shard, Range blocks) {
  if (blocks.empty()) return absl::OkStatus();
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.worker = kObserver;
  pull.set_blocks(blocks);
  return shard->Handle(shard_event::Arrival{kReader, pull, {}});
}

}  // namespace

absl::StatusOr<ShardReplay> ReplayShard(const std::string& path, int shard,
                                        std::optional<KeptShard>* kept) {
  ShardReplay replay;
  replay.part.name = absl::StrCat("shard ", shard);
  replay.part.path = path;
  RUBATO_ASSIGN_OR_RETURN(RecordingReader reader, RecordingReader::Open(path));
  replay.header = reader.header();
  replay.part.bytes = reader.size();
  if (!replay.header.has_shard() || replay.header.shard() != shard) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is of %s, expected shard %d", path,
        replay.header.has_shard() ? absl::StrCat("shard ", replay.header.shard()) : "a coordinator",
        shard));
  }
  std::vector<proto::ShardOutcome>* outcomes = nullptr;  // of the event at hand
  const auto sink = [&](const ShardOutcome& outcome) {
    if (outcomes != nullptr) outcomes->push_back(ToProto(outcome));
    replay.updates += std::holds_alternative<shard_outcome::Updated>(outcome);
    if (const auto* part = std::get_if<shard_outcome::WritePart>(&outcome)) {
      for (const auto& [block, copy] : part->blocks) {
        for (size_t vector = 0; vector < copy.values.size(); ++vector) {
          replay.snapshots[part->snapshot][{block, static_cast<uint32_t>(vector)}] =
              BitsOf(copy.values[vector].values());
        }
      }
    }
    const auto* sent = std::get_if<shard_outcome::Sent>(&outcome);
    if (sent == nullptr) return;
    const int64_t block = static_cast<int64_t>(sent->frame.block);
    if (sent->frame.snapshot != 0) {
      replay.snapshots[sent->frame.snapshot][{block, sent->frame.slot}] =
          BitsOf(sent->payload.values());
    } else if (sent->stream == kReader) {
      const absl::Span<const float> values = sent->payload.values();
      replay.parameters[block].assign(values.begin(), values.end());
    }
  };
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> floats,
                          FloatValues::Create(replay.header.job(), shard));
  std::optional<KeptShard> begin = std::exchange(*kept, std::nullopt);
  if (!replay.header.has_kept()) begin.reset();  // of a process that came later
  if (replay.header.has_kept() &&
      (!begin.has_value() ||
       begin->state.SerializeAsString() != replay.header.kept().SerializeAsString())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " goes on with values that no recording before it ends with"));
  }
  ShardProtocol protocol(std::move(floats), sink, BuiltInPolicy, std::move(begin));
  const auto handle = [&](const proto::ShardEvent& event, std::vector<float> values,
                          std::vector<proto::ShardOutcome>* into) -> absl::Status {
    outcomes = into;
    if (event.message().has_view()) replay.term = event.message().view().term();
    return Replay(event, values, &protocol);
  };
  RUBATO_RETURN_IF_ERROR((ReplayEvents<proto::ShardEvent, proto::ShardOutcome>(
      &reader, handle, DescribeEvent, DescribeOutcome, &replay.part)));
  outcomes = nullptr;
  if (protocol.core() != nullptr) {
    replay.blocks = protocol.core()->blocks();
    RUBATO_RETURN_IF_ERROR(ReadParameters(&protocol, replay.blocks));
  }
  *kept = protocol.TakeKept();
  return replay;
}

}  // namespace rubato
