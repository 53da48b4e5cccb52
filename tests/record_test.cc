// Runs of real processes that are recorded, and replayed through the same cores to the same bits.
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/log.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/frames/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/record.pb.h"
#include "server/run/recording.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RecordTest : public ClusterTest {
 protected:
  const Arguments two_ = {"cluster={servers: 2, workers: 2, address: '127.0.0.1:0'}"};

  Process& StartRecorded(const std::string& run, const Arguments& set, const Arguments& more = {}) {
    Arguments arguments = {"tools/rubato", "train", "job.yaml", "--record", "--run-dir", run};
    for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Start(arguments);
  }

  void Record(const std::string& run, Arguments set, const Arguments& more = {}) {
    set.insert(set.begin(), two_.begin(), two_.end());
    const Process::Result result = StartRecorded(run, set, more).Wait();
    ASSERT_EQ(result.code, 0) << result.err;
  }

  Process::Result Rubato(const Arguments& arguments) {
    Arguments all = {"tools/rubato"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Start(all).Wait();
  }

  Process::Result Replay(const std::string& run) { return Rubato({"replay", run}); }

  // Replays to the same bits, and to those of the final parameters.
  void ExpectReplays(const std::string& run) {
    const Process::Result result = Replay(run);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("bit for bit those of " + run), Not(HasSubstr("early")),
                                  HasSubstr("those of " + run + "/summary.json"),
                                  HasSubstr("those of " + run + "/views.jsonl")));
  }

  std::string RecordPath(const std::string& run, const std::string& name) const {
    return Path(absl::StrCat(run, "/record/", name, ".rec"));
  }

  // Writes the recording again, whole and with right checksums, but with what `change` makes of
  // each event: whether it stays. What came of one that goes, goes too.
  void Forge(const std::string& path, const std::function<bool(RecordingEntry*)>& change) {
    auto reader = RecordingReader::Open(path);
    RUBATO_ASSERT_OK(reader);
    const Log log("test", 0);
    auto writer = RecordingWriter::Create(path + ".forged", reader->header(), &log);
    RUBATO_ASSERT_OK(writer);
    bool stays = true;
    while (true) {
      auto entry = reader->Next();
      RUBATO_ASSERT_OK(entry);
      if (!entry->has_value()) break;
      RecordingEntry& it = **entry;
      // Both kinds of message are only bytes here.
      proto::ShardEvent bytes;
      if (it.kind == RecordingEntry::Kind::kEvent) {
        stays = change(&it);
        ASSERT_TRUE(bytes.ParseFromString(it.message));
        if (stays) (*writer)->Event(bytes, it.values);
      } else if (stays) {
        ASSERT_TRUE(bytes.ParseFromString(it.message));
        (*writer)->Outcome(bytes);
      }
    }
    writer->reset();
    fs::rename(path + ".forged", path);
  }

  ProcessHandle Child(const Process& parent, absl::string_view command) const {
    for (RunningChild& child : ChildrenOf(parent.pid())) {
      if (absl::StrContains(child.command, command)) return std::move(child.process);
    }
    ADD_FAILURE() << "no process " << command;
    return ProcessHandle(parent.pid());
  }
};

Frame FrameOf(const RecordingEntry& entry) {
  Frame none;
  none.kind = FrameKind::kPull;
  proto::ShardEvent event;
  if (!event.ParseFromString(entry.message) || !event.has_frame()) return none;
  const auto* bytes = reinterpret_cast<const uint8_t*>(event.frame().data());
  const absl::StatusOr<Frame> frame = DecodeFrame({bytes, event.frame().size()});
  return frame.value_or(none);
}

TEST_F(RecordTest, RecordingChangesNoBitOfASyncRunAndReplays) {
  Arguments set = two_;
  set.push_back("checkpoint={every: {steps: 15}, keep_last: 2}");
  Train("plain", set);
  EXPECT_FALSE(fs::exists(Path("plain/record")));
  Record("run", set);
  const std::string parameters = ReadText(Path("plain/parameters.safetensors"));
  ASSERT_FALSE(parameters.empty());
  EXPECT_EQ(ReadText(Path("run/parameters.safetensors")), parameters);
  ExpectReplays("run");
  // Where the disk is slow, steps in between have none.
  EXPECT_THAT(Replay("run").out, testing::ContainsRegex("with slots: .*step-00000040\n"));
}

