#include "tensor/cuda/product_list.h"

#include <sys/mman.h>

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"

namespace rubato {
namespace {

class ListingQueue {
 public:
  static constexpr bool kHasDouble = false;

  explicit ListingQueue(std::vector<Product>* products) : products_(*products) {}

  template <typename Kernel>
  void Launch(int64_t, int, const Kernel&) {}
  void Multiply(const Product& product) {
    MultiplyByLibrary(*this, product, [this](const Product& p) {
      products_.push_back(p);
      return true;
    });
  }

 private:
  std::vector<Product>& products_;
};

class ProductList final : public Device {
 public:
  explicit ProductList(std::vector<Product>* products) : queue_(products), kernels_(&queue_) {}
  ~ProductList() override {
    for (const auto& [memory, bytes] : memory_) munmap(memory, bytes);
  }

  std::string description() const override { return "a list of products"; }
  DeviceKernels& kernels() override { return kernels_; }

  // Addresses alone.
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return Map(bytes, PROT_NONE); }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    return Map(bytes, PROT_READ | PROT_WRITE);
  }
  int64_t free_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t total_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t reserved_bytes() const override { return 0; }

  void Upload(Stream, const void*, void*, int64_t) override {}
  void Download(Stream, const void*, void*, int64_t) override {}
  void Order(Stream, Stream) override {}
  void Signal(Stream) override {}
  void ResetSignals() override {}
  void AwaitSignals(int64_t) override {}
  void Synchronize() override {}

  // What is recorded is listed then, and no more when it is replayed.
  void BeginRecording() override {}
  int EndRecording() override { return 0; }
  void Replay(int) override {}

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
  ListingQueue queue_;
  GpuKernels<ListingQueue> kernels_;
};

}  // namespace

std::unique_ptr<Device> MakeProductList(std::vector<Product>* products) {
  return std::make_unique<ProductList>(products);
}

}  // namespace rubato
