#include "tensor/cuda/nccl_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/nccl_gpu.h"
#include "tensor/cuda/nccl_library.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

// A first exchange sets up what NCCL needs between GPUs, which takes seconds; some machines' boards
// let GPUs hang that reach for each other's memory, which it shows, too.
constexpr absl::Duration kTrialPatience = absl::Minutes(1);
constexpr absl::Duration kPause = absl::Milliseconds(1);
constexpr int64_t kTried = 64;  // values that go from each to each

// One thread gives NCCL all GPUs' parts of an exchange, in a group: so the order is the same for
// all, and none of them waits on the chip for another whose host thread is not there yet. Nothing
// is recorded: whether work of NCCL's is must be the same for all GPUs of it, and their graphs may
// then hang that one process launches (NCCL user guide, "Using NCCL with CUDA Graphs").
class NcclExchange final : public Exchange {
 public:
  explicit NcclExchange(std::vector<int> indices)
      : indices_(std::move(indices)),
        what_(absl::StrCat("an exchange among GPUs ", absl::StrJoin(indices_, ", "))) {
    for (const int index : indices_) {
      parts_.push_back(absl::StrCat("GPU ", index, "'s part of ", what_));
    }
  }
  ~NcclExchange() override;

  absl::Status Open(absl::Duration patience);

  int gpus() const override { return static_cast<int>(indices_.size()); }
  std::string description() const override { return absl::StrCat("NCCL ", nccl_->version); }
  Device& gpu(int i) override { return *gpus_[i]; }

  void AllToAll(absl::Span<const float* const> from, absl::Span<float* const> to,
                int64_t count) override {
    Check(GiveAllToAll(from, to, count));
  }
  void AllGather(absl::Span<float* const> values, int64_t count) override {
    Check(GiveAllGather(values, count));
  }

 private:
  // On the GPUs' streams, from their memory.
  absl::Status GiveAllToAll(absl::Span<const float* const> from, absl::Span<float* const> to,
                            int64_t count) const;
  absl::Status GiveAllGather(absl::Span<float* const> values, int64_t count) const;
  // What is given for each GPU, as one.
  absl::Status Group(absl::FunctionRef<ncclResult_t(int gpu)> give) const;
  static void Check(const absl::Status& status);
  // What has failed since it was given, on any GPU.
  absl::Status AsyncStatus() const;

  absl::Status TryOut(absl::Duration patience);
  absl::Status AwaitTrial(absl::Duration patience) const;
  // Ends what is under way.
  void Abort();

  const std::vector<int> indices_;
  // What is said to have failed: all of it or, by GPU, a part.
  const std::string what_;
  std::vector<std::string> parts_;
  std::shared_ptr<const Nccl> nccl_;
  std::vector<std::unique_ptr<Device>> gpus_;
  std::vector<cudaStream_t> streams_;
  std::vector<ncclComm_t> communicators_;  // none if it is not open
};

absl::Status NcclExchange::Open(absl::Duration patience) {
  RUBATO_ASSIGN_OR_RETURN(nccl_, Nccl::Open());
  for (const int index : indices_) {
    RUBATO_ASSIGN_OR_RETURN(
        std::unique_ptr<Device> gpu,
        OpenGpu(index, ProductPrecision::kFloat32, AttentionForm::kProducts, patience));
    streams_.push_back(ComputeStreamOf(*gpu));
    gpus_.push_back(std::move(gpu));
  }
  std::vector<ncclComm_t> communicators(indices_.size());
  RUBATO_RETURN_IF_ERROR(
      nccl_->StatusOf(nccl_->CommInitAll(communicators.data(), gpus(), indices_.data()),
                      absl::StrCat("the opening of ", what_)));
  communicators_ = std::move(communicators);
  const absl::Status tried = TryOut(std::min(patience, kTrialPatience));
  if (!tried.ok()) {
    Abort();
    return tried;
  }
  for (const auto& gpu : gpus_) {
    CallWhileWaiting(gpu.get(), [this] { Check(AsyncStatus()); });
  }
  return absl::OkStatus();
}

// As in CudaDevice's, nothing is checked.
NcclExchange::~NcclExchange() {
  if (communicators_.empty()) return;
  if (!AsyncStatus().ok()) {
    Abort();
    return;
  }
  for (const ncclComm_t communicator : communicators_) nccl_->CommDestroy(communicator);
}

void NcclExchange::Abort() {
  for (const ncclComm_t communicator : communicators_) nccl_->CommAbort(communicator);
  communicators_.clear();
}

absl::Status NcclExchange::Group(absl::FunctionRef<ncclResult_t(int gpu)> give) const {
  RUBATO_RETURN_IF_ERROR(nccl_->StatusOf(nccl_->GroupStart(), what_));
  absl::Status given;
  for (int i = 0; i < gpus() && given.ok(); ++i) given = nccl_->StatusOf(give(i), parts_[i]);
  const absl::Status ended = nccl_->StatusOf(nccl_->GroupEnd(), what_);
  return given.ok() ? ended : given;
}

