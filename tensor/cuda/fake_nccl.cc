// Sources: nccl.h, and the NCCL user guide's "Group Calls", "Creating a Communicator", "In-place
// Operations", "Using NCCL with CUDA Graphs", "CUDA Stream Semantics", "Error handling".
#include "tensor/cuda/fake_nccl.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/nccl_library.h"

// A GPU's part in a clique.
struct ncclComm {
  std::shared_ptr<std::vector<ncclComm*>> clique;  // by rank
  int rank, device;
};

namespace rubato {
namespace {

// One call of a collective, or of a half of a transfer.
struct Call {
  std::string name;
  ncclComm* communicator;
  const float* from;
  float* to;
  size_t count;
  ncclDataType_t type;
  int peer;
  cudaStream_t stream;
};

struct Library {
  FakeNccl told;
  std::set<ncclComm*> communicators;
};
Library& TheLibrary() {
  static auto* const library = new Library;
  return *library;
}

// Of each thread of the host.
struct Thread {
  int groups = 0;                     // that it has begun and not ended
  ncclResult_t failed = ncclSuccess;  // a call in them
  std::vector<Call> calls;
};
Thread& ThisThread() {
  static thread_local Thread thread;
  return thread;
}

// Held in each call, for any thread may make one.
class Lock {
 public:
  Lock() : lock_(TheMutex()) {}

