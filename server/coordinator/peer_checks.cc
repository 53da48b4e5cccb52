#include "server/coordinator/peer_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/max_count.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/consistency/ledger.h"
#include "common/space/flat_space.h"
#include "common/space/sum_of_squares.h"
#include "server/coordinator/value_pieces.h"
#include "server/run/figures.h"

namespace rubato {
namespace {

// Of samples, which are multiplied by epochs.
constexpr int64_t kMostSamples = int64_t{1} << 40;
// Steps that one worker may tell of while another has not told of an older one.
constexpr int64_t kMostAhead = 1 << 20;
constexpr size_t kMostText = 4096;  // bytes
constexpr size_t kMostName = 256;
constexpr int64_t kMostSlots = 8;  // of an optimizer
constexpr double kMostSeconds = 1e9;
constexpr int64_t kMostWeight = 4294967295;  // Frame::weight

absl::Status Found(absl::string_view field, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: found %s, expected %s", field, found, expected));
}

absl::Status In(absl::string_view field, int64_t found, int64_t least, int64_t most) {
  if (least <= found && found <= most) return absl::OkStatus();
  return Found(field, absl::StrCat(found), absl::StrFormat("%d to %d", least, most));
}

absl::Status Count(absl::string_view field, int64_t found) {
  return In(field, found, 0, kMaxCount);
}

absl::Status Real(absl::string_view field, double found, double least, double most) {
  if (least <= found && found <= most) return absl::OkStatus();
  return Found(field, absl::StrCat(found), absl::StrFormat("%g to %g", least, most));
}

absl::Status Short(absl::string_view field, const std::string& found, size_t most = kMostName) {
  if (found.size() <= most) return absl::OkStatus();
  return Found(field, absl::StrCat(found.size(), " bytes"), absl::StrCat("at most ", most));
}

absl::Status Size(absl::string_view field, int64_t found, int64_t expected) {
  if (found == expected) return absl::OkStatus();
  return Found(field, absl::StrCat(found, " entries"), absl::StrCat(expected));
}

template <typename List>
absl::Status Counts(absl::string_view field, const List& found) {
  for (const int64_t count : found) RUBATO_RETURN_IF_ERROR(Count(field, count));
  return absl::OkStatus();
}

absl::Status Runs(absl::string_view field,
                  const google::protobuf::RepeatedPtrField<proto::UnitRun>& found) {
  for (const proto::UnitRun& run : found) {
    RUBATO_RETURN_IF_ERROR(Count(field, run.end()));
    RUBATO_RETURN_IF_ERROR(In(field, run.begin(), 0, run.end()));
  }
  return absl::OkStatus();
}

// Samples, or shares of them, of so many samples.
absl::Status Shares(absl::string_view field, double found, int64_t samples) {
  return Real(field, found, 0, static_cast<double>(samples) + 0.5);  // sums round
}

absl::Status Check(const proto::Progress& progress, const PeerTerms& terms) {
  const int64_t parts = progress.loss_sum_size();
  RUBATO_RETURN_IF_ERROR(In("progress.loss_sum", parts, 0, terms.leaves));
  RUBATO_RETURN_IF_ERROR(In("progress.first_leaf", progress.first_leaf(), 0, terms.leaves - parts));
  RUBATO_RETURN_IF_ERROR(Size("progress.samples", progress.samples_size(), parts));
  if (progress.correct_size() > 0) {
    RUBATO_RETURN_IF_ERROR(Size("progress.correct", progress.correct_size(), parts));
  }
  if (progress.judged_size() > 0) {
    RUBATO_RETURN_IF_ERROR(Size("progress.judged", progress.judged_size(), parts));
  }
  if (progress.told_size() > 0) {
    RUBATO_RETURN_IF_ERROR(Size("progress.told", progress.told_size(), parts));
  }
  for (const int64_t samples : progress.samples()) {
    RUBATO_RETURN_IF_ERROR(In("progress.samples", samples, 0, terms.micro_batch));
  }
  for (const double correct : progress.correct()) {
    RUBATO_RETURN_IF_ERROR(Shares("progress.correct", correct, terms.micro_batch));
  }
  for (const double judged : progress.judged()) {
    RUBATO_RETURN_IF_ERROR(Shares("progress.judged", judged, terms.micro_batch));
  }
  for (const double told : progress.told()) {
    RUBATO_RETURN_IF_ERROR(
        Shares("progress.told", told, terms.is_script ? kMostWeight : terms.micro_batch));
  }
  const int64_t last =
      terms.in_step ? std::min(terms.until - 1, terms.done + kMostAhead) : terms.until - 1;
  RUBATO_RETURN_IF_ERROR(In("progress.unit", progress.unit(), terms.origin, last));
  RUBATO_RETURN_IF_ERROR(Count("progress.clock", progress.clock()));
  RUBATO_RETURN_IF_ERROR(Real("progress.staleness", progress.staleness(), 0, kMaxCount));
  RUBATO_RETURN_IF_ERROR(Count("progress.pushed_bytes", progress.pushed_bytes()));
  RUBATO_RETURN_IF_ERROR(Count("progress.pulled_bytes", progress.pulled_bytes()));
  RUBATO_RETURN_IF_ERROR(
      Real("progress.computing_seconds", progress.computing_seconds(), 0, kMostSeconds));
  // Of a clock that may step back.
  RUBATO_RETURN_IF_ERROR(
      Real("progress.waiting_seconds", progress.waiting_seconds(), -kMostSeconds, kMostSeconds));
  return Real("progress.communicating_seconds", progress.communicating_seconds(), -kMostSeconds,
              kMostSeconds);
}

// What has a number that rises was, or is.
absl::Status Begun(absl::string_view field, uint32_t found, uint32_t last) {
  if (found <= last) return absl::OkStatus();
  return Found(field, absl::StrCat(found), absl::StrCat("at most ", last));
}

absl::Status Check(const proto::Idle& idle, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Begun("idle.view", idle.view(), terms.view));
  return Count("idle.applied", idle.applied());
}

absl::Status Check(const proto::EvaluationResult& evaluation, const PeerTerms& terms) {
  if (evaluation.is_final() && !terms.tests_last) {
    return Found("evaluation.is_final", "a final test", "none: it has not been asked for one");
  }
  RUBATO_RETURN_IF_ERROR(Count("evaluation.unit", evaluation.unit()));
  RUBATO_RETURN_IF_ERROR(Count("evaluation.version", evaluation.version()));
  RUBATO_RETURN_IF_ERROR(In("evaluation.samples", evaluation.samples(), 0, kMostSamples));
  RUBATO_RETURN_IF_ERROR(Shares("evaluation.correct", evaluation.correct(), evaluation.samples()));
  RUBATO_RETURN_IF_ERROR(
      In("evaluation.others", evaluation.others_size(), 0, terms.is_script ? kMostOthers : 0));
  for (const auto& other : evaluation.others()) {
    if (IsFreeName(other.name())) continue;
    return Found("evaluation.others", PeerText(other.name().substr(0, kMostName)),
                 "1 to 64 letters, digits and underscores, and no name that a line of metrics has");
  }
  return Shares("evaluation.judged", evaluation.judged(), evaluation.samples());
}

absl::Status Check(const proto::InitialValues& initial) {
  RUBATO_RETURN_IF_ERROR(Count("initial_values.begin", initial.begin()));
  return In("initial_values.values", static_cast<int64_t>(initial.values().size()), 0,
            kValuesOfPiece * static_cast<int64_t>(sizeof(float)));
}

absl::Status Check(const proto::ShardClosed& closed, const PeerTerms& terms) {
  const int64_t most = terms.in_step ? terms.until : kMaxCount;
  RUBATO_RETURN_IF_ERROR(Begun("shard_closed.view", closed.view(), terms.view));
  RUBATO_RETURN_IF_ERROR(
      Size("shard_closed.lowest_version", closed.has_lowest_version(), !terms.blocks.empty()));
  RUBATO_RETURN_IF_ERROR(In("shard_closed.highest_version", closed.highest_version(), 0, most));
  RUBATO_RETURN_IF_ERROR(
      In("shard_closed.lowest_version", closed.lowest_version(), 0, closed.highest_version()));
  for (const proto::ShardClosed::Clock& clock : closed.clocks()) {
    RUBATO_RETURN_IF_ERROR(Count("shard_closed.clocks.rank", clock.rank()));
    RUBATO_RETURN_IF_ERROR(Count("shard_closed.clocks.applied", clock.applied()));
  }
  RUBATO_RETURN_IF_ERROR(Count("shard_closed.units_below", closed.units_below()));
  RUBATO_RETURN_IF_ERROR(Runs("shard_closed.unit_runs", closed.unit_runs()));
  return Counts("shard_closed.units_partial", closed.units_partial());
}

absl::Status Check(const proto::SnapshotCopied& copied, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Begun("snapshot_copied.id", copied.id(), terms.snapshot));
  RUBATO_RETURN_IF_ERROR(Size("snapshot_copied.blocks", copied.blocks_size(), terms.blocks.size()));
  int64_t expected = terms.blocks.begin;
  for (const proto::BlockState& block : copied.blocks()) {
    RUBATO_RETURN_IF_ERROR(In("snapshot_copied.blocks.block", block.block(), expected, expected));
    ++expected;
    RUBATO_RETURN_IF_ERROR(Count("snapshot_copied.blocks.version", block.version()));
    RUBATO_RETURN_IF_ERROR(Count("snapshot_copied.blocks.samples", block.samples()));
    RUBATO_RETURN_IF_ERROR(Count("snapshot_copied.blocks.units_below", block.units_below()));
    RUBATO_RETURN_IF_ERROR(Runs("snapshot_copied.blocks.unit_runs", block.unit_runs()));
    RUBATO_RETURN_IF_ERROR(Size("snapshot_copied.blocks.units_above", block.units_above_size(), 0));
    RUBATO_RETURN_IF_ERROR(Size("snapshot_copied.blocks.checksums", block.checksums_size(), 0));
  }
  return absl::OkStatus();
}