absl::Status NcclExchange::GiveAllToAll(absl::Span<const float* const> from,
                                        absl::Span<float* const> to, int64_t count) const {
  return Group([&](int i) {
    if (nccl_->AlltoAll != nullptr) {
      return nccl_->AlltoAll(from[i], to[i], count, ncclFloat32, communicators_[i], streams_[i]);
    }
    for (int peer = 0; peer < gpus(); ++peer) {
      const ncclResult_t sent = nccl_->Send(from[i] + peer * count, count, ncclFloat32, peer,
                                            communicators_[i], streams_[i]);
      if (sent != ncclSuccess) return sent;
      const ncclResult_t received = nccl_->Recv(to[i] + peer * count, count, ncclFloat32, peer,
                                                communicators_[i], streams_[i]);
      if (received != ncclSuccess) return received;
    }
    return ncclSuccess;
  });
}

absl::Status NcclExchange::GiveAllGather(absl::Span<float* const> values, int64_t count) const {
  return Group([&](int i) {
    return nccl_->AllGather(values[i] + i * count, values[i], count, ncclFloat32, communicators_[i],
                            streams_[i]);
  });
}

void NcclExchange::Check(const absl::Status& status) {
  if (status.ok()) return;
  UseAllGpus();
  EndProcess(status);
}

absl::Status NcclExchange::AsyncStatus() const {
  for (int i = 0; i < gpus(); ++i) {
    ncclResult_t error = ncclSuccess;
    RUBATO_RETURN_IF_ERROR(
        nccl_->StatusOf(nccl_->CommGetAsyncError(communicators_[i], &error), parts_[i]));
    if (error == ncclInProgress) continue;
    RUBATO_RETURN_IF_ERROR(nccl_->StatusOf(error, parts_[i]));
  }
  return absl::OkStatus();
}

absl::Status NcclExchange::TryOut(absl::Duration patience) {
  const int64_t n = gpus(), values = n * kTried, bytes = values * sizeof(float);
  const auto value = [&](int64_t gpu, int64_t i) { return static_cast<float>(gpu * values + i); };
  std::vector<float*> sent, received, host;
  std::vector<const float*> from;
  for (int i = 0; i < n; ++i) {
    RUBATO_ASSIGN_OR_RETURN(void* const memory, gpus_[i]->Allocate(2 * bytes));
    RUBATO_ASSIGN_OR_RETURN(void* const pinned, gpus_[i]->AllocatePinned(2 * bytes));
    sent.push_back(static_cast<float*>(memory));
    received.push_back(sent[i] + values);
    host.push_back(static_cast<float*>(pinned));
    for (int64_t k = 0; k < values; ++k) host[i][k] = value(i, k);
    gpus_[i]->Upload(Stream::kCompute, host[i], sent[i], bytes);
    from.push_back(sent[i]);
  }
  RUBATO_RETURN_IF_ERROR(GiveAllToAll(from, received, kTried));
  RUBATO_RETURN_IF_ERROR(GiveAllGather(sent, kTried));
  for (int i = 0; i < n; ++i) {
    gpus_[i]->Download(Stream::kCompute, sent[i], host[i], 2 * bytes);
  }
  RUBATO_RETURN_IF_ERROR(AwaitTrial(patience));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < values; ++k) {
      const int64_t other = k / kTried;
      if (host[i][k] == value(other, k) &&
          host[i][values + k] == value(other, i * kTried + k % kTried)) {
        continue;
      }
      return absl::InternalError(absl::StrCat("GPU ", indices_[i],
                                              " received other values than GPU ", indices_[other],
                                              " sent, in a first exchange by NCCL"));
    }
  }
  return absl::OkStatus();
}

absl::Status NcclExchange::AwaitTrial(absl::Duration patience) const {
  const Patience trial(patience, MonotonicNow());
  for (int i = 0; i < gpus(); ++i) {
    UseGpu(indices_[i]);
    cudaError_t error;
    while ((error = cudaStreamQuery(streams_[i])) == cudaErrorNotReady) {
      RUBATO_RETURN_IF_ERROR(AsyncStatus());
      if (!trial.Check(MonotonicNow(), "").ok()) {
        return absl::DeadlineExceededError(
            absl::StrCat("a first exchange by NCCL has not come to its end on GPU ", indices_[i],
                         " in ", absl::FormatDuration(patience)));
      }
      absl::SleepFor(kPause);
    }
    RUBATO_RETURN_IF_ERROR(CudaStatus(error, parts_[i].c_str()));
  }
  return AsyncStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exchange>> OpenNcclExchange(const std::vector<int>& gpus,
                                                           absl::Duration patience) {
  auto exchange = std::make_unique<NcclExchange>(gpus);
  RUBATO_RETURN_IF_ERROR(exchange->Open(patience));
  return exchange;
}

}  // namespace rubato
