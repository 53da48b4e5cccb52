#include "common/space/modes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/max_count.h"
#include "common/job/schema.h"
#include "common/space/learning_rate.h"
#include "google/protobuf/util/message_differencer.h"

namespace rubato {
namespace {

// By time alone a training goes as far as it comes; this keeps counts of samples within int64.
constexpr int64_t kMaxSamples = int64_t{1} << 50;

// Steps are counted as they are, whatever the short ones at the ends of epochs.
int64_t SamplesOf(const proto::Point& point, const proto::Job& job, int64_t samples_per_epoch) {
  if (point.has_time()) return kMaxSamples;
  const int64_t batch = job.train().batch_size();
  return point.has_steps()
             ? SampleSchedule(samples_per_epoch, batch, 1).SamplesBefore(point.steps())
             : SamplesAt(point, batch, samples_per_epoch);
}

proto::Mode MakeMode(proto::Mode::Name name) {
  proto::Mode mode;
  mode.set_mode(name);
  return mode;
}

}  // namespace

proto::Mode SyncMode() { return MakeMode(proto::Mode::NAME_SYNC); }

proto::Mode AsyncMode() { return MakeMode(proto::Mode::NAME_ASYNC); }

proto::Mode BoundedMode(int64_t staleness) {
  proto::Mode mode = MakeMode(proto::Mode::NAME_BOUNDED);
  mode.set_staleness(staleness);
  return mode;
}

bool IsSame(const proto::Mode& a, const proto::Mode& b) {
  return google::protobuf::util::MessageDifferencer::Equivalent(a, b);
}

std::string ModeName(const proto::Mode& mode) {
  const std::string name = YamlName(mode.mode());
  return mode.has_staleness() ? absl::StrCat(name, ", staleness ", mode.staleness()) : name;
}

std::string UnitText(const proto::Mode& mode, int64_t unit) {
  return absl::StrCat(OnArrival(mode) ? "contribution " : "step ", unit);
}

proto::Manifest::Mode ToManifest(const proto::Mode& mode) {
  return static_cast<proto::Manifest::Mode>(mode.mode());  // numbered alike
}

proto::Mode FromManifest(proto::Manifest::Mode mode) {
  return MakeMode(static_cast<proto::Mode::Name>(mode));
}

int64_t PositionOf(const proto::Manifest& checkpoint) {
  const int64_t units = checkpoint.step() - checkpoint.origin_unit();
  // Of before manifests said these, or nonsense.
  if (checkpoint.unit_samples() <= 0 || checkpoint.samples_per_epoch() <= 0 || units < 0 ||
      units > kMaxCount / std::max(checkpoint.unit_samples(), int64_t{1})) {
    return checkpoint.samples();
  }
  return SampleSchedule(checkpoint.samples_per_epoch(), checkpoint.unit_samples(), 1,
                        checkpoint.origin_unit(), checkpoint.origin_samples())
      .SamplesBefore(checkpoint.step());
}

proto::BlockState AsGoesOn(const proto::View& view, const proto::View& kept,
                           proto::BlockState block) {
  const int64_t origin = view.origin_unit();
  if (OnArrival(kept.mode()) && kept.origin_unit() == origin) return block;
  block.set_units_below(origin);
  block.clear_unit_runs();
  block.clear_units_above();
  if (!OnArrival(kept.mode()) && !OnArrival(view.mode())) return block;
  block.set_skipped(block.skipped() + origin - block.version());
  block.set_version(origin);
  return block;
}

int64_t TotalSamples(const proto::Job& job, int64_t samples_per_epoch) {
  return SamplesOf(job.train().until(), job, samples_per_epoch);
}

std::vector<ModeSpan> ModesOf(const proto::Job& job, int64_t samples_per_epoch) {
  const proto::Consistency& consistency = job.consistency();
  const int64_t total = TotalSamples(job, samples_per_epoch);
  if (consistency.schedule_size() == 0) return {{consistency.mode(), total}};
  std::vector<ModeSpan> spans;
  for (const proto::Stage& stage : consistency.schedule()) {
    const int64_t until =
        stage.has_until() ? SamplesOf(stage.until(), job, samples_per_epoch) : total;
    spans.push_back({stage.mode(), std::min(until, total)});
  }
  spans.back().until_samples = total;
  return spans;
}

proto::Mode FirstMode(const proto::Job& job) {
  const proto::Consistency& consistency = job.consistency();
  return consistency.schedule_size() > 0 ? consistency.schedule(0).mode() : consistency.mode();
}

int64_t LeavesOf(const proto::Job& job, const proto::Mode& mode) {
  const int64_t micro_batches = job.train().micro_batches();
  return OnArrival(mode) ? std::max<int64_t>(1, micro_batches / job.cluster().workers().start())
                         : micro_batches;
}

std::string IdleWorkers(const proto::Job& job, const proto::Mode& mode, int64_t workers) {
  const int64_t idle = workers - LeavesOf(job, mode);
  if (OnArrival(mode) || idle <= 0) return "";
  return absl::StrCat(idle, " of ", workers,
                      " workers have nothing to compute: train.micro_batches is ",
                      job.train().micro_batches());
}

std::string ShortUnits(const proto::Job& job, const proto::Mode& mode, int64_t samples_per_epoch) {
  const int64_t batch_size = job.train().batch_size();
  const int64_t samples = batch_size / job.train().micro_batches() * LeavesOf(job, mode);
  if (samples <= samples_per_epoch) return "";
  return absl::StrCat(
      "train.batch_size is ", batch_size,
      OnArrival(mode) ? absl::StrCat(", of which a contribution has ", samples) : "",
      ", and an epoch has ", samples_per_epoch, " samples: no ",
      OnArrival(mode) ? "contribution" : "step", " takes more than these");
}

SampleSchedule ScheduleOf(const proto::Job& job, const proto::Mode& mode, int64_t samples_per_epoch,
                          int64_t origin_unit, int64_t origin_samples) {
  const int64_t leaves = LeavesOf(job, mode);
  return SampleSchedule(samples_per_epoch,
                        job.train().batch_size() / job.train().micro_batches() * leaves, leaves,
                        origin_unit, origin_samples);
}

Recurrence::Recurrence(const proto::Point& every, const proto::Job& job, int64_t samples_per_epoch)
    : steps_(every.has_steps() ? every.steps() : 0),
      samples_(SamplesAt(every, job.train().batch_size(), samples_per_epoch)) {}

int64_t Recurrence::Next(const SampleSchedule& schedule, const proto::Mode& mode,
                         int64_t units) const {
  if (steps_ > 0 && !OnArrival(mode)) return (units / steps_ + 1) * steps_;
  const int64_t samples = (schedule.SamplesBefore(units) / samples_ + 1) * samples_;
  return std::max(units + 1, schedule.UnitsFor(samples));
}

int64_t Recurrence::Last(const SampleSchedule& schedule, const proto::Mode& mode,
                         int64_t units) const {
  if (steps_ > 0 && !OnArrival(mode)) return units / steps_ * steps_;
  return schedule.UnitsFor(schedule.SamplesBefore(units) / samples_ * samples_);
}

bool Recurrence::IsDue(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units,
                       bool at_origin) const {
  if (units == schedule.origin_unit()) return at_origin;
  return units > schedule.origin_unit() && Next(schedule, mode, units - 1) == units;
}

}  // namespace rubato
