// The memory that a kernel may touch, and what is wrong with an access.
#ifndef RUBATO_TENSOR_CUDA_PTX_MEMORY_H_
#define RUBATO_TENSOR_CUDA_PTX_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rubato::ptx {

// A piece of the GPU's memory: addresses are those of the process.
struct Piece {
  uintptr_t begin, end;
};

// Of a GPU: pieces that lie apart.
class GlobalMemory {
 public:
  explicit GlobalMemory(std::vector<Piece> pieces);

  // The piece with all these bytes, or null.
  const Piece* Find(uint64_t address, int64_t bytes) const;

 private:
  std::vector<Piece> pieces_;  // by address
};

// Of a block, with what threads did to each byte since the last barrier: what one writes another
// may neither read nor write before the next.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) : bytes_(bytes), cells_(bytes) {}

  // Nothing is written yet.
  void BeginBlock() { first_epoch_ = ++epoch_; }
  void OnBarrier() { ++epoch_; }

  // Notes an access by a thread. Empty, or what is wrong with it.
  std::string Touch(uint64_t offset, int64_t bytes, int thread, bool writes);

  char* At(uint64_t offset) { return bytes_.data() + offset; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  static constexpr int kSeveral = -1;

  // Epochs are counted by barriers.
  struct Cell {
    int64_t written = 0, read = 0;
    int writer = 0, reader = 0;  // of the last epoch of either
  };

  std::vector<char> bytes_;
  std::vector<Cell> cells_;
  int64_t epoch_ = 0, first_epoch_ = 0;
};

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_MEMORY_H_