TEST_F(RecordTest, OnArrivalReplaysToo) {
  for (const std::string mode : {"{mode: async}", "{mode: bounded, staleness: 1}"}) {
    const std::string run = mode.substr(7, 5);
    Record(run, {"consistency=" + mode, "cluster.workers=3", "cluster.servers=3",
                 "optimizer={name: adamw, learning_rate: 0.001}",
                 "checkpoint={every: {steps: 10}, keep_last: 1}"});
    ExpectReplays(run);
    EXPECT_THAT(Replay(run).out, HasSubstr("bit for bit, with slots: step-"));
  }
}

// Verdicts of the coordinator; and the floats of a checkpoint, which come over data streams.
TEST_F(RecordTest, ClippedStepsAndARunThatGoesOnReplay) {
  const Arguments set = {"optimizer.clip_grad_norm=0.5", "checkpoint={every: {steps: 20}}"};
  Record("first", set);
  ExpectReplays("first");
  Arguments longer = set;
  longer.push_back("train.until={steps: 50}");
  Record("second", longer, {"--resume", "first"});
  ExpectReplays("second");
}

TEST_F(RecordTest, SwitchesAndKilledWorkersReplay) {
  fs::create_directory(Path("run"));
  Process& train =
      StartRecorded("run", {"cluster={servers: 2, workers: 2, address: '127.0.0.1:0', lease: 1s}",
                            "metrics.every={steps: 10}", kForever});
  ASSERT_TRUE(AwaitTraining("run", train));
  const auto kill_worker = [&](int rank, int next_incarnation) {
    Child(train, absl::StrCat("--rank ", rank)).Signal(SIGKILL);
    ASSERT_TRUE(AwaitText(
        Path("run/views.jsonl"),
        absl::StrCat("{\"rank\":", rank, ",\"incarnation\":", next_incarnation, "}"), train));
  };
  const auto switch_to = [&](const std::string& mode, int lineage) {
    const Process::Result result = Rubato({"switch", "--mode", mode, "run"});
    EXPECT_EQ(result.code, 0) << result.err;
    ASSERT_TRUE(
        AwaitText(Path("run/views.jsonl"), absl::StrCat("\"lineage\":", lineage, ","), train));
  };
  kill_worker(1, 2);
  switch_to("async", 2);
  kill_worker(0, 2);
  EXPECT_EQ(Rubato({"checkpoint", "run"}).code, 0);
  switch_to("bounded,staleness=1", 3);
  kill_worker(1, 3);
  switch_to("sync", 4);
  EXPECT_EQ(Rubato({"stop", "run"}).code, 0);
  const Process::Result result = train.Wait();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("run")["workers_lost"], 3);
  EXPECT_EQ(Summary("run")["switches"], 3);
  ExpectReplays("run");

  // As views.jsonl is after it has become too large once, and twice.
  const std::string views = ReadText(Path("run/views.jsonl"));
  const size_t second = views.find('\n') + 1, third = views.find('\n', second) + 1;
  std::ofstream(Path("run/views.jsonl")) << views.substr(third);
  std::ofstream(Path("run/views.jsonl.1")) << views.substr(0, third);
  ExpectReplays("run");
  EXPECT_THAT(Replay("run").out, HasSubstr("views.jsonl\n"));
  std::ofstream(Path("run/views.jsonl.1")) << views.substr(second, third - second);
  ExpectReplays("run");
  EXPECT_THAT(Replay("run").out, HasSubstr("views.jsonl, from view 2 on\n"));
  fs::remove(Path("run/views.jsonl.1"));
  EXPECT_THAT(Replay("run").err, HasSubstr("views.jsonl, view 1: is {"));
}

TEST_F(RecordTest, AServerThatIsKilledLeavesARecordUpToItsEnd) {
  fs::create_directory(Path("run"));
  Arguments set = two_;
  set.insert(set.end(), {kForever, "cluster.max_restarts=0"});
  Process& train = StartRecorded("run", set);
  ASSERT_TRUE(AwaitTraining("run", train));
  Child(train, "--shard 1").Signal(SIGKILL);
  EXPECT_EQ(train.Wait().code, 1);
  const Process::Result result = Replay("run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("shard 1 .* up to where the record ends early\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex("shard 0 .*: as recorded\n"));
  // As much as it leaves if it is killed in the midst of a write.
  const std::string path = RecordPath("run", "shard-1");
  fs::resize_file(path, fs::file_size(path) - 10);
  EXPECT_EQ(Replay("run").code, 0);
}

