// Kernels whose blocks are real threads with a real barrier between phases, for ThreadSanitizer: it
// sees what two threads of a phase do to one value. Results have the bits of the emulated GPU's,
// whose phases are loops.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"

namespace rubato {
namespace {

class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = round_;
    if (++waiting_ == threads_) {
      waiting_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int waiting_ = 0;
  int64_t round_ = 0;
};

// What one thread sees of its block: CudaBlock (cuda_launch.h), whose shuffles are a table here.
class ThreadBlock {
 public:
  struct Memory {
    explicit Memory(int threads) : barrier(threads) {}
    Barrier barrier;
    alignas(16) char memory[kMaxThreads * kSharedBytes];
    alignas(16) char table[kMaxThreads * kSharedBytes];
  };

  ThreadBlock(int64_t index, int threads, int thread, Memory* shared)
      : index_(index), threads_(threads), thread_(thread), shared_(*shared) {}

  int64_t index() const { return index_; }
  int threads() const { return threads_; }

  template <typename F>
  void ForEach(F f) {
    f(thread_);
    shared_.barrier.Wait();
  }

  template <typename A, typename F, typename Op>
  A Reduce(A identity, F f, Op op) {
    const int lane = thread_ % kWarp, warp = thread_ / kWarp;
    A* const totals = Shared<A>();
    A value = Halve(f(thread_), op);
    shared_.barrier.Wait();
    if (lane == 0) totals[warp] = value;
    shared_.barrier.Wait();
    const A mine = warp == 0 && lane < threads_ / kWarp ? totals[lane] : identity;
    value = Halve(mine, op);
    if (thread_ == 0) totals[0] = value;
    shared_.barrier.Wait();
    const A total = totals[0];
    shared_.barrier.Wait();
    return total;
  }

  template <typename A, typename F>
  A Sum(A identity, F f) {
    return Reduce(identity, f, Plus());
  }

  template <typename A>
  A* Shared() {
    return reinterpret_cast<A*>(shared_.memory);
  }

 private:
  template <typename A, typename Op>
  A Halve(A value, Op op) {
    A* const table = reinterpret_cast<A*>(shared_.table);
    for (int half = kWarp / 2; half > 0; half /= 2) {
      table[thread_] = value;
      shared_.barrier.Wait();
      // As __shfl_down_sync: who would read beyond the warp keeps its own.
      if (thread_ % kWarp + half < kWarp) value = op(value, table[thread_ + half]);
      shared_.barrier.Wait();
    }
    return value;
  }

  const int64_t index_;
  const int threads_, thread_;
  Memory& shared_;
};

class ThreadQueue : public NoFusedAttention, public NoFusedConvolution, public PartialsOnHost {
 public:
  static constexpr bool kHasDouble = true;

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    for (int64_t i = 0; i < blocks; ++i) {
      ThreadBlock::Memory shared(threads);
      std::vector<std::thread> all;
      for (int t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
          ThreadBlock block(i, threads, t, &shared);
          kernel(block);
        });
      }
      for (std::thread& thread : all) thread.join();
    }
  }
  void Multiply(const Product& product) { LaunchPlainProduct(*this, product); }
};

class LoopQueue : public NoFusedAttention, public NoFusedConvolution, public PartialsOnHost {
 public:
  static constexpr bool kHasDouble = true;

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    for (int64_t i = 0; i < blocks; ++i) {
      HostBlock block(i, threads, /*backwards=*/true);
      kernel(block);
    }
  }
  void Multiply(const Product& product) { LaunchPlainProduct(*this, product); }
};

using Values = std::vector<float>;

Values Draw(int64_t n, uint64_t key) {
  RandomStream stream(key);
  Values values(n);
  for (float& value : values) value = stream.Uniform(-1, 1);
  return values;
}

template <typename Call>
void ExpectSameBits(const std::vector<int64_t>& sizes, Call call) {
  std::vector<Values> expected, found;
  for (const int64_t size : sizes) expected.emplace_back(size, 77.0f);
  found = expected;
  LoopQueue loops;
  GpuKernels<LoopQueue> by_loops(&loops);
  call(by_loops, expected);
  ThreadQueue threads;
  GpuKernels<ThreadQueue> by_threads(&threads);
  call(by_threads, found);
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(std::memcmp(found[i].data(), expected[i].data(), sizes[i] * sizeof(float)), 0) << i;
  }
}

TensorRef As(Values& values, const Shape& shape) { return TensorRef(values).Reshaped(shape); }
ConstTensorRef As(const Values& values, const Shape& shape) {
  return ConstTensorRef(values).Reshaped(shape);
}