absl::Status Check(const proto::SnapshotMissed& missed, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Begun("snapshot_missed.id", missed.id(), terms.snapshot));
  return Count("snapshot_missed.version", missed.version());
}

absl::Status Check(const proto::PartWritten& part, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Begun("part_written.id", part.id(), terms.snapshot));
  RUBATO_RETURN_IF_ERROR(Short("part_written.reason", part.reason(), kMostText));
  if (part.state() != proto::PartWritten::STATE_WRITTEN) {
    return Size("part_written.checksums", part.checksums_size(), 0);
  }
  RUBATO_RETURN_IF_ERROR(In("part_written.checksums", part.checksums_size(), terms.blocks.size(),
                            (1 + kMostSlots) * terms.blocks.size()));
  if (terms.blocks.empty() || part.checksums_size() % terms.blocks.size() == 0) {
    return absl::OkStatus();
  }
  return Found("part_written.checksums", absl::StrCat(part.checksums_size(), " entries"),
               absl::StrCat("as many for each of ", terms.blocks.size(), " blocks"));
}

absl::Status Check(const proto::Question& question, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(In("question.unit", question.unit(), terms.origin, terms.until));
  const proto::Question::Measured& measured = question.measured();
  RUBATO_RETURN_IF_ERROR(
      In("question.measured.non_finite", measured.non_finite(), 0, terms.values - 1));
  const int64_t weight = terms.is_script ? kMostWeight : terms.micro_batch;  // of a leaf
  RUBATO_RETURN_IF_ERROR(
      In("question.measured.weight", measured.weight(), 0, weight * terms.leaves));
  const int64_t leaves = terms.values / SumOfSquares::kLeafValues + 1;
  // What is left of the tree: two of each height for each gap that is not finite.
  RUBATO_RETURN_IF_ERROR(
      In("question.measured.nodes", int64_t{measured.nodes_size()}, 0, 128 * terms.blocks.size()));
  for (const proto::Question::Measured::Node& node : measured.nodes()) {
    RUBATO_RETURN_IF_ERROR(In("question.measured.nodes.end", node.end(), 1, leaves));
    RUBATO_RETURN_IF_ERROR(In("question.measured.nodes.begin", node.begin(), 0, node.end() - 1));
    if (!(node.sum() >= 0)) {
      return Found("question.measured.nodes.sum", absl::StrCat(node.sum()), "no less than 0");
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const proto::ShardReport& report, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Size("shard_report.blocks", report.blocks_size(), terms.blocks.size()));
  int64_t expected = terms.blocks.begin;
  for (const proto::ShardReport::Block& block : report.blocks()) {
    RUBATO_RETURN_IF_ERROR(In("shard_report.blocks.block", block.block(), expected, expected));
    ++expected;
    RUBATO_RETURN_IF_ERROR(Count("shard_report.blocks.version", block.version()));
    RUBATO_RETURN_IF_ERROR(Count("shard_report.blocks.samples", block.samples()));
  }
  RUBATO_RETURN_IF_ERROR(
      In("shard_report.staleness_counts", report.staleness_counts_size(), 0, kMostStaleness + 1));
  for (const int64_t count : report.staleness_counts()) {
    RUBATO_RETURN_IF_ERROR(In("shard_report.staleness_counts", count, 0, kMaxBytes));
  }
  RUBATO_RETURN_IF_ERROR(Count("shard_report.duplicates", report.duplicates()));
  RUBATO_RETURN_IF_ERROR(In("shard_report.pushed_bytes", report.pushed_bytes(), 0, kMaxBytes));
  RUBATO_RETURN_IF_ERROR(In("shard_report.pulled_bytes", report.pulled_bytes(), 0, kMaxBytes));
  if (terms.reports) return absl::OkStatus();
  return Found("shard_report", "one", "none: it has not been asked for one");
}

absl::Status Check(const proto::KeptValues& kept) {
  RUBATO_RETURN_IF_ERROR(In("kept.view.leaves", kept.view().leaves(), 0, 1 << 30));
  RUBATO_RETURN_IF_ERROR(Count("kept.view.origin_unit", kept.view().origin_unit()));
  RUBATO_RETURN_IF_ERROR(Count("kept.view.origin_samples", kept.view().origin_samples()));
  RUBATO_RETURN_IF_ERROR(Count("kept.view.origin_steps", kept.view().origin_steps()));
  for (const proto::BlockState& block : kept.blocks()) {
    RUBATO_RETURN_IF_ERROR(Count("kept.blocks.version", block.version()));
    RUBATO_RETURN_IF_ERROR(Count("kept.blocks.samples", block.samples()));
    RUBATO_RETURN_IF_ERROR(In("kept.blocks.skipped", block.skipped(), 0, block.version()));
    RUBATO_RETURN_IF_ERROR(Count("kept.blocks.units_below", block.units_below()));
    RUBATO_RETURN_IF_ERROR(Runs("kept.blocks.unit_runs", block.unit_runs()));
    RUBATO_RETURN_IF_ERROR(Size("kept.blocks.units_above", block.units_above_size(), 0));
  }
  for (const proto::Decision& decision : kept.decisions()) {
    RUBATO_RETURN_IF_ERROR(Count("kept.decisions.unit", decision.unit()));
  }
  return absl::OkStatus();
}

// Only who computes finds what is not finite.
absl::Status Check(const proto::Failure& failure, const PeerTerms& terms) {
  if (failure.non_finite() && !terms.is_member) {
    return Found("failure.non_finite", "true", "false: it has computed nothing");
  }
  return In("failure.exit_code", failure.exit_code(), 1, 255);
}

}  // namespace

