#include "tensor/cuda/work_list.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cctype>
#include <cstdlib>
#include <limits>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"

namespace rubato {
namespace {

class ListingQueue {
 public:
  static constexpr bool kHasDouble = false;

  ListingQueue(std::vector<Work>* work, AttentionForm attention, ConvolutionForm convolution,
               void* partials)
      : work_(*work), attention_(attention), convolution_(convolution), partials_(partials) {}

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    Work work = {Work::kKernel, Stream::kCompute};
    work.is_attention = in_attention_;
    work.kernel = ShortKernelName(typeid(Kernel).name());
    work.blocks = blocks;
    work.threads = threads;
    work.traffic = kernel.Moves(blocks);
    work_.push_back(std::move(work));
  }
  void* Partials(int64_t) const { return partials_; }
  void Multiply(const Product& product) {
    MultiplyByLibrary(*this, product, [this](const Product& p) {
      Work work = {Work::kProduct, Stream::kCompute};
      work.is_attention = in_attention_;
      work.product = p;
      work_.push_back(std::move(work));
      return true;
    });
  }

  int64_t AttentionWorkspace(const Attention& attention, int64_t n) const {
    const bool is_fused = attention_ == AttentionForm::kFused && IsHalf(attention.dtype);
    return is_fused ? CudnnAttentionWorkspace(attention, n) : -1;
  }
  void Attend(const FusedAttention& fused) {
    Work work = {Work::kAttention, Stream::kCompute};
    work.is_attention = true;
    work.attention = fused;
    work_.push_back(std::move(work));
  }

  int64_t ConvolutionWorkspace(const Convolution& convolution, DType dtype, int64_t n) const {
    const bool is_fused =
        convolution_ == ConvolutionForm::kFused && IsHalf(dtype) && CudnnTakes(convolution);
    return is_fused ? CudnnConvolutionWorkspace(convolution, n) : -1;
  }
  void Convolve(const FusedConvolution& fused) {
    work_.push_back({Work::kConvolution, Stream::kCompute});
    work_.back().convolution = fused;
  }

  void set_in_attention(bool value) { in_attention_ = value; }

 private:
  std::vector<Work>& work_;
  const AttentionForm attention_;
  const ConvolutionForm convolution_;
  void* const partials_;
  bool in_attention_ = false;
};

// A GPU's kernels, and which of them are attention's.
class ListingKernels final : public GpuKernels<ListingQueue> {
 public:
  explicit ListingKernels(ListingQueue* queue) : GpuKernels(queue), queue_(*queue) {}

  void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                                 const TensorRef& y, const TensorRef& saved,
                                 const TensorRef& scratch) override {
    queue_.set_in_attention(true);
    GpuKernels::ScaledDotProductAttention(heads, causal, x, y, saved, scratch);
    queue_.set_in_attention(false);
  }
  void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                         const ConstTensorRef& y, const ConstTensorRef& saved,
                                         const ConstTensorRef& dy, const TensorRef& dx,
                                         const TensorRef& scratch) override {
    queue_.set_in_attention(true);
    GpuKernels::ScaledDotProductAttentionBackward(heads, causal, x, y, saved, dy, dx, scratch);
    queue_.set_in_attention(false);
  }

 private:
  ListingQueue& queue_;
};

class WorkList final : public Device {
 public:
  WorkList(std::vector<Work>* work, AttentionForm attention, ConvolutionForm convolution)
      : work_(*work),
        queue_(work, attention, convolution, Map(kPartialSums * sizeof(float), PROT_NONE).value()),
        kernels_(&queue_) {}
  ~WorkList() override {
    for (const auto& [memory, bytes] : memory_) munmap(memory, bytes);
  }

  std::string description() const override { return "a list of work"; }
  DeviceKernels& kernels() override { return kernels_; }

  // Addresses alone.
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return Map(bytes, PROT_NONE); }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    return Map(bytes, PROT_READ | PROT_WRITE);
  }
  bool Pin(void*, int64_t) override { return true; }
  int64_t free_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t total_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t reserved_bytes() const override { return 0; }

  void Upload(Stream stream, const void*, void*, int64_t bytes) override {
    work_.push_back({Work::kUpload, stream});
    work_.back().bytes = bytes;
  }
  void Download(Stream stream, const void*, void*, int64_t bytes) override {
    work_.push_back({Work::kDownload, stream});
    work_.back().bytes = bytes;
  }
  void Order(Stream waiting, Stream other) override {
    work_.push_back({Work::kOrder, waiting, other});
  }
  void Signal(Stream stream) override { work_.push_back({Work::kSignal, stream}); }
  void ResetSignals() override {}
  void AwaitSignals(int64_t) override {}
  void Synchronize() override {}

  // What is recorded is listed when it is replayed.
  void BeginRecording() override { recorded_from_ = work_.size(); }
  int EndRecording() override {
    const auto begin = work_.begin() + static_cast<int64_t>(recorded_from_);
    recordings_.emplace_back(begin, work_.end());
    work_.erase(begin, work_.end());
    return static_cast<int>(recordings_.size()) - 1;
  }
  void Replay(int recording) override {
    work_.insert(work_.end(), recordings_[recording].begin(), recordings_[recording].end());
  }

 private:
  absl::StatusOr<void*> Map(int64_t bytes, int protection) {
    void* const memory =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("no addresses for ", bytes, " bytes"));
    }
    memory_.push_back({memory, bytes});
    return memory;
  }

  std::vector<std::pair<void*, int64_t>> memory_;
  std::vector<Work>& work_;
  size_t recorded_from_ = 0;
  std::vector<std::vector<Work>> recordings_;
  ListingQueue queue_;
  ListingKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> MakeWorkList(std::vector<Work>* work, AttentionForm attention,
                                     ConvolutionForm convolution) {
  return std::make_unique<WorkList>(work, attention, convolution);
}

std::vector<Product> ProductsOf(const std::vector<Work>& work) {
  std::vector<Product> products;
  for (const Work& each : work) {
    if (each.product.has_value()) products.push_back(*each.product);
  }
  return products;
}

// As short() of kernel_table.py: without namespaces and spaces.
std::string ShortKernelName(const char* mangled) {
  int status = 0;
  char* const full = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string name = status == 0 ? full : mangled;
  std::free(full);
  std::string result;
  size_t word = 0;  // where the word at hand begins in the result
  for (size_t i = 0; i < name.size(); ++i) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(name[i])) || name[i] == '_';
    if (is_word) {
      result += name[i];
    } else if (name.compare(i, 2, "::") == 0) {
      result.resize(word);
      ++i;
    } else {
      if (name[i] != ' ') result += name[i];
      word = result.size();
    }
  }
  return result;
}

}  // namespace rubato
