#ifndef RUBATO_TENSOR_CUDA_EMULATED_QUEUE_H_
#define RUBATO_TENSOR_CUDA_EMULATED_QUEUE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

// Streams of work on the CPU. Nothing is done before the host waits, and then in any order that the
// streams allow, drawn from a seed: what misses an order, or reads on the host too early, shows.
// Blocks and threads run forwards or backwards, as drawn.
class EmulatedQueue {
 public:
  static constexpr bool kHasDouble = true;

  EmulatedQueue(ProductPrecision precision, uint64_t seed,
                EmulatedLibrary library = EmulatedLibrary::kWhole,
                AttentionForm attention = AttentionForm::kProducts,
                ConvolutionForm convolution = ConvolutionForm::kProducts)
      : precision_(precision),
        library_(library),
        attention_(attention),
        convolution_(convolution),
        partials_(kPartialSums, std::numeric_limits<double>::quiet_NaN()),
        random_(seed) {}

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    RUBATO_CHECK(blocks > 0 && threads % kWarp == 0 && threads <= MostThreadsOf<Kernel>::kValue);
    const bool backwards = random_.Below(2) == 1;
    Give(Stream::kCompute, [=] {
      for (int64_t i = 0; i < blocks; ++i) {
        HostBlock block(backwards ? blocks - 1 - i : i, threads, backwards);
        kernel(block);
      }
    });
  }

  void Multiply(const Product& product);

  // For sums on their way (column_sums.h).
  void* Partials(int64_t bytes) {
    RUBATO_CHECK(bytes <= static_cast<int64_t>(partials_.size() * sizeof(double)));
    return partials_.data();
  }

  // Of half floats, if it is asked for.
  int64_t AttentionWorkspace(const Attention& attention, int64_t n);
  void Attend(const FusedAttention& fused);
  // Of half floats, if it is asked for, and of what cuDNN takes.
  int64_t ConvolutionWorkspace(const Convolution& convolution, DType dtype, int64_t n);
  void Convolve(const FusedConvolution& fused);
  // Whether there has been any, planned or done.
  bool has_attention() const { return has_attention_; }
  bool has_convolutions() const { return has_convolutions_; }

  void Give(Stream stream, std::function<void()> work);
  void Order(Stream waiting, Stream other);
  // Does work until `until` holds, or all is done.
  void Run(const std::function<bool()>& until);

  void BeginRecording();
  int EndRecording();
  void Replay(int recording);

 private:
  // Work, or a wait for the `count` first pieces of another stream.
  struct Piece {
    std::function<void()> work;
    int other = 0;
    int64_t count = 0;
  };
  struct Recorded {
    Stream stream;
    std::function<void()> work;  // or an order
    Stream other;
  };

  // What the library is asked for must be allowed (product_contract.h). False if it lacks it.
  bool AskLibrary(const Product& product);
  bool IsReady(const Piece& piece) const { return piece.work || done_[piece.other] >= piece.count; }

  const ProductPrecision precision_;
  const EmulatedLibrary library_;
  const AttentionForm attention_;
  const ConvolutionForm convolution_;
  bool has_attention_ = false, has_convolutions_ = false;
  std::vector<double> partials_;
  RandomStream random_;
  std::array<std::deque<Piece>, kStreams> streams_;
  std::array<int64_t, kStreams> given_ = {}, done_ = {};
  bool is_recording_ = false;
  std::vector<std::vector<Recorded>> recordings_;
};

// An emulated GPU's.
EmulatedQueue& QueueOf(Device& device);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_EMULATED_QUEUE_H_