absl::Status CheckRegistration(const proto::Registration& registration) {
  RUBATO_RETURN_IF_ERROR(Short("process", registration.process()));
  RUBATO_RETURN_IF_ERROR(Short("version", registration.version()));
  RUBATO_RETURN_IF_ERROR(Short("job_digest", registration.job_digest()));
  RUBATO_RETURN_IF_ERROR(Short("address", registration.address(), kMostText));
  RUBATO_RETURN_IF_ERROR(Short("worker.data_digest", registration.worker().data_digest()));
  const size_t described = registration.worker().data().ByteSizeLong();
  if (described > kMaxDescription) {
    return Found("worker.data", absl::StrCat(described, " bytes"),
                 absl::StrCat("at most ", kMaxDescription));
  }
  RUBATO_RETURN_IF_ERROR(Check(registration.kept()));
  return Short("worker.numerics", registration.worker().numerics(), kMostText);
}

absl::Status CheckWorker(const proto::WorkerRegistration& worker) {
  RUBATO_RETURN_IF_ERROR(In("worker.train_samples", worker.train_samples(), 1, kMostSamples));
  RUBATO_RETURN_IF_ERROR(In("worker.test_samples", worker.test_samples(), 0, kMostSamples));
  return CheckLayout(worker.layout());
}

