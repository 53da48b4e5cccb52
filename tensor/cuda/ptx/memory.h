// The memory that a kernel may touch, and what is wrong with an access.
#ifndef RUBATO_TENSOR_CUDA_PTX_MEMORY_H_
#define RUBATO_TENSOR_CUDA_PTX_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
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

// Who touched what of a GPU's memory, since which barrier: within a launch, what one thread writes
// no thread of another block may touch, and none of its own block before the next barrier. Several
// may write one value, if it is the same.
class GlobalAccesses {
 public:
  void BeginLaunch() { launch_ = block_ = ++now_; }
  void BeginBlock() { block_ = ++now_; }
  void OnBarrier() { ++now_; }

  // Notes an access, of an even number of bytes or of one. Null, or what is wrong with it.
  const char* Touch(uint64_t address, int64_t bytes, int thread, bool writes, bool changes);

 private:
  // Times are counted by barriers and blocks, which run one after the other.
  struct Cell {
    uint32_t written = 0, read = 0;
    uint16_t writer = 0, reader = 0;
  };
  static constexpr int kBytesOfCell = 2, kCellsOfPage = 2048;
  static constexpr uint16_t kSeveral = 0xffff;
  struct Page {
    Cell cells[kCellsOfPage];
  };

  // Whether what was done then and by whom is not before what `thread` does now.
  bool IsBeside(uint32_t time, uint16_t who, int thread) const {
    return time >= launch_ && (time < block_ || (time == now_ && who != thread));
  }
  Page* PageOf(uint64_t index);

  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_index_ = ~uint64_t{0};
  Page* last_ = nullptr;
  uint32_t now_ = 1, launch_ = 1, block_ = 1;
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
