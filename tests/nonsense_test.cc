// Nonsense sent to a server ends the stream or connection that it came on, with a reason, and
// nothing else: the job that runs meanwhile ends with the right bits.
// Long because every case is sent to the same running job, built once for each.
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/version.h"
#include "common/frames/frame.h"
#include "common/job/job.h"
#include "common/wire/control_methods.h"
#include "common/wire/message.h"
#include "common/wire/shard_streams.h"
#include "common/wire/stream_opening.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "tests/cluster.h"
#include "tests/raw_call.h"
#include "tests/sequential_sgd.h"
#include "tests/unfinished_calls.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Bytes(Frame frame, size_t payload_bytes = 0) {
  frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
  frame.values = static_cast<uint32_t>(payload_bytes / sizeof(float));
  std::string bytes(kFrameHeaderBytes, '\0');
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes + std::string(payload_bytes, '\x3f');
}

std::string Bytes(FrameKind kind, size_t payload_bytes = 0) {
  Frame frame;
  frame.kind = kind;
  return Bytes(frame, payload_bytes);
}

std::string RandomBytes(std::mt19937_64* random, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// One shard and one worker, of a linear model in two blocks of 4096 and 3754 values; the worker
// stands still in the midst of the job while the test does its mischief.
class NonsenseTest : public ClusterTest, public testing::WithParamInterface<std::string> {
 protected:
  static constexpr size_t kBlockBytes[] = {16384, 15016};

  NonsenseTest() {
    for (int64_t steps = 3000;; steps *= 4) {
      StartJob(steps);
      worker_->Signal(SIGSTOP);
      // Before its middle, so that the end is not on its way.
      if (2 * Metrics("run", "train").back()["step"].get<int64_t>() <= steps) break;
      worker_->Signal(SIGCONT);  // too late
      worker_->Wait();
      shard_->Wait();
      fs::remove_all(Path("run"));
    }
    metadata_ = {{kJobDigestKey, JobDigest(Job(set_))}, {kTermKey, "1"}};
  }

  void StartJob(int64_t steps) {
    // It is not taken for dead meanwhile: a contribution of which half has arrived would be
    // computed anew, in async from later parameters than the half that counts.
    set_ = {"security.mode=none",
            "cluster.lease=10m",
            "consistency.mode=" + GetParam(),
            "model={layers: [flatten, linear: {out_features: 10}]}",
            "metrics.every={steps: 10}",
            absl::StrCat("train={batch_size: 8, micro_batches: 2, until: {steps: ", steps, "}}")};
    fs::create_directory(Path("run"));
    shard_ = &StartServer(0, set_, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
    address_ = AwaitAddress("run", *shard_);
    std::vector<std::string> worker_set = set_;
    worker_set.push_back("cluster.address=" + address_);
    worker_ = &StartWorker(worker_set);
    AwaitTraining("run", *shard_);
  }

  void ExpectGoodEnd() {
    worker_->Signal(SIGCONT);
    const Process::Result worker = worker_->Wait(), shard = shard_->Wait();
    EXPECT_EQ(worker.code, 0) << worker.err;
    EXPECT_EQ(shard.code, 0) << shard.err;
    const SequentialResult oracle =
        TrainSequentially(Job(set_), /*rate_by_samples=*/GetParam() == "async");
    EXPECT_EQ(Summary("run")["digest"], oracle.digest);
    EXPECT_EQ(Summary("run")["samples"], oracle.samples);
  }

  // The status that ends a data stream of this job which carries `messages`.
  grpc::Status Data(const std::vector<std::string>& messages) const {
    return SendAll(address_, kDataMethod, metadata_, messages);
  }

  // The coordinator's last word to a peer that sends `messages`, or none.
  proto::Stop Join(const std::vector<proto::PeerMessage>& messages) const {
    RawCall call(address_, kJoinMethod, {});
    for (const proto::PeerMessage& message : messages) call.Write(message.SerializeAsString());
    std::string bytes;
    proto::CoordinatorMessage answer;
    while (call.Read(&bytes)) EXPECT_TRUE(answer.ParseFromString(bytes));
    EXPECT_TRUE(call.Finish().ok());
    return answer.stop();
  }

  std::vector<std::string> set_;
  std::map<std::string, std::string> metadata_;
  std::string address_;
  Process *shard_, *worker_;
};

INSTANTIATE_TEST_SUITE_P(, NonsenseTest, testing::Values("sync", "async"),
                         [](const auto& info) { return info.param; });

TEST_P(NonsenseTest, BytesThatAreNoHttp) {
  std::mt19937_64 random(1);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  for (const std::string& bytes :
       {RandomBytes(&random, 65536), std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string(100, '\0'), preface + settings + RandomBytes(&random, 65536),
        preface + std::string(1000, '\xff')}) {
    EXPECT_TRUE(IsClosedAfter(address_, bytes));
  }
  ExpectGoodEnd();
}

TEST_P(NonsenseTest, StreamsOfAnotherJobAndUnknownMethods) {
  const std::string pull = Bytes(FrameKind::kPull);
  for (const auto& metadata : {std::map<std::string, std::string>{},
                               {{kJobDigestKey, ""}},
                               {{kJobDigestKey, "0123456789abcdef"}},
                               {{"rubato-job", metadata_[kJobDigestKey]}}}) {
    const grpc::Status status = SendAll(address_, kDataMethod, metadata, {pull});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("another job"));
  }
  for (const std::string method : {"/rubato.Data/Nope", "/x", "/rubato.proto.Coordination/Nope",
                                   "/grpc.reflection.v1alpha.ServerReflection/Info"}) {
    const grpc::Status status = SendAll(address_, method, metadata_, {pull});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr(method));
  }
  ExpectGoodEnd();
}

