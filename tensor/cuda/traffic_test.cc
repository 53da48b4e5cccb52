// What each kernel says that it moves, against what it touches.
#include "tensor/cuda/traffic.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <typeinfo>
#include <vector>

#include "gtest/gtest.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"
#include "tensor/cuda/traced_memory.h"
#include "tensor/cuda/work_list.h"

namespace rubato {
namespace {

// Which of its values are accessed.
class CountedMemory {
 public:
  CountedMemory()
      : accesses_(kBytes), memory_(kBytes, [this](int64_t at, bool writes) {
          if (writes) {
            accesses_[at] |= kWritten;
          } else if ((accesses_[at] & kWritten) == 0) {
            accesses_[at] |= kRead;
          }
        }) {}

  TensorRef Take(DType dtype, const std::vector<int64_t>& shape) {
    const int64_t bytes = SizeOf(shape) * BytesOf(dtype);
    void* const taken = memory_.Take(bytes);
    const int64_t begin = memory_.OffsetOf(taken);
    pieces_.push_back({begin, begin + bytes, BytesOf(dtype)});
    return TensorRef::At(taken, dtype, Shape(shape.begin(), shape.end()));
  }

  // `size` float32s lie there, in a piece of smaller values.
  void HoldsFloats(const float* values, int64_t size) {
    const int64_t begin = memory_.OffsetOf(values), end = begin + size * 4;
    for (Piece& piece : pieces_) {
      if (begin < piece.begin || end > piece.end) continue;
      const Piece rest = {end, piece.end, piece.value_bytes};
      piece.end = begin;
      pieces_.push_back({begin, end, 4});
      pieces_.push_back(rest);
      return;
    }
  }

  void Watch() {
    std::fill(accesses_.begin(), accesses_.end(), 0);
    memory_.Watch();
  }
  void Stop() { memory_.Stop(); }

  // Since Watch: of the values that were read, but for those that had been written before, and of
  // those that were written.
  int64_t read_bytes() const { return BytesOfAll(kRead); }
  int64_t written_bytes() const { return BytesOfAll(kWritten); }

 private:
  static constexpr int64_t kBytes = 1 << 17;
  enum Access : uint8_t { kRead = 1, kWritten = 2 };
  struct Piece {
    int64_t begin, end, value_bytes;
  };

  int64_t BytesOfAll(Access access) const {
    int64_t bytes = 0;
    for (const Piece& piece : pieces_) {
      for (int64_t at = piece.begin; at < piece.end; ++at) {
        if ((accesses_[at] & access) != 0) bytes += piece.value_bytes;
      }
    }
    return bytes;
  }

  std::vector<uint8_t> accesses_;  // by where they begin
  std::vector<Piece> pieces_;
  TracedMemory memory_;
};

// Runs kernels at once, and compares. It has no library of products, and one of convolutions that
// does nothing.
class TracingQueue : public NoFusedAttention {
 public:
  static constexpr bool kHasDouble = false;

  TracingQueue(CountedMemory* memory, std::set<std::string>* seen)
      : memory_(*memory), seen_(*seen) {}

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    const std::string name = ShortKernelName(typeid(Kernel).name());
    const Traffic told = kernel.Moves(blocks);
    memory_.Watch();
    for (int64_t i = 0; i < blocks; ++i) {
      HostBlock block(i, threads, /*backwards=*/false);
      kernel(block);
    }
    memory_.Stop();
    EXPECT_EQ(told.read, memory_.read_bytes()) << name;
    EXPECT_EQ(told.written, memory_.written_bytes()) << name;
    EXPECT_EQ(told.load > 0, told.read > 0) << name;
    seen_.insert(name);
  }
  void* Partials(int64_t bytes) {
    const int64_t sums = bytes / static_cast<int64_t>(sizeof(float));
    return const_cast<void*>(memory_.Take(DType::kFloat32, {sums}).address());
  }
  void Multiply(const Product& product) {
    MultiplyByLibrary(*this, product, [](const Product&) { return false; });
  }
  int64_t ConvolutionWorkspace(const Convolution& c, DType dtype, int64_t) const {
    return IsHalf(dtype) && CudnnTakes(c) ? 0 : -1;
  }
  void Convolve(const FusedConvolution& fused) {
    const Convolution& c = fused.convolution;
    memory_.HoldsFloats(fused.dweight, c.out_channels * c.filter());
  }

 private:
  CountedMemory& memory_;
  std::set<std::string>& seen_;
};

// Kernels of one type, each case in fresh memory.
class Cases {
 public:
  Cases(DType type, std::set<std::string>* seen) : type_(type), seen_(*seen) {}