 private:
  static std::mutex& TheMutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  const std::lock_guard<std::mutex> lock_;
};

ncclResult_t Violation(const std::string& what) {
  TheFakeNccl().violations.push_back(what);
  if (ThisThread().groups > 0) ThisThread().failed = ncclInvalidUsage;
  return ncclInvalidUsage;
}

bool HasFailedLater() {
  const FakeNccl& told = TheFakeNccl();
  return told.fails_later_at >= 0 && static_cast<int64_t>(told.calls.size()) > told.fails_later_at;
}

// What every call begins with, and every call of a communicator's. One that fails has its group
// fail at the end, which then starts nothing.
ncclResult_t Enter(const char* name) {
  FakeNccl& told = TheFakeNccl();
  told.calls.push_back(name);
  if (static_cast<int64_t>(told.calls.size()) - 1 != told.fails_at) return ncclSuccess;
  if (ThisThread().groups > 0) ThisThread().failed = told.error;
  return told.error;
}
ncclResult_t Enter(const char* name, ncclComm* communicator) {
  if (TheLibrary().communicators.count(communicator) == 0) {
    Enter(name);
    return Violation(absl::StrCat(name, ": the communicator is not there"));
  }
  return Enter(name);
}

bool Overlap(const void* x, size_t x_bytes, const void* y, size_t y_bytes) {
  const auto* const a = static_cast<const char*>(x);
  const auto* const b = static_cast<const char*>(y);
  return a < b + y_bytes && b < a + x_bytes;
}

// What a call may name: its GPU's memory and stream, and no recording, for one of NCCL's work must
// be of all ranks.
ncclResult_t CheckCall(const Call& call, size_t sent, size_t received) {
  const int device = call.communicator->device;
  const auto is_there = [&](const void* memory, size_t values) {
    return values == 0 || FakeGpuOf(memory, values * sizeof(float)) == device;
  };
  if (!is_there(call.from, sent) || !is_there(call.to, received)) {
    return Violation(absl::StrCat(call.name, ": memory that is not the GPU's"));
  }
  if (FakeGpuOf(call.stream) != device) {
    return Violation(absl::StrCat(call.name, ": a stream of another GPU's"));
  }
  if (IsFakeRecorded(call.stream)) {
    return Violation(absl::StrCat(call.name, ": in a recording"));
  }
  if (call.count == 0 || call.type != ncclFloat32) {
    return Violation(absl::StrCat(call.name, ": ", call.count, " values of type ", call.type));
  }
  return ncclSuccess;
}

ncclResult_t Give(const Call& call) {
  if (ThisThread().groups == 0) {
    // The other ranks are this thread's, too: it would wait for itself.
    return Violation(absl::StrCat(call.name, ": outside of a group"));
  }
  for (const Call& other : ThisThread().calls) {
    if (other.communicator == call.communicator && other.stream != call.stream) {
      return Violation(absl::StrCat(call.name, ": several streams of a GPU's in a group"));
    }
  }
  ThisThread().calls.push_back(call);
  return ncclSuccess;
}

// Values that go from one GPU to another.
struct Move {
  const float* from;
  float* to;
  size_t count;
};

// What the n-th call of all ranks together moves.
ncclResult_t MatchCollective(const std::vector<const Call*>& calls, std::vector<Move>* moves) {
  const Call& first = *calls[0];
  for (const Call* call : calls) {
    if (call->name != first.name || call->count != first.count || call->type != first.type) {
      return Violation(absl::StrCat("ranks differ: ", first.name, " of ", first.count, " and ",
                                    call->name, " of ", call->count));
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    for (size_t j = 0; j < calls.size(); ++j) {
      const bool all_to_all = first.name == "ncclAlltoAll";
      moves->push_back({calls[i]->from + (all_to_all ? j * first.count : 0),
                        calls[j]->to + i * first.count, first.count});
    }
  }
  return ncclSuccess;
}

ncclResult_t MatchTransfers(const std::vector<Call>& calls, std::vector<Move>* moves) {
  std::vector<const Call*> receives;
  for (const Call& call : calls) {
    if (call.name == "ncclRecv") receives.push_back(&call);
  }
  for (const Call& call : calls) {
    if (call.name != "ncclSend") continue;
    bool is_met = false;
    for (auto it = receives.begin(); !is_met && it != receives.end(); ++it) {
      const Call& receive = **it;
      if (receive.peer != call.communicator->rank || call.peer != receive.communicator->rank ||
          receive.communicator->clique != call.communicator->clique) {
        continue;
      }
      if (receive.count != call.count || receive.type != call.type) {
        return Violation("ncclSend and ncclRecv of different lengths");
      }
      moves->push_back({call.from, receive.to, call.count});
      receives.erase(it);
      is_met = true;
    }
    if (!is_met) return Violation("ncclSend without an ncclRecv");
  }
  return receives.empty() ? ncclSuccess : Violation("ncclRecv without an ncclSend");
}

// A group's calls, of all ranks of a clique, each as many.
ncclResult_t Match(const std::vector<Call>& calls, std::vector<Move>* moves) {
  const std::vector<ncclComm*>& clique = *calls[0].communicator->clique;
  std::vector<std::vector<const Call*>> collectives(clique.size());
  for (const Call& call : calls) {
    if (call.communicator->clique != calls[0].communicator->clique) {
      return Violation("several cliques in a group");
    }
    const bool is_half = call.name == "ncclSend" || call.name == "ncclRecv";
    if (!is_half) collectives[call.communicator->rank].push_back(&call);
  }
  for (size_t n = 0; n < collectives[0].size(); ++n) {
    std::vector<const Call*> ranks;
    for (const auto& of_rank : collectives) {
      if (of_rank.size() != collectives[0].size()) return Violation("a rank does not take part");
      ranks.push_back(of_rank[n]);
    }
    const ncclResult_t result = MatchCollective(ranks, moves);
    if (result != ncclSuccess) return result;
  }
  if (collectives[0].empty()) {
    for (const auto& of_rank : collectives) {
      if (!of_rank.empty()) return Violation("a rank does not take part");
    }
  }
  return MatchTransfers(calls, moves);
}

// In the first GPU's stream: all that streams were given so far is done (fake_cuda.h).
void Exchange(const std::vector<Call>& calls, std::vector<Move> moves) {
  FakeNccl& told = TheFakeNccl();
  ++told.exchanges;
  if (told.hangs) TheFakeCuda().hangs = true;
  for (const Move& move : moves) {
    const int64_t bytes = move.count * sizeof(float);
    if (FakeGpuOf(move.from, bytes) != FakeGpuOf(move.to, bytes)) told.bytes += bytes;
  }
  GiveToFakeStream(calls[0].stream, [moves = std::move(moves), garbles = told.garbles] {
    for (const Move& move : moves) {
      if (move.from != move.to) std::memcpy(move.to, move.from, move.count * sizeof(float));
      if (garbles) move.to[0] += 1;
    }
    return cudaSuccess;
  });
}

ncclResult_t GetVersion(int* version) {
  *version = TheFakeNccl().has_all_to_all ? 22809 : 22703;
  return ncclSuccess;
}
const char* GetErrorString(ncclResult_t) { return "a failure of the test's"; }
const char* GetLastError(ncclComm_t) { return "more of it\nand more"; }

ncclResult_t CommInitAll(ncclComm_t* communicators, int count, const int* devices) {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclCommInitAll");
  if (entered != ncclSuccess) return entered;
  if (ThisThread().groups > 0) return Violation("ncclCommInitAll: in a group");
  if (std::set<int>(devices, devices + count).size() != static_cast<size_t>(count)) {
    return Violation("ncclCommInitAll: a GPU twice");
  }
  const auto clique = std::make_shared<std::vector<ncclComm*>>();
  for (int i = 0; i < count; ++i) {
    communicators[i] = new ncclComm{clique, i, devices[i]};
    clique->push_back(communicators[i]);
    TheLibrary().communicators.insert(communicators[i]);
    ++TheFakeNccl().live;
  }
  return ncclSuccess;
}

ncclResult_t GiveBack(const char* name, ncclComm* communicator) {
  const ncclResult_t entered = Enter(name, communicator);
  if (entered != ncclSuccess) return entered;
  TheLibrary().communicators.erase(communicator);
  delete communicator;
  --TheFakeNccl().live;
  return ncclSuccess;
}
ncclResult_t CommDestroy(ncclComm_t communicator) {
  const Lock lock;
  if (HasFailedLater()) return Violation("ncclCommDestroy: after a failure");
  return GiveBack("ncclCommDestroy", communicator);
}
ncclResult_t CommAbort(ncclComm_t communicator) {
  const Lock lock;
  TheFakeNccl().hangs = TheFakeCuda().hangs = false;
  return GiveBack("ncclCommAbort", communicator);
}
ncclResult_t CommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclCommGetAsyncError", communicator);
  *error = HasFailedLater() ? TheFakeNccl().error : ncclSuccess;
  return entered;
}

ncclResult_t GroupStart() {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclGroupStart");
  if (entered == ncclSuccess) ++ThisThread().groups;
  return entered;
}
ncclResult_t GroupEnd() {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclGroupEnd");
  if (ThisThread().groups == 0) return Violation("ncclGroupEnd: without a begin");
  if (--ThisThread().groups > 0) return entered;
  const std::vector<Call> calls = std::exchange(ThisThread().calls, {});
  const ncclResult_t failed = std::exchange(ThisThread().failed, ncclSuccess);
  if (failed != ncclSuccess) return failed;
  if (entered != ncclSuccess) return entered;
  if (HasFailedLater()) return TheFakeNccl().error;
  if (calls.empty()) return ncclSuccess;
  std::vector<Move> moves;
  const ncclResult_t matched = Match(calls, &moves);
  if (matched == ncclSuccess) Exchange(calls, std::move(moves));
  return matched;
}

Call CallOf(const char* name, const void* from, void* to, size_t count, ncclDataType_t type,
            int peer, ncclComm_t communicator, cudaStream_t stream) {
  return {name, communicator, static_cast<const float*>(from), static_cast<float*>(to), count, type,
          peer, stream};
}
// Of so many values, if it may be made.
ncclResult_t CheckAndGive(const Call& call, size_t sent, size_t received) {
  const ncclResult_t checked = CheckCall(call, sent, received);
  return checked == ncclSuccess ? Give(call) : checked;
}

ncclResult_t AllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclComm_t communicator, cudaStream_t stream) {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclAllGather", communicator);
  if (entered != ncclSuccess) return entered;
  const Call call = CallOf("ncclAllGather", from, to, count, type, -1, communicator, stream);
  const size_t ranks = communicator->clique->size();
  const size_t bytes = count * sizeof(float);
  const bool is_in_place = call.from == call.to + communicator->rank * count;
  if (!is_in_place && Overlap(from, bytes, to, ranks * bytes)) {
    return Violation("ncclAllGather: overlapping, and not in place");
  }
  return CheckAndGive(call, count, ranks * count);
}
ncclResult_t AlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                      ncclComm_t communicator, cudaStream_t stream) {
  const Lock lock;
  const ncclResult_t entered = Enter("ncclAlltoAll", communicator);
  if (entered != ncclSuccess) return entered;
  const size_t values = communicator->clique->size() * count;
  if (Overlap(from, values * sizeof(float), to, values * sizeof(float))) {
    return Violation("ncclAlltoAll: overlapping");
  }
  return CheckAndGive(CallOf("ncclAlltoAll", from, to, count, type, -1, communicator, stream),
                      values, values);
}
ncclResult_t GiveHalf(const char* name, const void* from, void* to, size_t count,
                      ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
  const ncclResult_t entered = Enter(name, communicator);
  if (entered != ncclSuccess) return entered;
  if (peer < 0 || peer >= static_cast<int>(communicator->clique->size())) {
    return Violation(absl::StrCat(name, ": there is no rank ", peer));
  }
  return CheckAndGive(CallOf(name, from, to, count, type, peer, communicator, stream),
                      from == nullptr ? 0 : count, to == nullptr ? 0 : count);
}
ncclResult_t Send(const void* from, size_t count, ncclDataType_t type, int peer,
                  ncclComm_t communicator, cudaStream_t stream) {
  const Lock lock;
  return GiveHalf("ncclSend", from, nullptr, count, type, peer, communicator, stream);
}
ncclResult_t Recv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                  cudaStream_t stream) {
  const Lock lock;
  return GiveHalf("ncclRecv", nullptr, to, count, type, peer, communicator, stream);
}

}  // namespace

