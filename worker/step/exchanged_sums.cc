#include "worker/step/exchanged_sums.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace rubato {
namespace {

TensorRef At(float* values, int64_t size) { return TensorRef::At(values, DType::kFloat32, {size}); }

}  // namespace

absl::StatusOr<std::unique_ptr<ExchangedSums>> ExchangedSums::Create(
    std::unique_ptr<Exchange> exchange, std::vector<Model*> models, int64_t places, int64_t most) {
  std::unique_ptr<ExchangedSums> sums(
      new ExchangedSums(std::move(exchange), std::move(models), places, most));
  RUBATO_RETURN_IF_ERROR(sums->Allocate());
  return sums;
}

ExchangedSums::ExchangedSums(std::unique_ptr<Exchange> exchange, std::vector<Model*> models,
                             int64_t places, int64_t most)
    : exchange_(std::move(exchange)),
      models_(std::move(models)),
      slices_(models_[0]->parameter_count(), exchange_->gpus(), most),
      places_(places) {
  RUBATO_CHECK(exchange_->gpus() == static_cast<int>(models_.size()));
}

absl::Status ExchangedSums::Allocate() {
  const int64_t each = slices_.values_of_each();
  const int64_t values = slices_.padded_values() + places_ * each;
  for (int i = 0; i < exchange_->gpus(); ++i) {
    Device& gpu = exchange_->gpu(i);
    const int64_t bytes = values * static_cast<int64_t>(sizeof(float));
    if (bytes > gpu.free_bytes() - gpu.reserved_bytes()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          gpu.description(), " has ", gpu.free_bytes(), " bytes free beside its model, ", bytes,
          " are needed, and ", gpu.reserved_bytes(), " that its libraries take"));
    }
    RUBATO_ASSIGN_OR_RETURN(void* const memory, gpu.Allocate(bytes));
    RUBATO_ASSIGN_OR_RETURN(void* const host, gpu.AllocatePinned(2 * each * sizeof(float)));
    Memory of;
    of.parameters = models_[i]->parameters_there().values<float>().data();
    of.own = models_[i]->sum_there().values<float>().data();
    of.received = static_cast<float*>(memory);
    of.waiting = of.received + slices_.padded_values();
    of.sent = static_cast<float*>(host);
    of.staged = of.sent + each;
    memory_.push_back(of);
    parameters_.push_back(of.parameters);
    received_.push_back(of.received);
    own_.push_back(of.own);
  }
  return absl::OkStatus();
}

bool ExchangedSums::SendParameters(absl::Span<const float> parameters, AwaitParameters await) {
  std::vector<float*> places(parameters_.size());
  const bool is_pinned = models_[0]->IsPinned(parameters);
  bool goes_on = true;
  for (int64_t chunk = 0; goes_on && chunk < slices_.chunks(); ++chunk) {
    goes_on = await(slices_.Chunk(chunk));
    if (!goes_on) break;
    for (int i = 0; i < slices_.gpus(); ++i) {
      Device& gpu = exchange_->gpu(i);
      const Range slice = slices_.Slice(chunk, i);
      places[i] = parameters_[i] + slices_.Chunk(chunk).begin;
      if (slice.size() > 0) {
        const float* from = parameters.data() + slice.begin;
        const int64_t bytes = slice.size() * static_cast<int64_t>(sizeof(float));
        if (!is_pinned) {
          float* const staged = memory_[i].sent + slices_.Place(chunk);
          std::memcpy(staged, from, bytes);
          copied_bytes_ += bytes;
          from = staged;
        }
        gpu.Upload(Stream::kUpload, from, parameters_[i] + slice.begin, bytes);
      }
      gpu.Order(Stream::kCompute, Stream::kUpload);
    }
    exchange_->AllGather(places, slices_.Length(chunk));
  }
  for (int i = 0; i < slices_.gpus(); ++i) exchange_->gpu(i).Synchronize();
  for (Model* model : models_) {
    if (goes_on) model->OnParametersThere();
  }
  return goes_on;
}

void ExchangedSums::BeginRound(SumsOfRound round, absl::Span<float> sum) {
  RUBATO_CHECK(untaken_ == -1);
  round_ = std::move(round);
  sum_ = sum;
  pins_sum_ = !sum.empty() && models_[0]->IsPinned(TensorRef(sum));
  next_ = untaken_ = slices_.chunks() - 1;
  for (int i = 0; i < slices_.gpus(); ++i) exchange_->gpu(i).ResetSignals();
}

std::optional<int64_t> ExchangedSums::next() const {
  return next_ < 0 ? std::nullopt : std::optional<int64_t>(slices_.Chunk(next_).begin);
}

int64_t ExchangedSums::Give(int64_t done) {
  for (; next_ >= 0 && slices_.Chunk(next_).begin >= done; --next_) GiveChunk(next_);
  for (; untaken_ > next_ + 1; --untaken_) TakeChunk(untaken_);
  return slices_.Chunk(untaken_).end;
}

int64_t ExchangedSums::Finish() {
  for (; untaken_ > next_; --untaken_) TakeChunk(untaken_);
  return slices_.Chunk(untaken_).end;
}

void ExchangedSums::GiveChunk(int64_t chunk) {
  const int64_t begin = slices_.Chunk(chunk).begin;
  std::vector<const float*> from = own_;
  std::vector<float*> to = received_;
  for (int i = 0; i < slices_.gpus(); ++i) {
    from[i] += begin;
    to[i] += begin;
  }
  exchange_->AllToAll(from, to, slices_.Length(chunk));
  for (int i = 0; i < slices_.gpus(); ++i) AddSlices(chunk, i);
}

void ExchangedSums::AddSlices(int64_t chunk, int gpu) {
  Device& device = exchange_->gpu(gpu);
  const Range slice = slices_.Slice(chunk, gpu);
  const auto of = [&](int64_t lane) {
    const int64_t offset = slices_.Chunk(chunk).begin + lane * slices_.Length(chunk);
    return At(memory_[gpu].received + offset, slice.size());
  };
  const auto waiting = [&](int64_t place) { return At(Place(gpu, place, chunk), slice.size()); };
  if (slice.size() > 0) {
    for (const SumsOfRound::Addition& addition : round_.additions) {
      const TensorRef to = of(addition.to);
      device.kernels().AddTensors(addition.from < 0 ? waiting(~addition.from) : of(addition.from),
                                  to, to);
    }
    for (const SumsOfRound::Wait& wait : round_.waits) {
      device.kernels().Copy(of(wait.item), waiting(wait.place));
    }
  }
  device.Order(Stream::kDownload, Stream::kCompute);
  if (round_.whole >= 0 && slice.size() > 0) {
    device.Download(
        Stream::kDownload, of(round_.whole).address(),
        pins_sum_ ? sum_.data() + slice.begin : memory_[gpu].staged + slices_.Place(chunk),
        slice.size() * static_cast<int64_t>(sizeof(float)));
  }
  device.Signal(Stream::kDownload);
}

void ExchangedSums::TakeChunk(int64_t chunk) {
  for (int i = 0; i < slices_.gpus(); ++i) {
    exchange_->gpu(i).AwaitSignals(slices_.chunks() - chunk);
    const Range slice = slices_.Slice(chunk, i);
    if (sum_.empty() || pins_sum_ || slice.size() == 0) continue;
    const int64_t bytes = slice.size() * static_cast<int64_t>(sizeof(float));
    std::memcpy(sum_.data() + slice.begin, memory_[i].staged + slices_.Place(chunk), bytes);
    copied_bytes_ += bytes;
  }
}

}  // namespace rubato