absl::Status CheckWorkerMessage(const proto::PeerMessage& message, const PeerTerms& terms) {
  RUBATO_RETURN_IF_ERROR(Real("held_seconds", message.held_seconds(), 0, kMostSeconds));
  switch (message.kind_case()) {
    case proto::PeerMessage::kWorkRequest:
      RUBATO_RETURN_IF_ERROR(
          In("work_request.count", message.work_request().count(), 1, kMaxAsked));
      return Count("work_request.applied", message.work_request().applied());
    case proto::PeerMessage::kProgress:
      return Check(message.progress(), terms);
    case proto::PeerMessage::kEvaluation:
      return Check(message.evaluation(), terms);
    case proto::PeerMessage::kIdle:
      return Check(message.idle(), terms);
    case proto::PeerMessage::kLeave:
      return Count("leave.applied", message.leave().applied());
    case proto::PeerMessage::kInitialValues:
      return Check(message.initial_values());
    case proto::PeerMessage::kFailure:
      return Check(message.failure(), terms);
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckShardMessage(const proto::PeerMessage& message, const PeerTerms& terms) {
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardClosed:
      return Check(message.shard_closed(), terms);
    case proto::PeerMessage::kSnapshotCopied:
      return Check(message.snapshot_copied(), terms);
    case proto::PeerMessage::kPartWritten:
      return Check(message.part_written(), terms);
    case proto::PeerMessage::kSnapshotMissed:
      return Check(message.snapshot_missed(), terms);
    case proto::PeerMessage::kQuestion:
      return Check(message.question(), terms);
    case proto::PeerMessage::kShardReport:
      return Check(message.shard_report(), terms);
    case proto::PeerMessage::kFailure:
      return Check(message.failure(), terms);
    case proto::PeerMessage::kShardOpened:
      return Begun("shard_opened.view", message.shard_opened().view(), terms.view);
    default:
      return absl::OkStatus();
  }
}

std::string PeerText(const std::string& text) {
  const std::string printable = Printable(text.substr(0, kMostText));
  return text.size() <= kMostText ? printable : absl::StrCat(printable, "...");
}

}  // namespace rubato