TEST_P(NonsenseTest, MessagesThatAreNoFrames) {
  std::string wrong_kind = Bytes(FrameKind::kPull), later_version = wrong_kind;
  wrong_kind[4] = 9;
  later_version[3] = 7;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "0 bytes"},
      {std::string(95, '\0'), "95 bytes"},
      {std::string(96, '\0'), "00000000"},
      {std::string(1000000, '\xff'), "ffffffff"},
      {wrong_kind, "kind 9"},
      {later_version, "07425552"},
      {Bytes(FrameKind::kPull).substr(0, 40), "40 bytes"},
      {Bytes(FrameKind::kPush, 3), "3 bytes"},
      {Bytes(FrameKind::kParameters, kBlockBytes[0]), "parameters"},
  };
  for (const auto& [bytes, reason] : cases) {
    const grpc::Status status = Data({bytes});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << reason;
    EXPECT_THAT(status.error_message(), HasSubstr(reason));
  }
  // More than any message may have: refused before it is taken in.
  const grpc::Status status = Data({std::string((8 << 20) + 1, '\0')});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), Not(IsEmpty()));
  ExpectGoodEnd();
}

// A few hundred bytes a MiB, which the server would unpack.
TEST_P(NonsenseTest, CompressedMessagesDoNotFillItsMemory) {
  const int64_t before = shard_->PeakMemoryMiB();
  RawCall bomb(address_, kDataMethod, metadata_, /*compressed=*/true);
  bomb.Write(std::string(160 << 20, '\0'));
  const grpc::Status status = bomb.Finish();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(), Not(IsEmpty()));
  EXPECT_LT(shard_->PeakMemoryMiB() - before, 80) << status.error_message();
  ExpectGoodEnd();
}

// Each of 400 calls would hold 8 MiB for as long as it likes. At most 18 connections may have said
// nothing whole, with 4 calls each, and none may for long.
TEST_P(NonsenseTest, MessagesThatAreNeverFinishedDoNotFillItsMemory) {
  const int64_t before = shard_->PeakMemoryMiB();
  UnfinishedCalls calls(address_, /*connections=*/100);
  EXPECT_GT(calls.Send(kCommandMethod, /*calls=*/4), 0);
  EXPECT_LT(shard_->PeakMemoryMiB() - before, 100);
  ExpectGoodEnd();
}

// Ten times as many as a connection may have at a time; who does not acknowledge the server's
// settings does not know of that limit.
TEST_P(NonsenseTest, ManyCallsOnAConnectionDoNotFillItsMemory) {
  const int64_t before = shard_->PeakMemoryMiB();
  for (const bool acknowledges : {true, false}) {
    UnfinishedCalls calls(address_, /*connections=*/100, acknowledges);
    EXPECT_GT(calls.Send(kCommandMethod, /*calls=*/40), 0);
    EXPECT_LT(shard_->PeakMemoryMiB() - before, 100) << acknowledges;
  }
  ExpectGoodEnd();
}

