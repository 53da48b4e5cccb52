#include "tensor/cuda/column_sums.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"

namespace rubato {
namespace {

// Notes what is asked for, and does it if it `runs`.
class NotingQueue : public NoFusedAttention, public NoFusedConvolution, public PartialsOnHost {
 public:
  static constexpr bool kHasDouble = false;

  explicit NotingQueue(bool runs) : runs_(runs) {}

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel) {
    EXPECT_EQ(threads % kWarp, 0);
    EXPECT_LE(threads, MostThreadsOf<Kernel>::kValue);
    blocks_.push_back(blocks);
    for (int64_t i = 0; runs_ && i < blocks; ++i) {
      HostBlock block(i, threads, /*backwards=*/false);
      kernel(block);
    }
  }
  void* Partials(int64_t bytes) {
    EXPECT_LE(bytes, kPartialSums * static_cast<int64_t>(sizeof(float)));
    return PartialsOnHost::Partials(bytes);
  }
  void Multiply(const Product& product) { LaunchPlainProduct(*this, product); }

  const std::vector<int64_t>& blocks() const { return blocks_; }

 private:
  const bool runs_;
  std::vector<int64_t> blocks_;
};

using Values = std::vector<float>;

// The order that column_sums.h tells of, of one group.
Values SumsOf(const float* x, int64_t rows, int64_t columns, int64_t lanes) {
  Values sums(columns);
  for (int64_t c = 0; c < columns; ++c) {
    Values of(lanes, 0.0f);
    for (int64_t r = 0; r < rows; ++r) of[r % lanes] += x[r * columns + c];
    for (int64_t half = lanes / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) of[l] += of[l + half];
    }
    sums[c] = of[0];
  }
  return sums;
}

// 512 threads in lanes of at least 4 and at most 32 columns.
int64_t ExpectedLanes(int64_t columns) {
  return columns <= 4 ? 128 : columns <= 8 ? 64 : columns <= 16 ? 32 : 16;
}

Values ExpectedSums(const float* x, int64_t rows, int64_t columns) {
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(rows / 256, (1 << 17) / columns));
  const int64_t each = (rows + most - 1) / most;
  Values groups;
  for (int64_t first = 0; first < rows; first += each) {
    const Values sums =
        SumsOf(x + first * columns, std::min(each, rows - first), columns, ExpectedLanes(columns));
    groups.insert(groups.end(), sums.begin(), sums.end());
  }
  const int64_t count = static_cast<int64_t>(groups.size()) / columns;
  return count == 1 ? groups : SumsOf(groups.data(), count, columns, ExpectedLanes(columns));
}

// Whether packs can be read or not: the same bits.
TEST(ColumnSumsTest, HaveTheOrderThatIsSaidAtAnyAlignment) {
  for (const auto& [rows, columns] :
       {std::make_pair(1, 8), std::make_pair(45, 4), std::make_pair(45, 6), std::make_pair(300, 12),
        std::make_pair(517, 40), std::make_pair(3001, 16), std::make_pair(2600, 136),
        std::make_pair(1030, 5)}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const int64_t n = int64_t{rows} * columns;
    RandomStream stream(1);
    Values x(n + 8);
    float* aligned = x.data();
    while (!MayHavePacks(aligned)) ++aligned;
    for (int64_t i = 0; i < n; ++i) aligned[i] = stream.Uniform(-1, 1);
    const Values expected = ExpectedSums(aligned, rows, columns);
    for (const int shift : {0, 1}) {
      std::memmove(aligned + shift, aligned, n * sizeof(float));
      Values found(columns, 77.0f);
      NotingQueue queue(/*runs=*/true);
      GpuKernels<NotingQueue>(&queue).ColumnSums(
          TensorRef::At(aligned + shift, DType::kFloat32, {rows, columns}), found);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), columns * sizeof(float)), 0) << shift;
    }
  }
}

// Of an H100, at the widths of a char_gpt of 768 channels, in the alignment that a step has and in
// the worst.
TEST(ColumnSumsTest, GiveAllProcessorsWork) {
  alignas(kPackBytes) char memory[kPackBytes];
  for (const int64_t columns : {768, 2304, 3072, 25000}) {
    for (const int shift : {0, 2}) {
      NotingQueue queue(/*runs=*/false);
      GpuKernels<NotingQueue> kernels(&queue);
      const TensorRef x = TensorRef::At(memory + shift, DType::kBFloat16, {16384, columns});
      const TensorRef wide = TensorRef::At(memory, DType::kFloat32, {columns});
      kernels.ColumnSums(x, wide);
      kernels.LayerNormBackward(x, wide, wide, x, {}, wide, wide);
      ASSERT_EQ(queue.blocks().size(), 4u) << columns;
      EXPECT_GE(queue.blocks()[0], 132) << columns;
      EXPECT_GE(queue.blocks()[2], 132) << columns;
    }
  }
}

}  // namespace
}  // namespace rubato