TEST_F(RecordTest, ARunThatGoesBackReplaysTermByTerm) {
  fs::create_directory(Path("run"));
  Arguments set = two_;
  set.insert(set.end(), {kForever, "checkpoint.every={steps: 10}", "checkpoint.keep_last=1000"});
  Process& train = StartRecorded("run", set);
  ASSERT_TRUE(AwaitTraining("run", train));
  const auto await_term = [&](int term) {
    return AwaitText(Path("run/views.jsonl"), absl::StrCat("\"term\":", term, ","), train);
  };
  const auto await_checkpoint = [&](int checkpoints) {
    return AwaitText(
        Path("run/logs/server-0.log"),
        [checkpoints](const std::string& log) {
          int count = 0;
          for (size_t at = 0; (at = log.find(" checkpoint run/", at + 1)) != std::string::npos;) {
            ++count;
          }
          return count >= checkpoints;
        },
        train);
  };
  ASSERT_TRUE(await_checkpoint(2));
  Child(train, "--shard 1").Signal(SIGKILL);
  ASSERT_TRUE(await_term(2));
  ASSERT_TRUE(await_checkpoint(8));
  Child(train, "--shard 0").Signal(SIGKILL);
  ASSERT_TRUE(await_term(3));
  ASSERT_TRUE(await_checkpoint(14));
  EXPECT_EQ(Start({"tools/rubato", "stop", "run"}).Wait().code, 0);
  EXPECT_EQ(train.Wait().code, 0);
  const Process::Result result = Replay("run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("term +1\ncoordinator .*: as recorded\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex(
                              "term +2\ncoordinator .* up to where the record ends early\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex("term +3\ncoordinator .*: as recorded\nshard 0 "
                                                 ".*: as recorded\nshard 1 .*: as recorded\n"));
  EXPECT_THAT(result.out, HasSubstr("those of run/summary.json"));
}

TEST_F(RecordTest, DamagedRecordsAreTold) {
  Record("run", {});
  const std::string path = RecordPath("run", "shard-1");
  const std::string whole = ReadText(path);
  const auto expect = [&](const std::string& bytes, const std::string& said) {
    Write(path, bytes);
    const Process::Result result = Replay("run");
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_THAT(result.err, AllOf(HasSubstr("error: run/record/shard-1.rec "), HasSubstr(said)));
  };
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 4;
  expect(flipped, "is damaged after event ");
  const size_t event = whole.find("EVNT", whole.size() / 2), next = whole.find("EVNT", event + 1);
  expect(whole.substr(0, event) + whole.substr(next), "or an entry is missing");
  expect(whole.substr(0, event + 4), "is truncated: it ends after event ");
  expect(whole.substr(0, 3), "is truncated: not even its header is whole");
  expect(ReadText(RecordPath("run", "shard-0")), "is of shard 0, expected shard 1");
  expect(ReadText(RecordPath("run", "coordinator")), "is of a coordinator, expected shard 1");
  expect("nonsense", "is no record of Rubato's cores");
  fs::remove(path);
  EXPECT_THAT(Replay("run").err, HasSubstr("error: found no run/record/shard-1.rec\n"));
  Train("plain");
  EXPECT_EQ(Replay("plain").code, 2);
  EXPECT_EQ(Replay("plain").err,
            "error: plain holds no record: `rubato train --record` makes one\n");
  EXPECT_EQ(Replay("nowhere").err, "error: found no nowhere, expected a run's folder\n");
}