TEST_P(NonsenseTest, FramesThatNoWorkerSends) {
  Frame push;  // one that fits, but of a step in the far future
  push.kind = FrameKind::kPush;
  push.view = push.lineage = push.incarnation = 1;
  push.clock = uint64_t{1} << 40;
  push.samples = push.weight = 4;
  push.end_leaf = 2;
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = pull.block_count = 1;
  struct Case {
    std::string bytes, reason;
  };
  // Its name is that of the worker's own stream.
  constexpr char kImpostor[] = "from worker 0 (incarnation 1); its stream has not shown";
  std::vector<Case> cases = {
      {Bytes(push, kBlockBytes[0]), kImpostor},
      {Bytes(push), "0 values"},
      {Bytes(push, kBlockBytes[0] - 4), "4095 values"},
      {Bytes(push, kBlockBytes[0] + 4), "4097 values"},
  };
  for (const uint64_t block : {uint64_t{2}, uint64_t{1} << 63, ~uint64_t{0}}) {
    Frame outside = push;
    outside.block = block;
    cases.push_back({Bytes(outside, kBlockBytes[0]), "this shard owns blocks 0 to 2"});
    outside.kind = FrameKind::kPull;
    outside.worker = kObserver;
    outside.block_count = 1;
    cases.push_back({Bytes(outside), "this shard owns blocks 0 to 2"});
  }
  for (const uint32_t worker : {1u, 1000000u, 0xffffffffu}) {
    Frame stranger = push;
    stranger.worker = worker;
    cases.push_back({Bytes(stranger, kBlockBytes[0]), absl::StrCat("from worker ", worker)});
    if (worker == 0xffffffffu) continue;  // may read
    stranger.kind = FrameKind::kPull;
    stranger.block_count = 1;
    cases.push_back({Bytes(stranger), absl::StrCat("from worker ", worker)});
  }
  for (const uint32_t count : {0u, 3u, 0x7fffffffu, 0xffffffffu}) {
    Frame many = pull;
    many.worker = kObserver;
    many.block_count = count;
    cases.push_back({Bytes(many), "this shard owns blocks 0 to 2"});
  }
  for (const FrameKind kind : {FrameKind::kPull, FrameKind::kRetire}) {
    Frame other = pull;
    other.kind = kind;
    cases.push_back({Bytes(other), kImpostor});
  }
  for (const Case& c : cases) {
    const grpc::Status status = Data({c.bytes});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << c.reason;
    EXPECT_THAT(status.error_message(), HasSubstr(c.reason));
  }
  EXPECT_THAT(shard_->err(), HasSubstr(kImpostor)) << "the log tells of one a second";
  ExpectGoodEnd();
}