  void Run(const std::function<void()>& call) {
    CountedMemory memory;
    TracingQueue queue(&memory, &seen_);
    GpuKernels<TracingQueue> kernels(&queue);
    memory_ = &memory;
    kernels_ = &kernels;
    call();
  }

  TensorRef T(std::vector<int64_t> shape) { return memory_->Take(type_, shape); }
  TensorRef Wide(std::vector<int64_t> shape) { return memory_->Take(DType::kFloat32, shape); }
  TensorRef Of(DType type, std::vector<int64_t> shape) { return memory_->Take(type, shape); }
  GpuKernels<TracingQueue>& kernels() { return *kernels_; }

  void All() {
    SingleValues();
    Products();
    for (const Window& window :
         {Window{7, 6, 3, 2, 1}, Window{5, 7, 2, 3, 0}, Window{4, 4, 1, 1, 0}}) {
      Convolutions(window);
      for (const int64_t inner : {1, 3, 8})  // 8: packs
        Pools({window.height, window.width, window.kernel, window.stride, window.padding, inner});
    }
    Norms();
    Ends();
  }

 private:
  void SingleValues();
  void Products();
  void Convolutions(const Window& window);
  void Convolve(const Convolution& convolution);
  void Pools(const Window& window);
  void Norms();
  void Ends();

  const DType type_;
  std::set<std::string>& seen_;
  CountedMemory* memory_ = nullptr;
  GpuKernels<TracingQueue>* kernels_ = nullptr;
};

void Cases::SingleValues() {
  constexpr int64_t n = 300;  // more than a block has threads
  Run([&] { kernels().Copy(T({n}), T({n})); });
  Run([&] { kernels().SetToZero(T({n})); });
  Run([&] { kernels().SetToZero(Of(DType::kFloat64, {3})); });
  Run([&] { kernels().AddTensors(T({n}), T({n}), T({n})); });
  Run([&] {  // in place
    const TensorRef sum = T({n});
    kernels().AddTensors(sum, T({n}), sum);
  });
  Run([&] { kernels().Multiply(T({n}), T({n}), T({n})); });
  Run([&] { kernels().AddRow(T({50, 7}), Wide({7}), T({50, 7})); });
  Run([&] { kernels().ColumnSums(T({50, 70}), Wide({70})); });
  Run([&] { kernels().ColumnSums(T({20, 8}), Wide({8})); });   // packs
  Run([&] { kernels().ColumnSums(T({512, 3}), Wide({3})); });  // groups of rows
  Run([&] { kernels().Relu(T({n}), T({n})); });
  Run([&] { kernels().ReluBackward(T({n}), T({n}), T({n})); });
  Run([&] { kernels().Sigmoid(T({n}), T({n})); });
  Run([&] { kernels().SigmoidBackward(T({n}), T({n}), T({n})); });
  Run([&] { kernels().Tanh(T({n}), T({n})); });
  Run([&] { kernels().TanhBackward(T({n}), T({n}), T({n})); });
  for (const int64_t values : {41, 16}) {  // one by one, and packs
    for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
      Run([&] { kernels().Gelu(form, T({values}), T({values})); });
      Run([&] { kernels().GeluWithDerivative(form, T({values}), T({values}), T({values})); });
    }
  }
  Run([&] {
    const TensorRef key = Of(DType::kFloat64, {1});
    kernels().Dropout(static_cast<const uint64_t*>(key.address()), 0.5, T({41}), T({41}));
  });
  Run([&] { kernels().Convert(Wide({n}), T({n})); });
  for (const int64_t size : {n, int64_t{1003}}) {
    Run([&] { kernels().FlagNonFinite(Wide({size}), Of(DType::kFloat64, {1})); });
  }
  Run([&] { kernels().ConvertFilters(Wide({5, 6, 9}), T({5, 9, 6})); });
  Run([&] {
    const TensorRef scale = Wide({1});
    scale.values<float>()[0] = 1;
    kernels().Unscale(scale, Wide({n}), Of(DType::kFloat64, {1}));
  });
}

void Cases::Products() {
  Run([&] { kernels().Linear(T({9, 5}), T({4, 5}), T({4}), T({9, 4})); });
  Run([&] { kernels().Linear(T({1, 5}), T({4, 5}), T({4}), T({1, 4})); });
  Run([&] {
    kernels().LinearBackward(T({9, 5}), T({4, 5}), T({9, 4}), T({9, 5}), Wide({4, 5}), Wide({4}));
  });
  Run([&] { kernels().Turn(T({3, 9, 24}), T({3, 24, 9})); });  // few rows
  Run([&] { kernels().Turn(T({2, 20, 24}), T({2, 24, 20})); });
  for (const bool causal : {false, true}) {
    constexpr int64_t n = 2, heads = 2, places = 5, channels = 6;
    constexpr int64_t scratch = 200;
    Run([&] {
      kernels().ScaledDotProductAttention(heads, causal, T({n, places, 3 * channels}),
                                          T({n, places, channels}), T({n, heads, places, places}),
                                          Wide({scratch}));
    });
    Run([&] {
      kernels().ScaledDotProductAttentionBackward(
          heads, causal, T({n, places, 3 * channels}), T({n, places, channels}),
          T({n, heads, places, places}), T({n, places, channels}), T({n, places, 3 * channels}),
          T({scratch}));
    });
  }
}