// Against one who writes the checksums anew, the cores themselves stand.
TEST_F(RecordTest, WhatDoesNotReplayIsNamed) {
  Record("run", {});
  const std::string shard = RecordPath("run", "shard-1"),
                    coordinator = RecordPath("run", "coordinator");
  const std::string shard_before = ReadText(shard), coordinator_before = ReadText(coordinator);
  const auto expect = [&](const std::string& pattern) {
    const Process::Result result = Replay("run");
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_THAT(result.err, testing::ContainsRegex(pattern));
    Write(shard, shard_before);
    Write(coordinator, coordinator_before);
  };
  int pushes = 0;
  std::string block;
  // The lowest bit of one gradient's last value.
  const auto flip = [&](RecordingEntry* entry) {
    const Frame frame = FrameOf(*entry);
    if (frame.kind == FrameKind::kPush && ++pushes == 100) {
      uint32_t bits;
      std::memcpy(&bits, &entry->values.back(), sizeof(bits));
      bits ^= 1u << 22;
      std::memcpy(&entry->values.back(), &bits, sizeof(bits));
      block = absl::StrCat(frame.block);
    }
    return true;
  };
  Forge(shard, flip);
  expect("^error: shard 1, event [0-9]+ \\(push of worker [01], block " + block +
         ", clock [0-9]+\\): recorded: block " + block + " at version [0-9]+ with bits ");
  pushes = 0;
  Forge(shard, [&](RecordingEntry* entry) {
    return FrameOf(*entry).kind != FrameKind::kPush || ++pushes != 100;
  });
  expect("^error: shard 1, event [0-9]+ .*: recorded: ");
  // A worker's progress: the metrics lack it.
  bool is_gone = false;
  Forge(coordinator, [&](RecordingEntry* entry) {
    proto::CoordinatorEvent event;
    if (is_gone || !event.ParseFromString(entry->message)) return true;
    is_gone = event.message().message().has_progress() &&
              event.message().message().progress().unit() == 20;
    return !is_gone;
  });
  EXPECT_TRUE(is_gone);
  expect("^error: coordinator, event [0-9]+ .*: recorded: .*metrics");
  // Without any forgery the record of one run is not that of another.
  Record("other", {"seed=8"});
  fs::copy_file(Path("other/parameters.safetensors"), Path("run/parameters.safetensors"),
                fs::copy_options::overwrite_existing);
  expect("^error: run/parameters.safetensors: block 0, of shard 0, has other bits than replayed\n");
  fs::copy_file(RecordPath("other", "shard-1"), shard, fs::copy_options::overwrite_existing);
  EXPECT_EQ(Replay("run").err,
            "error: run/record/shard-1.rec is of another job than run/record/coordinator.rec\n");
}

// Whole files, with right checksums: what has them say something else is named.
TEST_F(RecordTest, FilesThatAreNotWhatReplaysAreNamed) {
  Record("run", {});
  const auto expect_named = [&](const std::string& beginning) {
    const Process::Result result = Replay("run");
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_THAT(result.err, testing::StartsWith("error: run/" + beginning));
  };
  const std::string views = ReadText(Path("run/views.jsonl"));
  Write("run/views.jsonl", views + "{\"term\":9}\n");
  expect_named("views.jsonl: a view of no recorded term: {\"term\":9}\n");
  Write("run/views.jsonl", views);
  const std::string summary = ReadText(Path("run/summary.json"));
  Write("run/summary.json", absl::StrReplaceAll(summary, {{"\"skipped\": 0", "\"skipped\": 1"}}));
  expect_named("summary.json is {");
  Write("run/summary.json", summary);
  const std::string checkpoint = "checkpoints/step-00000040", path = Path("run/" + checkpoint);
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  const auto state = ReadTrainingState(path, *manifest, manifest->layout());
  RUBATO_ASSERT_OK(state);
  for (const int slot : {0, 1}) {
    TrainingState other = *state;
    (slot == 0 ? other.parameters : other.slots[0])[0] += 1;
    RUBATO_ASSERT_OK(WriteCheckpoint(Path("run/checkpoints"), *manifest,
                                     ReadText(path + "/job.yaml"), manifest->layout(), other));
    expect_named(absl::StrCat(checkpoint, ": block 0, slot ", slot, " has bits "));
  }
}

TEST_F(RecordTest, ServersByHandRecordIntoAnyFolderAndOverwriteNoRecord) {
  Process& server = StartServer(0, {}, {"--run-dir", folder(), "--record", "new/record"});
  StartWorker({"cluster.address=" + AwaitAddress(".", server)});
  EXPECT_EQ(server.Wait().code, 0) << server.err();
  fs::create_directory(Path("run"));
  const Process::Result again =
      StartServer(0, {}, {"--run-dir", "run", "--record", "new/record"}).Wait();
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("new/record holds a record already: "));
  const Process::Result replay = Replay("new");
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("shard 0       "));
}

}  // namespace
}  // namespace rubato
