#include "tensor/cuda/ptx/warp.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace rubato::ptx {
namespace {

// Of a warp in a block, after which it is taken to go on for ever: a second, where our kernels take
// milliseconds.
constexpr int64_t kMostSteps = 20'000'000;

constexpr int32_t kNowhere = std::numeric_limits<int32_t>::max();

template <typename T>
void Fill(char* file, int32_t place, T value) {
  for (int lane = 0; lane < kLanes; ++lane) Set(file, place, lane, value);
}

void FillConstant(char* file, const Constant& constant) {
  switch (constant.width) {
    case 1:
      return Fill(file, constant.place, static_cast<uint8_t>(constant.value));
    case 2:
      return Fill(file, constant.place, static_cast<uint16_t>(constant.value));
    case 4:
      return Fill(file, constant.place, static_cast<uint32_t>(constant.value));
    default:
      return Fill(file, constant.place, constant.value);
  }
}

int First(uint32_t lanes) { return __builtin_ctz(lanes); }

// A value in memory to one in a register, which may be wider.
void SetFromMemory(char* file, const Instruction& i, int32_t place, int lane, const char* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, i.bytes);
  if (i.has_sign) {
    const int unused = 64 - 8 * i.bytes;
    value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  }
  std::memcpy(file + place + lane * i.width, &value, i.width);
}

}  // namespace

Warp::Warp(const Kernel* kernel, const std::string* parameters, const GlobalMemory* global,
           GlobalAccesses* accesses, SharedMemory* shared, int first_thread, int threads)
    : kernel_(*kernel),
      parameters_(*parameters),
      global_(*global),
      accesses_(accesses),
      shared_(*shared),
      first_thread_(first_thread),
      all_(threads - first_thread >= kLanes ? kAllLanes
                                            : (uint32_t{1} << (threads - first_thread)) - 1),
      file_(kernel->file_bytes, '\xa5'),
      reached_(kernel->instructions.size()) {
  for (const Constant& constant : kernel_.constants) FillConstant(file_.data(), constant);
  for (int lane = 0; lane < kLanes; ++lane) {
    Set<uint32_t>(file_.data(), kernel_.specials[0], lane, first_thread + lane);
    Set<uint32_t>(file_.data(), kernel_.specials[4], lane, lane);
  }
  Fill<uint32_t>(file_.data(), kernel_.specials[1], threads);
}

void Warp::Begin(int64_t block, int64_t blocks) {
  Fill(file_.data(), kernel_.specials[2], static_cast<uint32_t>(block));
  Fill(file_.data(), kernel_.specials[3], static_cast<uint32_t>(blocks));
  std::fill(pcs_, pcs_ + kLanes, 0);
  alive_ = all_;
  parked_ = 0;
  steps_ = 0;
}

Warp::Stop Warp::Run() {
  if (parked_ != 0) {  // at the barrier of before
    for (int lane = 0; lane < kLanes; ++lane) pcs_[lane] += parked_ >> lane & 1;
    parked_ = 0;
  }
  while (alive_ != 0) {
    while (Regroup()) {
      if (!RunGroup()) return Stop::kFault;
    }
    if (alive_ == 0) break;
    const Stop stop = Release();
    if (stop != Stop::kExit) return stop;
  }
  return Stop::kExit;
}

uint32_t Warp::LanesAt(uint32_t among, int32_t pc) const {
  uint32_t found = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((among >> lane & 1) != 0 && pcs_[lane] == pc) found |= uint32_t{1} << lane;
  }
  return found;
}

bool Warp::Regroup() {
  const uint32_t running = alive_ & ~parked_;
  pc_ = meets_ = kNowhere;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((running >> lane & 1) != 0) pc_ = std::min(pc_, pcs_[lane]);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((running >> lane & 1) != 0 && pcs_[lane] > pc_) meets_ = std::min(meets_, pcs_[lane]);
  }
  group_ = LanesAt(running, pc_);
  return group_ != 0;
}