// In two groups, which are products, and of all channels at once.
void Cases::Convolutions(const Window& w) {
  for (const int64_t groups : {2, 1}) {
    for (const ChannelOrder x : {ChannelOrder::kFirst, ChannelOrder::kLast}) {
      for (const ChannelOrder y : {ChannelOrder::kFirst, ChannelOrder::kLast}) {
        Convolve({w, 4, 6, groups, x, y});
      }
    }
  }
}

void Cases::Convolve(const Convolution& c) {
  const Window& w = c.window;
  const int64_t n = 3, k = w.kernel, filter = 4 / c.groups;
  Run([&] {
    kernels().Conv2d(c, T({n, 4, w.height, w.width}), T({6, filter, k, k}), T({6}),
                     T({n, 6, w.out_height(), w.out_width()}),
                     T({kernels().ConvolutionScratch(c, type_, n)}));
  });
  Run([&] {
    kernels().Conv2dBackward(c, T({n, 4, w.height, w.width}), T({6, filter, k, k}),
                             T({n, 6, w.out_height(), w.out_width()}), T({n, 4, w.height, w.width}),
                             Wide({6, filter, k, k}), Wide({6}),
                             T({kernels().ConvolutionScratch(c, type_, n)}));
  });
}

void Cases::Pools(const Window& w) {
  const auto in = [&] { return T({2, w.height, w.width, w.inner}); };
  const auto out = [&] { return T({2, w.out_height(), w.out_width(), w.inner}); };
  const Planes planes = {w.height, w.width, w.inner};
  Run([&] {
    // A window's last value is its greatest, so that all are looked at.
    const TensorRef x = in(), y = out();
    for (int64_t i = 0; i < x.size(); ++i) {
      if (type_ == DType::kFloat32) x.values<float>()[i] = static_cast<float>(i);
      if (type_ == DType::kBFloat16) x.values<BFloat16>()[i] = BFloat16(static_cast<float>(i));
    }
    kernels().MaxPool2d(w, x, y);
    kernels().MaxPool2dBackward(w, x, y, out(), in());
  });
  for (const bool count_padding : {false, true}) {
    Run([&] { kernels().AvgPool2d(w, count_padding, in(), out()); });
    Run([&] { kernels().AvgPool2dBackward(w, count_padding, out(), in()); });
  }
  Run([&] { kernels().AdaptiveAvgPool2d(planes, 3, in(), T({2, 3, 3, w.inner})); });
  Run([&] { kernels().AdaptiveAvgPool2dBackward(planes, 3, T({2, 3, 3, w.inner}), in()); });
}

