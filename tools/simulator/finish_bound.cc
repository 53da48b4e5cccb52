#include "tools/simulator/finish_bound.h"

#include <algorithm>

#include "common/frames/frame.h"

namespace rubato {
namespace {

// As many as are sent before a view holds everywhere, more or less.
constexpr double kBytesOfAView = 20000;

// Sums of drawn times exceed their mean by less than this, beside a few of the longest.
constexpr double kAboveMean = 1.5;
constexpr int kTimesOfMost = 4;

// Messages of a unit that wait for one another: what is asked for, sent, pushed, and said.
constexpr int kTurns = 4;

// To change a view it takes what is said to the shards, and what they answer.
constexpr int kTurnsOfAView = 2;

// Jitter is exponential: in its means, the longest of a few.
constexpr int kMeanOfLongest = 3;

// Of checkpoints one is written at a time: that one, the next, and the last.
constexpr int kCheckpoints = 3;

// After so long the coordinator reads a part that no shard ends to write (snapshots.cc).
constexpr SimTime kPartSilence = 120 * kSecond;

// Of a worker whose stream has broken (worker/session/worker_session.cc).
constexpr SimTime kStreamGrace = 2 * kSecond;

}  // namespace

FinishBound::FinishBound(const Scenario& scenario) : scenario_(scenario) {
  const double bytes = scenario.bytes_per_second;
  view_time_ = kTurnsOfAView * VirtualNetwork::kMostJitter * (scenario.latency + scenario.jitter) +
               (bytes > 0 ? static_cast<SimTime>(kBytesOfAView / bytes * kSecond) : 0);
}

SimTime FinishBound::From(int64_t samples_left) const {
  const SmallJob& job = scenario_.job;
  const double workers = job.max_workers;
  // On arrival a worker's share of a step; each may have to be computed once more.
  const int64_t leaves = std::max<int64_t>(1, job.micro_batches / job.workers);
  const double micro_batches =
      static_cast<double>(samples_left) / job.micro_batch + 2 * workers * leaves;
  const double units = micro_batches / static_cast<double>(leaves);

  double seconds = kDrawnMicroBatchTime * 1e-9 * scenario_.speeds.mean * kAboveMean * micro_batches;
  seconds += kDrawnMicroBatchTime * 1e-9 * scenario_.speeds.most * kTimesOfMost * job.micro_batches;
  seconds += units * kTurns * 1e-9 * (scenario_.latency + kMeanOfLongest * scenario_.jitter);
  const double block = kBlockBytes + kFrameHeaderBytes;
  if (scenario_.bytes_per_second > 0) {
    seconds += units * 2 * job.blocks * block / scenario_.bytes_per_second;
  }
  if (scenario_.change_bytes_per_second > 0) {
    const double sums = 1 + static_cast<double>(job.micro_batches);
    seconds += units * job.blocks * sums * kBlockBytes / scenario_.change_bytes_per_second;
  }
  // Those of steps that are done may be under way still, one after the other.
  const int64_t tests =
      2 + (job.evaluate_every.steps > 0 ? job.steps / job.evaluate_every.steps : job.epochs);
  seconds += 1e-9 * static_cast<double>(tests * scenario_.test_time + scenario_.final_test_time +
                                        kCheckpoints * scenario_.checkpoint_time);
  // The values are given once more when the one that gives them is lost.
  if (job.gives_values) {
    seconds += 2e-9 * static_cast<double>(
                          scenario_.checkpoint_time +
                          job.pieces * 2 * (scenario_.latency + kMeanOfLongest * scenario_.jitter));
  }

  // Who is lost is noticed; who was cut off gives up; another takes its place.
  if (scenario_.disk_stands_still) seconds += 1e-9 * kCheckpoints * kPartSilence;
  if (job.checkpoint_seconds > 0) seconds *= 2;
  SimTime fixed = (kDrawnLease + kSecond) + (2 * kDrawnLease + kSecond) + scenario_.replaced_after;
  const int64_t views = job.max_workers + static_cast<int64_t>(scenario_.switches.size()) +
                        static_cast<int64_t>(job.schedule.size());
  return fixed + views * view_time_ + static_cast<SimTime>(seconds * 1e9);
}

// Its connections break; then it tries to come back, one that has just come for longer, and gives
// up; what it computes it ends first.
SimTime FinishBound::EndsWithin() const {
  const double computing = scenario_.speeds.most * static_cast<double>(scenario_.job.micro_batches);
  return (kDrawnLease + kSecond) + (2 * kDrawnLease + kSecond) + kStreamGrace + kSecond +
         kDrawnStartTimeout + view_time_ +
         static_cast<SimTime>(2 * kDrawnMicroBatchTime * computing);
}

}  // namespace rubato
