// Thirty-two threads of a block, each with a place in the code of its own.
//
// Those that are furthest behind run, together if at the same place, until they meet others or
// part. So threads that parted come together again as early as they can, and the order within a
// warp is one that a GPU since Volta might choose. At a shuffle and at a barrier each waits for all
// who must take part.
#ifndef RUBATO_TENSOR_CUDA_PTX_WARP_H_
#define RUBATO_TENSOR_CUDA_PTX_WARP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/cuda/ptx/decode.h"
#include "tensor/cuda/ptx/memory.h"

namespace rubato::ptx {

class Warp {
 public:
  enum class Stop { kBarrier, kExit, kFault };

  // first_thread: of the block, which has `threads`. All that is given must outlive it; accesses
  // may be null.
  Warp(const Kernel* kernel, const std::string* parameters, const GlobalMemory* global,
       GlobalAccesses* accesses, SharedMemory* shared, int first_thread, int threads);

  // Its threads are before the first instruction of a block.
  void Begin(int64_t block, int64_t blocks);

  // Until all threads are at a barrier, or have left, or one does what must not be. The next call
  // goes on after the barrier.
  Stop Run();

  // Where and what, after kFault: "thread 17, PTX line 80: `st.shared.f32 ...`: ...".
  const std::string& fault() const { return fault_; }
  bool has_exited() const { return alive_ == 0; }
  // Whether some of its threads have left.
  bool has_lost() const { return alive_ != all_; }
  // As in Coverage.
  int64_t executed() const { return executed_; }
  const std::vector<uint8_t>& reached() const { return reached_; }

 private:
  // Those furthest behind become group_. False if none can run.
  bool Regroup();
  // The group, until it meets or parts. False after a fault.
  bool RunGroup();
  // One instruction of the group's at pc_. What follows is false if the group is another then.
  bool Branch(const Instruction& instruction, uint32_t taken);
  bool Park();
  // When nobody can run: lets those go on who are complete. kExit: somebody can run again.
  Stop Release();
  bool Shuffle(const Instruction& instruction, uint32_t mask);
  bool Access(const Instruction& instruction, uint32_t mask);
  // That no other thread touches them meanwhile.
  bool TouchGlobal(const Instruction& instruction, const char* at, int64_t bytes, int lane);
  // Where the bytes are; null after a fault.
  char* Resolve(const Instruction& instruction, uint64_t address, int64_t bytes, int lane);

  uint32_t Guarded(const Instruction& instruction) const;
  bool Fault(int lane, const std::string& what);
  uint32_t LanesAt(uint32_t among, int32_t pc) const;

  const Kernel& kernel_;
  const std::string& parameters_;
  const GlobalMemory& global_;
  GlobalAccesses* const accesses_;
  SharedMemory& shared_;
  const int first_thread_;
  const uint32_t all_;
  std::vector<char> file_;  // see lanes.h

  int32_t pcs_[kLanes];  // of the lanes that are not in the group
  uint32_t alive_ = 0;
  uint32_t parked_ = 0;  // at a shuffle or a barrier
  uint32_t group_ = 0;
  int32_t pc_ = 0;        // the group's
  int32_t meets_ = 0;     // where it meets others
  Piece piece_ = {0, 0};  // that was touched last
  int64_t steps_ = 0;     // in the block
  int64_t executed_ = 0;
  std::vector<uint8_t> reached_;
  std::string fault_;
};

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_WARP_H_