void Cases::Norms() {
  const double eps = 1e-5;
  Run([&] {
    kernels().LayerNorm(T({9, 70}), Wide({70}), Wide({70}), eps, T({9, 70}), Wide({9, 2}));
  });
  Run([&] {
    kernels().LayerNormBackward(T({9, 70}), Wide({70}), Wide({9, 2}), T({9, 70}), T({9, 70}),
                                Wide({70}), Wide({70}));
  });
  Run([&] {  // packs
    kernels().LayerNorm(T({9, 16}), Wide({16}), Wide({16}), eps, T({9, 16}), Wide({9, 2}));
  });
  Run([&] { kernels().LayerNorm(T({9, 16}), {}, {}, eps, T({9, 16}), Wide({9, 2})); });
  Run([&] {
    kernels().LayerNormBackward(T({9, 16}), Wide({16}), Wide({9, 2}), T({9, 16}), T({9, 16}),
                                Wide({16}), Wide({16}));
  });
  Run([&] {  // groups of rows
    kernels().LayerNormBackward(T({512, 1}), Wide({1}), Wide({512, 2}), T({512, 1}), {}, Wide({1}),
                                Wide({1}));
  });
  const auto x = [&] { return T({3, 6, 10}); };
  Run([&] { kernels().GroupNorm(2, x(), Wide({6}), Wide({6}), eps, x(), Wide({6, 2})); });
  Run([&] {
    kernels().GroupNormBackward(2, x(), Wide({6}), Wide({6, 2}), x(), x(), Wide({6}), Wide({6}));
  });
  Run([&] {
    kernels().BatchNorm(x(), Wide({6}), Wide({6}), eps, x(), Wide({6, 2}), 3, Wide({12}));
  });
  Run([&] {
    kernels().BatchNorm(x(), ConstTensorRef(), ConstTensorRef(), eps, x(), Wide({6, 2}), 0, {});
  });
  Run([&] {
    kernels().BatchNormBackward(x(), Wide({6}), Wide({6, 2}), x(), x(), Wide({6}), Wide({6}));
  });
  Run([&] {
    kernels().BatchNormByStatistics(x(), Wide({6}), Wide({6}), Wide({6}), Wide({6}), eps, x());
  });
  Run([&] {
    kernels().BatchNormByStatistics(x(), ConstTensorRef(), ConstTensorRef(), Wide({6}), Wide({6}),
                                    eps, x());
  });
  // Channels that lie behind one another: packs, single values, groups of rows, and few rows.
  for (const auto& [rows, channels] : {std::make_pair(70, 16), std::make_pair(70, 11),
                                       std::make_pair(700, 8), std::make_pair(2, 3)}) {
    const Shape shape = {rows, channels, 1};
    const int64_t c = channels;
    const auto values = [&] { return T({shape[0], c, 1}); };
    Run([&] {
      kernels().BatchNorm(values(), Wide({c}), Wide({c}), eps, values(), Wide({c, 2}), rows,
                          Wide({2 * c}));
    });
    Run([&] { kernels().BatchNorm(values(), {}, {}, eps, values(), Wide({c, 2}), 0, {}); });
    Run([&] {
      kernels().BatchNormBackward(values(), Wide({c}), Wide({c, 2}), values(), values(), Wide({c}),
                                  Wide({c}));
    });
    Run([&] {
      kernels().BatchNormBackward(values(), {}, Wide({c, 2}), values(), values(), {}, {});
    });
  }
}

void Cases::Ends() {
  // More rows than indices, each of which is there.
  const auto indices = [&](int64_t rows) {
    const TensorRef x = Wide({rows});
    for (int64_t i = 0; i < rows; ++i) x.values<float>()[i] = static_cast<float>(i % 4);
    return x;
  };
  Run([&] { kernels().Embed(indices(9), Wide({4, 40}), T({9, 40})); });
  Run([&] { kernels().EmbedBackward(indices(9), T({9, 40}), Wide({4, 40})); });
  Run([&] { kernels().EmbedBackward(indices(32), T({32, 40}), Wide({4, 40})); });  // many of each
  for (const double smoothing : {0.0, 0.1}) {
    CrossEntropyOptions options;
    options.label_smoothing = smoothing;
    Run([&] {
      kernels().CrossEntropy(T({9, 11}), Of(DType::kInt32, {9}), options, Wide({1}), T({9, 11}),
                             Of(DType::kFloat64, {9, 2}), Of(DType::kFloat64, {2}));
    });
    Run([&] {  // packs
      kernels().CrossEntropy(T({3, 16}), Of(DType::kInt32, {3}), options, Wide({1}), T({3, 16}),
                             Of(DType::kFloat64, {3, 2}), Of(DType::kFloat64, {2}));
    });
  }
  Run([&] {
    const TensorRef weights = Wide({11});
    const CrossEntropyOptions options = {0.1, -1, 1, weights.values<float>().data(), 1};
    kernels().CrossEntropy(T({9, 11}), Of(DType::kInt32, {9}), options, Wide({1}), T({9, 11}),
                           Of(DType::kFloat64, {9, 2}), Of(DType::kFloat64, {2}));
  });
  Run([&] {
    kernels().RegressionLoss(T({9, 11}), Wide({9, 11}), {}, 0.5, Wide({1}), T({9, 11}),
                             Of(DType::kFloat64, {9, 2}), Of(DType::kFloat64, {2}));
  });
}

// All kernels that nvcc made of these types, too, so that none is forgotten.
TEST(Traffic, IsWhatEachKernelTouches) {
  std::set<std::string> seen;
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) Cases(type, &seen).All();
  std::ifstream table("tensor/cuda/kernel_table.txt");
  ASSERT_TRUE(table.good());
  std::string line;
  std::getline(table, line);
  std::getline(table, line);
  int rows = 0;
  while (std::getline(table, line)) {
    const std::string name = line.substr(0, line.find(' '));
    if (name.find("Float16>") != std::string::npos && name.find("BFloat16") == std::string::npos) {
      continue;
    }
    if (name.find("<Float16") != std::string::npos) continue;
    ++rows;
    EXPECT_EQ(seen.count(name), 1u) << name;
  }
  EXPECT_GT(rows, 80);
}

}  // namespace
}  // namespace rubato
