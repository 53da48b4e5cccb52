// Any control messages, of two workers, two shards and strangers, to a coordinator in training: in
// sync or on arrival. An event is a byte that says which, one that says who, and its message behind
// two bytes that say how long it is.
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "google/protobuf/text_format.h"
#include "server/coordinator/coordinator.h"
#include "server/run/journal.h"
#include "server/run/metrics_file.h"
#include "tests/fuzz/input.h"

namespace rubato {
namespace {

constexpr char kJob[] =
    "cluster { servers: 2 workers { start: 2 min: 1 max: 3 } address: '127.0.0.1:1' "
    "start_timeout: 60 lease: 5 stall_timeout: 600 } "
    "optimizer { learning_rate: 0.1 learning_rate_parity: true clip_grad_norm: 1 } "
    "train { batch_size: 8 micro_batches: 4 until { epochs: 20 } } wire { chunk: 32 } "
    "evaluation { every { epochs: 1 } } metrics { every { steps: 1 } } "
    "checkpoint { every { steps: 4 } }";

class Fuzzed {
 public:
  explicit Fuzzed(bool sync) : core_(Job(sync), "digest", "1.0", {}, now_) {
    for (PeerId peer = 0; peer < 4; ++peer) {
      proto::PeerMessage message;
      proto::Registration* registration = message.mutable_registration();
      registration->set_version("1.0");
      registration->set_job_digest("digest");
      if (peer < 2) {
        registration->set_shard(static_cast<int>(peer));
      } else {
        registration->mutable_worker()->set_train_samples(20);
        registration->mutable_worker()->mutable_layout()->add_parameters()->add_shape(10);
      }
      Handle(coordinator::FromPeer{peer, message});
    }
    proto::PeerMessage opened;
    opened.mutable_shard_opened()->set_view(1);
    for (PeerId peer = 0; peer < 2; ++peer) Handle(coordinator::FromPeer{peer, opened});
    RUBATO_CHECK(core_.Status(now_).state() == "training");
  }

  void Run(FuzzInput input) {
    while (!input.empty()) {
      const uint8_t kind = input.Byte();
      const PeerId peer = input.Byte() % 6;
      switch (kind % 8) {
        case 0:
          now_ += absl::Milliseconds(100) * peer;
          Handle(coordinator::Tick{});
          break;
        case 1:
          Handle(coordinator::PeerGone{peer});
          break;
        case 2: {
          proto::HeartbeatRequest request;
          request.set_job_digest("digest");
          request.set_rank(input.Byte());
          request.set_incarnation(input.Byte());
          Handle(coordinator::Heartbeat{request});
          break;
        }
        case 3:
          Handle(coordinator::CheckpointRequested{});
          break;
        default: {
          const size_t size = input.Byte() | input.Byte() << 8;
          const absl::string_view bytes = input.Bytes(size);
          proto::PeerMessage message;
          // Shard 0 is this process.
          if (peer == kOwnShard ||
              !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
            break;
          Handle(coordinator::FromPeer{peer, message});
        }
      }
    }
  }

 private:
  static proto::Job Job(bool sync) {
    proto::Job job;
    RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat(kJob, "consistency { mode { mode: ", sync ? "NAME_SYNC" : "NAME_ASYNC",
                     " } }"),
        &job));
    return job;
  }

  void Handle(const coordinator::Event& event) {
    for (const coordinator::Outcome& outcome : core_.Handle(event, now_)) {
      if (const auto* line = std::get_if<MetricsLine>(&outcome)) ToJson(*line);
      if (const auto* journal = std::get_if<coordinator::Journal>(&outcome)) {
        JournalLine(journal->view, journal->reason, now_);
      }
    }
    core_.Status(now_);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  Coordinator core_;
};

}  // namespace
}  // namespace rubato

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  rubato::Fuzzed(/*sync=*/data[0] % 2 == 0).Run(rubato::FuzzInput(data + 1, size - 1));
  return 0;
}