uint32_t Warp::Guarded(const Instruction& instruction) const {
  if (instruction.guard == kNone) return group_;
  uint32_t holds = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    holds |= static_cast<uint32_t>(file_[instruction.guard + lane] & 1) << lane;
  }
  return group_ & (instruction.if_not ? ~holds : holds);
}

bool Warp::RunGroup() {
  const int64_t size = __builtin_popcount(group_);
  bool goes_on = true;
  while (goes_on && pc_ < meets_) {
    const Instruction& instruction = kernel_.instructions[pc_];
    const uint32_t mask = Guarded(instruction);
    if (++steps_ > kMostSteps) return Fault(First(group_), "it does not end");
    executed_ += size;
    reached_[pc_] = 1;
    switch (instruction.kind) {
      case Kind::kCompute:
        instruction.run(file_.data(), instruction.places.data(), mask);
        ++pc_;
        break;
      case Kind::kLoad:
      case Kind::kStore:
        if (!Access(instruction, mask)) return false;
        ++pc_;
        break;
      case Kind::kBranch:
        goes_on = Branch(instruction, mask);
        break;
      case Kind::kExit:
        alive_ &= ~mask;
        group_ &= ~mask;
        ++pc_;
        goes_on = false;
        break;
      case Kind::kShuffle:
        if (group_ != alive_) {
          goes_on = Park();
          break;
        }
        if (!Shuffle(instruction, group_)) return false;
        ++pc_;
        break;
      case Kind::kBarrier:
        goes_on = Park();
        break;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((group_ >> lane & 1) != 0) pcs_[lane] = pc_;
  }
  return true;
}

bool Warp::Branch(const Instruction& instruction, uint32_t taken) {
  const uint32_t others = group_ & ~taken;
  if (others == 0 || taken == 0) {
    pc_ = others == 0 ? instruction.target : pc_ + 1;
    return true;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((group_ >> lane & 1) != 0) pcs_[lane] = taken >> lane & 1 ? instruction.target : pc_ + 1;
  }
  group_ = 0;
  return false;
}

bool Warp::Park() {
  parked_ |= group_;
  return false;
}

Warp::Stop Warp::Release() {
  // Shuffles first: who is at a barrier may wait for what they let go on.
  int32_t pc = pcs_[First(parked_)];
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((parked_ >> lane & 1) != 0 && kernel_.instructions[pcs_[lane]].kind == Kind::kShuffle) {
      pc = pcs_[lane];
    }
  }
  const Instruction& instruction = kernel_.instructions[pc];
  const uint32_t here = LanesAt(parked_, pc);
  pc_ = pc;
  if (instruction.kind == Kind::kBarrier) {
    // PTX ISA, bar: "bar.sync is equivalent to barrier.sync.aligned", of which .aligned wants all
    // threads of a warp at the same instruction.
    if (here == alive_) return Stop::kBarrier;
    Fault(First(here), "at a barrier, where other threads of its warp are elsewhere");
    return Stop::kFault;
  }
  if (!Shuffle(instruction, here)) return Stop::kFault;
  for (int lane = 0; lane < kLanes; ++lane) pcs_[lane] += here >> lane & 1;
  parked_ &= ~here;
  return Stop::kExit;
}

// PTX ISA, shfl.sync, "Semantics". All members that have not left must be there.
bool Warp::Shuffle(const Instruction& instruction, uint32_t mask) {
  char* const file = file_.data();
  const auto& places = instruction.places;
  uint32_t values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = Get<uint32_t>(file, places[2], lane);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const uint32_t members = Get<uint32_t>(file, places[5], lane);
    if ((members & alive_) != mask) {
      return Fault(lane, absl::StrCat("a shuffle of lanes ", absl::Hex(members), ", where ",
                                      absl::Hex(mask), " are"));
    }
    const int b = Get<uint32_t>(file, places[3], lane) & 31;
    const uint32_t clamp = Get<uint32_t>(file, places[4], lane);
    const int segment = clamp >> 8 & 31, least = lane & segment;
    const int greatest = least | (clamp & 31 & ~segment);
    int source = lane;
    bool is_in = false;
    switch (instruction.mode) {
      case ShuffleMode::kUp:
        source = lane - b;
        is_in = source >= greatest;
        break;
      case ShuffleMode::kDown:
        source = lane + b;
        is_in = source <= greatest;
        break;
      case ShuffleMode::kButterfly:
        source = lane ^ b;
        is_in = source <= greatest;
        break;
      case ShuffleMode::kIndex:
        source = least | (b & ~segment);
        is_in = source <= greatest;
        break;
    }
    if (!is_in) source = lane;
    if ((mask >> source & 1) == 0) {
      return Fault(lane, absl::StrCat("reads lane ", source, ", which is not there"));
    }
    Set(file, places[0], lane, values[source]);
    if (places[1] != kNone) Set(file, places[1], lane, is_in);
  }
  return true;
}