// By either path: the peer is told what was wrong, though nothing more of it is read.
TEST_P(NonsenseTest, PayloadsThatNoCodecWrites) {
  const auto words = [](std::initializer_list<uint32_t> numbers) {
    std::string bytes;
    for (const uint32_t number : numbers) {
      bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    return bytes;
  };
  struct Case {
    Codec codec;
    std::string bytes, reason;
  };
  for (const Case& c : std::vector<Case>{
           {Codec::kTopK, words({2, 4095, 4096, 0, 0}), "index 4096 in topk"},
           {Codec::kTopK, words({2, 7, 7, 0, 0}), "index 7 in topk"},
           {Codec::kTopK, words({0xffffffff, 0}), "4294967295 of 4096 values in topk"},
           {Codec::kInt8, std::string(4099, '1'), "4099 bytes; 4096 values take 4100 in int8"},
           {Codec::kBf16, std::string(16384, '1'), "4096 values take 8192 in bf16"},
           {Codec::kInt8, "", "pull asks for parameters in int8"}}) {
    for (const bool shared : {false, true}) {
      absl::Notification failed;
      absl::Status failure, by_memory = absl::UnknownError("nobody said");
      ShardStreams::Callbacks callbacks;
      callbacks.on_frame = [](int, const Frame&, const ReceivedValues&) {};
      callbacks.on_shared = [&](int, const absl::Status& status) { by_memory = status; };
      callbacks.on_failure = [&](int, const absl::Status& status) {
        failure = status;
        failed.Notify();
      };
      ShardStreams streams({address_}, StreamScope{metadata_[kJobDigestKey], 1},
                           ConnectionOptions(), callbacks, shared);
      Frame frame;
      frame.kind = c.bytes.empty() ? FrameKind::kPull : FrameKind::kPush;
      frame.codec = c.codec;
      frame.view = frame.lineage = frame.incarnation = frame.block_count = 1;
      streams.Send(0, frame, Payload(nullptr, c.codec, c.bytes, c.bytes.empty() ? 0 : 4096));
      ASSERT_TRUE(failed.WaitForNotificationWithTimeout(kTestPatience)) << c.reason;
      EXPECT_THAT(failure.message(), HasSubstr(c.reason));
      EXPECT_EQ(failure.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(by_memory.ok(), shared) << by_memory;
    }
  }
  ExpectGoodEnd();
}

// A sum that fits the open step, in the worker's name: of no samples, too, whose mean would be a
// division by zero, and the end of the job's parameters.
TEST_P(NonsenseTest, SumsInTheNameOfAWorkerThatIsThere) {
  RawCall call(address_, kDataMethod, metadata_);
  Frame frame;
  frame.kind = FrameKind::kPull;
  frame.worker = 0xffffffff;
  frame.block_count = 1;
  std::string block;
  ASSERT_TRUE(call.Write(Bytes(frame)) && call.Read(&block));
  const absl::StatusOr<Frame> parameters = DecodeFrame(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(block.data()), kFrameHeaderBytes));
  ASSERT_TRUE(parameters.ok());
  // What the worker is about to send for the open step, but for its weight and values.
  frame.kind = FrameKind::kPush;
  frame.view = frame.lineage = frame.incarnation = 1;
  frame.worker = 0;
  frame.clock = frame.version = parameters->version;
  frame.end_leaf = 2;
  call.Write(Bytes(frame, kBlockBytes[0]));
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("its stream has not shown that it is that worker's"));
  ExpectGoodEnd();
}

TEST_P(NonsenseTest, PeersThatDoNotKeepToTheProtocol) {
  proto::PeerMessage registration;
  registration.mutable_registration()->set_version(kVersion);
  registration.mutable_registration()->set_job_digest(metadata_[kJobDigestKey]);
  registration.mutable_registration()->set_process("stranger");

  proto::PeerMessage progress;
  progress.mutable_progress()->set_unit(1);
  EXPECT_THAT(Join({progress}).reason(), HasSubstr("begins with a registration"));
  EXPECT_THAT(Join({proto::PeerMessage()}).reason(), HasSubstr("begins with a registration"));

  proto::PeerMessage other = registration;
  other.mutable_registration()->set_version("0.0");
  EXPECT_THAT(Join({other}).reason(), HasSubstr("version 0.0"));
  EXPECT_EQ(Join({other}).exit_code(), 2);
  other = registration;
  other.mutable_registration()->clear_job_digest();
  EXPECT_THAT(Join({other}).reason(), HasSubstr("another job"));
  for (const int shard : {0, 1, -1, 1 << 30}) {
    other = registration;
    other.mutable_registration()->set_shard(shard);
    EXPECT_THAT(Join({other}).reason(),
                ContainsRegex(shard == 0 ? "already served" : "there is no shard"));
  }
  other = registration;
  other.mutable_registration()->mutable_worker()->mutable_layout()->add_parameters()->add_shape(-1);
  EXPECT_THAT(Join({other}).reason(), HasSubstr("no more workers"));

  std::mt19937_64 random(2);
  for (int i = 0; i < 50; ++i) {
    RawCall call(address_, kJoinMethod, {});
    call.Write(RandomBytes(&random, 1 + random() % 1000));
    // Random bytes may be a message with nothing but unknown fields; then they are no registration.
    call.Finish();
  }
  ExpectGoodEnd();
}