TEST(ThreadBlockTest, SumsOfColumns) {
  // Values one by one, packs, and groups of rows.
  for (const auto& [r, c] :
       {std::make_pair(45, 6), std::make_pair(45, 8), std::make_pair(530, 4)}) {
    const int64_t rows = r, columns = c;  // a binding cannot be captured
    const Values x = Draw(rows * columns, 1);
    ExpectSameBits({columns}, [&](KernelSet& k, auto& out) {
      k.ColumnSums(As(x, {rows, columns}), out[0]);
    });
  }
}

// As convolutions by cuDNN do, through what is shared: whole tiles and parts of tiles.
TEST(ThreadBlockTest, TurnedMatrices) {
  for (const auto& [r, c] : {std::make_pair(35, 9), std::make_pair(9, 136)}) {  // and of few rows
    const int64_t matrices = 2, rows = r, columns = c;
    const Values x = Draw(matrices * rows * columns, 1);
    const auto turn = [&](auto queue) {
      Values y(x.size(), 77.0f);
      convolution::LaunchTurn(queue, matrices, rows, columns, x.data(), y.data());
      return y;
    };
    const Values expected = turn(LoopQueue()), found = turn(ThreadQueue());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), x.size() * sizeof(float)), 0);
    EXPECT_EQ(found[rows + 3], x[3 * columns + 1]);
  }
}

TEST(ThreadBlockTest, NormsOfRowsForwardAndBackward) {
  // Cut packs and whole ones, a warp and more.
  for (const int64_t columns : {70, 400}) {
    const int64_t rows = 2;
    const Values x = Draw(rows * columns, 1), weight = Draw(columns, 2),
                 dy = Draw(rows * columns, 3);
    ExpectSameBits({rows * columns, 2 * rows, rows * columns}, [&](KernelSet& k, auto& out) {
      k.LayerNorm(As(x, {rows, columns}), weight, weight, 1e-5, As(out[0], {rows, columns}),
                  out[1]);
      k.LayerNormBackward(As(x, {rows, columns}), weight, out[1], As(dy, {rows, columns}),
                          As(out[2], {rows, columns}), {}, {});
    });
  }
}

TEST(ThreadBlockTest, AttentionForwardAndBackward) {
  const int64_t n = 1, heads = 1, places = 5, channels = 2;
  const Values x = Draw(places * 3 * channels, 1), dy = Draw(places * channels, 2);
  const Shape in = {n, places, 3 * channels}, shape = {n, places, channels};
  ExpectSameBits(
      {places * channels, places * places, places * 3 * channels}, [&](KernelSet& k, auto& out) {
        Values scratch(k.MemoryOf({heads, places, channels, true, DType::kFloat32}, n).scratch);
        k.ScaledDotProductAttention(heads, true, As(x, in), As(out[0], shape), out[1], scratch);
        k.ScaledDotProductAttentionBackward(heads, true, As(x, in), As(out[0], shape), out[1],
                                            As(dy, shape), As(out[2], in), scratch);
      });
}

TEST(ThreadBlockTest, EmbeddingsBackwardThroughWhatIsShared) {
  // Values one by one, and packs.
  for (const auto& [r, n, c] : {std::make_tuple(70, 2, 3), std::make_tuple(24, 5, 4)}) {
    const int64_t rows = r, count = n, channels = c;  // a binding cannot be captured
    Values x(rows);
    for (int64_t i = 0; i < rows; ++i) x[i] = static_cast<float>(i % 3 == 0);
    const Values dy = Draw(rows * channels, 2);
    ExpectSameBits({count * channels}, [&](KernelSet& k, auto& out) {
      k.EmbedBackward(x, As(dy, {rows, channels}), As(out[0], {count, channels}));
    });
  }
}

TEST(ThreadBlockTest, Losses) {
  const int64_t rows = 2, classes = 40;
  const Values x = Draw(rows * classes, 1), scale = {2}, targets = Draw(rows * classes, 2);
  const std::vector<int32_t> labels = {3, 39};
  ExpectSameBits({rows * classes, rows * classes}, [&](KernelSet& k, auto& out) {
    auto& kernels = dynamic_cast<DeviceKernels&>(k);
    std::vector<double> scratch(2 * rows), sums(2);
    kernels.CrossEntropy(As(x, {rows, classes}), labels, {0.1, -1, 0.5}, scale, out[0], scratch,
                         sums);
    kernels.RegressionLoss(As(x, {rows, classes}), targets, {}, 0.5, scale, out[1], scratch, sums);
  });
}

}  // namespace
}  // namespace rubato
