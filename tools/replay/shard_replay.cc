#include "tools/replay/shard_replay.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/placement.h"
#include "common/wire/frame.h"
#include "common/wire/payload.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_events.h"
#include "server/shard/shard_observer.h"

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
                             frame.block, frame.block + frame.block_count, frame.clock);
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
  if (outcome.has_refused()) return absl::StrCat("refused: ", outcome.refused().message());
  return absl::StrCat("says ", KindOf(outcome.said()), " {", Brief(outcome.said()), "}");
}

// What comes of the event at hand.
class Outcomes : public ShardObserver {
 public:
  void OnEvent(const proto::ShardEvent&, absl::Span<const float>) override {}
  void OnOutcome(const proto::ShardOutcome& outcome) override {
    if (into_ != nullptr) into_->push_back(outcome);
  }

  // Null: they are of no interest.
  void set_into(std::vector<proto::ShardOutcome>* into) { into_ = into; }

 private:
  std::vector<proto::ShardOutcome>* into_ = nullptr;
};

absl::Status ReadParameters(ShardEngine* engine, Range blocks) {
  if (blocks.empty()) return absl::OkStatus();
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.worker = kObserver;
  pull.block = static_cast<uint64_t>(blocks.begin);
  pull.block_count = static_cast<uint32_t>(blocks.size());
  return engine->OnFrame(kReader, pull, {});
}

}  // namespace

absl::StatusOr<ShardReplay> ReplayShard(const std::string& path, int shard) {
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
  Outcomes outcomes;
  const auto send = [&replay](uint64_t stream, const Frame& frame, const Payload& payload) {
    const int64_t block = static_cast<int64_t>(frame.block);
    if (frame.snapshot != 0) {
      replay.snapshots[frame.snapshot][{block, frame.slot}] = BitsOf(payload.values());
    } else if (stream == kReader) {
      replay.parameters[block].assign(payload.values().begin(), payload.values().end());
    }
  };
  RUBATO_ASSIGN_OR_RETURN(
      std::unique_ptr<ShardEngine> engine,
      ShardEngine::Create(
          replay.header.job(), shard, send, [](const proto::PeerMessage&) {}, &outcomes));
  bool has_view = false;
  const auto handle = [&](const proto::ShardEvent& event, std::vector<float> values,
                          std::vector<proto::ShardOutcome>* into) -> absl::Status {
    outcomes.set_into(into);
    if (event.has_message()) {
      const proto::CoordinatorMessage& message = event.message();
      if (!has_view && message.has_view()) {
        RUBATO_ASSIGN_OR_RETURN(const Placement placement,
                                Placement::Of(replay.header.job(), message.view()));
        replay.blocks = placement.Blocks(shard);
        has_view = true;
      }
      if (!has_view) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, " is damaged: it does not begin with a view"));
      }
      engine->OnMessage(message);
    } else if (event.has_frame()) {
      RUBATO_ASSIGN_OR_RETURN(const Frame frame, FrameOf(event.frame()));
      const auto floats = std::make_shared<const std::vector<float>>(std::move(values));
      // Refused or not is an outcome.
      engine->OnFrame(event.stream(), frame, Payload{floats, *floats}).IgnoreError();
    } else {
      engine->OnStreamGone(event.stream());
    }
    for (const proto::ShardOutcome& outcome : *into) replay.updates += outcome.has_update();
    return absl::OkStatus();
  };
  RUBATO_RETURN_IF_ERROR((ReplayEvents<proto::ShardEvent, proto::ShardOutcome>(
      &reader, handle, DescribeEvent, DescribeOutcome, &replay.part)));
  outcomes.set_into(nullptr);
  if (has_view) RUBATO_RETURN_IF_ERROR(ReadParameters(engine.get(), replay.blocks));
  return replay;
}

}  // namespace rubato