TEST_P(NonsenseTest, StreamsThatSayNothingKeepNobody) {
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 50; ++i) {
    calls.push_back(std::make_unique<RawCall>(address_, kDataMethod, metadata_));
    calls.push_back(std::make_unique<RawCall>(address_, kJoinMethod, metadata_));
    Frame pull;  // of what never comes
    pull.kind = FrameKind::kPull;
    pull.block_count = 2;
    pull.clock = uint64_t{1} << 50;
    calls.push_back(std::make_unique<RawCall>(address_, kDataMethod, metadata_));
    EXPECT_TRUE(calls.back()->Write(Bytes(pull)));
  }
  ExpectGoodEnd();
}

// Frames at random, each field now and then a plausible one.
class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : random_(seed) {}

  std::string Message() {
    switch (Below(8)) {
      case 0:
        return RandomBytes(&random_, Below(300));
      case 1:
        return Mangled(FrameMessage());
      default:
        return FrameMessage();
    }
  }

  uint64_t Below(uint64_t n) { return random_() % n; }

 private:
  uint64_t Number() {
    const uint64_t interesting[] = {
        0, 0, 0, 1, 1, 2, 3, 1000, uint64_t{1} << 31, uint64_t{1} << 63, ~uint64_t{0}, random_()};
    return interesting[Below(std::size(interesting))];
  }

  std::string FrameMessage() {
    Frame frame;
    frame.kind = static_cast<FrameKind>(1 + Below(5));
    frame.view = static_cast<uint32_t>(Number());
    frame.worker = static_cast<uint32_t>(Number());
    frame.incarnation = static_cast<uint32_t>(Number());
    frame.block = Number();
    frame.clock = Number();
    frame.version = Number();
    frame.block_count = static_cast<uint32_t>(Number());
    frame.samples = static_cast<uint32_t>(Number());
    frame.first_leaf = static_cast<uint32_t>(Number());
    frame.end_leaf = static_cast<uint32_t>(Number());
    frame.staleness = static_cast<uint32_t>(Number());
    // What the real worker might have sent would be taken for its own.
    if (frame.view == 1 && frame.worker == 0 && frame.kind == FrameKind::kPush) frame.view = 2;
    const size_t sizes[] = {0, 0, 4, 5, 15016, 16384, 16388};
    return Bytes(frame, sizes[Below(std::size(sizes))]);
  }

  // With a wrong byte among those that tell a frame from other bytes, or cut short.
  std::string Mangled(std::string message) {
    message[Below(5)] = static_cast<char>(random_());
    if (message[4] == 1) message[4] = 2;  // no push that was made a pull or the like
    return message.substr(0, Below(message.size() + 1));
  }

  std::mt19937_64 random_;
};

TEST_P(NonsenseTest, FramesAtRandom) {
  const uint64_t seed = 20261121;
  Fuzz fuzz(seed);
  int ended_with_reason = 0;
  for (int stream = 0; stream < 300; ++stream) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", stream ", stream));
    std::vector<std::string> messages;
    for (uint64_t i = 0; i <= fuzz.Below(6); ++i) messages.push_back(fuzz.Message());
    const grpc::Status status = Data(messages);
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::OK, grpc::StatusCode::INVALID_ARGUMENT))
        << status.error_message();
    if (!status.ok()) {
      EXPECT_THAT(status.error_message(), Not(IsEmpty()));
      ++ended_with_reason;
    }
  }
  EXPECT_GT(ended_with_reason, 200);
  ExpectGoodEnd();
}

using EarlyTest = ClusterTest;

TEST_F(EarlyTest, FramesBeforeTheJobHasBegunAreRefused) {
  fs::create_directory(Path("run"));
  Process& shard = StartServer(0, {"security.mode=none"}, {"--run-dir", "run"});
  const std::string address = AwaitAddress("run", shard);
  for (const FrameKind kind : {FrameKind::kPush, FrameKind::kPull, FrameKind::kParameters}) {
    const grpc::Status status =
        SendAll(address, kDataMethod, {{kJobDigestKey, JobDigest(Job())}}, {Bytes(kind)});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("not begun"));
  }
  EXPECT_EQ(StartWorker({"security.mode=none", "cluster.address=" + address}).Wait().code, 0);
  EXPECT_EQ(shard.Wait().code, 0) << shard.err();
  Train("undisturbed");
  EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
}

}  // namespace
}  // namespace rubato
