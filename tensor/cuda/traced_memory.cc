#include "tensor/cuda/traced_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <utility>

#include "common/base/check.h"

namespace rubato {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kTrapFlag = 0x100;  // of EFLAGS: stop after one instruction
constexpr int64_t kWasWrite = 2;      // of a page fault's code
constexpr int kMostPages = 4;         // of one instruction

struct Traced {
  char* begin = nullptr;
  int64_t bytes = 0;
  std::function<void(int64_t, bool)> on_access;
  struct sigaction old_fault, old_step;
  char* open[kMostPages];  // pages that the instruction at hand may access
  int open_count = 0;
};
Traced traced;

greg_t& Register(void* context, int which) {
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[which];
}

void OnFault(int, siginfo_t* info, void* context) {
  const int64_t at = static_cast<char*>(info->si_addr) - traced.begin;
  if (at < 0 || at >= traced.bytes || traced.open_count == kMostPages) {
    sigaction(SIGSEGV, &traced.old_fault, nullptr);  // a fault of the program's own
    return;
  }
  traced.on_access(at, (Register(context, REG_ERR) & kWasWrite) != 0);
  char* const page = traced.begin + at / kPage * kPage;
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
  traced.open[traced.open_count++] = page;
  Register(context, REG_EFL) |= kTrapFlag;
}

void OnStep(int, siginfo_t*, void* context) {
  while (traced.open_count > 0) mprotect(traced.open[--traced.open_count], kPage, PROT_NONE);
  Register(context, REG_EFL) &= ~kTrapFlag;
}

}  // namespace

TracedMemory::TracedMemory(int64_t bytes, std::function<void(int64_t, bool)> on_access) {
  RUBATO_CHECK(traced.begin == nullptr);
  traced.bytes = (bytes + kPage - 1) / kPage * kPage;
  void* const mapped =
      mmap(nullptr, traced.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  RUBATO_CHECK(mapped != MAP_FAILED);
  traced.begin = static_cast<char*>(mapped);
  traced.on_access = std::move(on_access);
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = OnFault;
  sigaction(SIGSEGV, &action, &traced.old_fault);
  action.sa_sigaction = OnStep;
  sigaction(SIGTRAP, &action, &traced.old_step);
}

TracedMemory::~TracedMemory() {
  sigaction(SIGSEGV, &traced.old_fault, nullptr);
  sigaction(SIGTRAP, &traced.old_step, nullptr);
  munmap(traced.begin, traced.bytes);
  traced.begin = nullptr;
}

void* TracedMemory::Take(int64_t bytes) {
  void* const taken = traced.begin + taken_;
  taken_ = (taken_ + bytes + 255) / 256 * 256;
  RUBATO_CHECK(taken_ <= traced.bytes);
  return taken;
}

int64_t TracedMemory::OffsetOf(const void* address) const {
  return static_cast<const char*>(address) - traced.begin;
}

bool TracedMemory::Has(const void* address) const {
  return OffsetOf(address) >= 0 && OffsetOf(address) < traced.bytes;
}

void TracedMemory::Watch() { mprotect(traced.begin, traced.bytes, PROT_NONE); }

void TracedMemory::Stop() { mprotect(traced.begin, traced.bytes, PROT_READ | PROT_WRITE); }

}  // namespace rubato