FakeNccl& TheFakeNccl() { return TheLibrary().told; }

void ResetFakeNccl() {
  TheLibrary() = Library();
  ThisThread() = Thread();
}

absl::StatusOr<std::shared_ptr<const Nccl>> Nccl::Open() {
  if (!TheFakeNccl().is_there) return absl::FailedPreconditionError("there is no NCCL");
  auto nccl = std::make_shared<Nccl>();
  nccl->version = TheFakeNccl().has_all_to_all ? "2.28.9" : "2.27.3";
  nccl->GetVersion = &rubato::GetVersion;
  nccl->GetErrorString = &rubato::GetErrorString;
  nccl->GetLastError = &rubato::GetLastError;
  nccl->CommInitAll = &rubato::CommInitAll;
  nccl->CommDestroy = &rubato::CommDestroy;
  nccl->CommAbort = &rubato::CommAbort;
  nccl->CommGetAsyncError = &rubato::CommGetAsyncError;
  nccl->GroupStart = &rubato::GroupStart;
  nccl->GroupEnd = &rubato::GroupEnd;
  nccl->AllGather = &rubato::AllGather;
  nccl->Send = &rubato::Send;
  nccl->Recv = &rubato::Recv;
  if (TheFakeNccl().has_all_to_all) nccl->AlltoAll = &rubato::AlltoAll;
  return nccl;
}

}  // namespace rubato