bool Warp::Access(const Instruction& i, uint32_t mask) {
  char* const file = file_.data();
  const int64_t bytes = int64_t{i.count} * i.bytes;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = First(left);
    const uint64_t address = (i.base_width == 8 ? Get<uint64_t>(file, i.base, lane)
                                                : Get<uint32_t>(file, i.base, lane)) +
                             i.offset;
    char* const at = Resolve(i, address, bytes, lane);
    if (at == nullptr) return false;
    if (i.space == Space::kGlobal && accesses_ != nullptr && !TouchGlobal(i, at, bytes, lane)) {
      return false;
    }
    for (int k = 0; k < i.count; ++k) {
      if (i.kind == Kind::kLoad) {
        SetFromMemory(file, i, i.places[k], lane, at + k * i.bytes);
      } else {
        std::memcpy(at + k * i.bytes, file + i.places[k] + lane * i.width, i.bytes);
      }
    }
  }
  return true;
}

bool Warp::TouchGlobal(const Instruction& i, const char* at, int64_t bytes, int lane) {
  const bool writes = i.kind == Kind::kStore;
  bool changes = false;
  for (int k = 0; writes && k < i.count; ++k) {
    changes = changes || std::memcmp(at + k * i.bytes, file_.data() + i.places[k] + lane * i.width,
                                     i.bytes) != 0;
  }
  const char* const wrong = accesses_->Touch(reinterpret_cast<uintptr_t>(at), bytes,
                                             first_thread_ + lane, writes, changes);
  return wrong == nullptr ||
         Fault(lane, absl::StrCat(bytes, " bytes of the GPU's memory, ", wrong));
}

char* Warp::Resolve(const Instruction& i, uint64_t address, int64_t bytes, int lane) {
  const auto fault = [&](const std::string& what) -> char* {
    Fault(lane, absl::StrCat(bytes, " bytes at 0x", absl::Hex(address), ": ", what));
    return nullptr;
  };
  // PTX ISA, "Addresses as Operands": aligned to the size of the access, or the behaviour is
  // undefined.
  if (address % bytes != 0) return fault("not aligned");
  switch (i.space) {
    case Space::kGlobal: {
      const uint64_t size = bytes;
      if (address < piece_.begin || address > piece_.end || size > piece_.end - address) {
        const Piece* const piece = global_.Find(address, bytes);
        if (piece == nullptr) return fault("in no memory of the GPU");
        piece_ = *piece;
      }
      return reinterpret_cast<char*>(address);
    }
    case Space::kShared: {
      const uint64_t offset = address - kSharedBegin;
      const std::string wrong =
          shared_.Touch(offset, bytes, first_thread_ + lane, i.kind == Kind::kStore);
      return wrong.empty() ? shared_.At(offset) : fault(wrong);
    }
    default:
      if (address > parameters_.size() ||
          bytes > static_cast<int64_t>(parameters_.size() - address)) {
        return fault("beyond the parameters");
      }
      return const_cast<char*>(parameters_.data()) + address;
  }
}

bool Warp::Fault(int lane, const std::string& what) {
  fault_ = absl::StrCat("thread ", first_thread_ + lane, ", PTX line ",
                        kernel_.instructions[pc_].line, ": `", kernel_.texts[pc_], "`: ", what);
  return false;
}

}  // namespace rubato::ptx
