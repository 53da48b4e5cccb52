// Kernels written by hand: how threads go on, meet and wait, and what they must not do.
#include "tensor/cuda/ptx/machine.h"

#include <numeric>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/ptx/hand_written.h"

namespace rubato::ptx {
namespace {

using ::testing::HasSubstr;

// %rd1: where the thread's own 4 bytes are.
constexpr char kOwn[] = "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;";
// %r1: where its own 4 shared bytes are.
constexpr char kOwnShared[] = "shl.b32 %r1, %r0, 2; mov.u32 %r2, shared; add.s32 %r1, %r2, %r1;";

// Runs a body of `threads` on zeros, a number each.
std::vector<int32_t> ResultOf(const std::string& body, int threads = 32) {
  std::vector<int32_t> memory(threads);
  RUBATO_EXPECT_OK(RunBody(kOwn + body, &memory, threads));
  return memory;
}

void ExpectFault(const std::string& body, const char* what, int threads = 32) {
  std::vector<int32_t> memory(threads);
  for (const bool backwards : {false, true}) {
    EXPECT_THAT(RunBody(kOwn + body, &memory, threads, 1, backwards),
                IsError(absl::StatusCode::kInternal, HasSubstr(what)));
  }
}

TEST(MachineTest, NumbersThreadsAndBlocks) {
  std::vector<int32_t> memory(3 * 40);
  RUBATO_ASSERT_OK(RunBody(R"(
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0;
    mul.wide.s32 %rd1, %r3, 4; add.s64 %rd1, %rd0, %rd1;
    mov.u32 %r4, %nctaid.x; mul.lo.s32 %r4, %r4, 1000; add.s32 %r3, %r3, %r4;
    st.global.u32 [%rd1], %r3; ret;)",
                           &memory, /*threads=*/40, /*blocks=*/3));
  std::vector<int32_t> expected(3 * 40);
  std::iota(expected.begin(), expected.end(), 3000);
  EXPECT_EQ(memory, expected);
}

// The steps that Collatz's sequence takes down to 1: each thread leaves the loop when it may, and
// within it takes one of two ways.
TEST(MachineTest, ThreadsGoTheirOwnWays) {
  const std::vector<int32_t> found = ResultOf(R"(
    add.s32 %r1, %r0, 1; mov.u32 %r2, 0;
    $loop: setp.eq.s32 %p1, %r1, 1; @%p1 bra $end;
    and.b32 %r3, %r1, 1; setp.eq.s32 %p2, %r3, 0; @!%p2 bra $odd;
    shr.u32 %r1, %r1, 1; bra.uni $next;
    $odd: mad.lo.s32 %r1, %r1, 3, 1;
    $next: add.s32 %r2, %r2, 1; bra $loop;
    $end: st.global.u32 [%rd1], %r2;)");
  for (int thread = 0; thread < 32; ++thread) {
    int steps = 0;
    for (int n = thread + 1; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    EXPECT_EQ(found[thread], steps) << thread;
  }
}

TEST(MachineTest, GuardsHoldBackSingleInstructions) {
  const std::vector<int32_t> found = ResultOf(R"(
    setp.lt.u32 %p1, %r0, 5; mov.u32 %r1, 7; @%p1 mov.u32 %r1, 8;
    @!%p1 st.global.u32 [%rd1], %r1; @%p1 ret; st.global.u32 [%rd1], 9;)");
  for (int thread = 0; thread < 32; ++thread) EXPECT_EQ(found[thread], thread < 5 ? 0 : 9);
}

TEST(MachineTest, LoadsAndStoresOfAllForms) {
  std::vector<int32_t> memory = {-5, 7, 0x01028304, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  RUBATO_ASSERT_OK(RunBody(R"(
    ld.global.v2.u32 {%r1, %r2}, [%rd0]; add.s32 %r1, %r1, %r2; st.global.u32 [%rd0+12], %r1;
    ld.global.s32 %rd2, [%rd0]; st.global.u64 [%rd0+16], %rd2;
    ld.global.u8 %rs1, [%rd0+9]; ld.global.s8 %r3, [%rd0+9];
    cvt.u32.u16 %r4, %rs1; st.global.v2.u32 [%rd0+24], {%r3, %r4};
    add.s64 %rd3, %rd0, 40; st.global.u16 [%rd3+-4], %r3;
    mov.b64 {%r5, %r6}, %rd2; mov.b64 %rd4, {%r6, %r5}; st.global.u64 [%rd3], %rd4;
    ret;)",
                           &memory, /*threads=*/1));
  EXPECT_EQ(memory[3], 2);
  EXPECT_EQ(memory[4], -5);
  EXPECT_EQ(memory[5], -1) << "by the sign";
  EXPECT_EQ(memory[6], static_cast<int32_t>(0xffffff83));
  EXPECT_EQ(memory[7], 0x83);
  EXPECT_EQ(memory[9], 0xff83);
  EXPECT_EQ(memory[10], -1);
  EXPECT_EQ(memory[11], -5);
}

TEST(MachineTest, ConversionsOfTheLowerPartOfAWiderRegister) {
  std::vector<int32_t> memory = {-5, 7, 0, 0};
  RUBATO_ASSERT_OK(RunBody(R"(
    ld.global.u64 %rd2, [%rd0]; cvt.s64.s32 %rd3, %rd2; st.global.u64 [%rd0+8], %rd3;
    ret;)",
                           &memory, /*threads=*/1));
  EXPECT_EQ(memory[2], -5);
  EXPECT_EQ(memory[3], -1) << "by the sign of its 32 bits";
}

TEST(MachineTest, ConstantsOfAllForms) {
  const std::vector<int32_t> found = ResultOf(R"(
    mov.f32 %f1, 0f3F800000; add.f32 %f1, %f1, 0fC0000000; cvt.rzi.s32.f32 %r1, %f1;
    mov.f64 %fd1, 0d4008000000000000; cvt.rzi.s32.f64 %r2, %fd1; add.s32 %r1, %r1, %r2;
    add.s32 %r1, %r1, -100; or.b32 %r1, %r1, 0x10000; st.global.u32 [%rd1], %r1;)");
  EXPECT_EQ(found[3], (-1 + 3 - 100) | 0x10000);
}

// What one warp shares with another, at a barrier: the order of warps has no meaning.
TEST(MachineTest, ABarrierOrdersWhatIsShared) {
  const std::string body = std::string(kOwnShared) + R"(
    st.shared.u32 [%r1], %r0; bar.sync 0;
    xor.b32 %r3, %r0, 63; shl.b32 %r3, %r3, 2; add.s32 %r3, %r2, %r3; ld.shared.u32 %r4, [%r3];
    st.global.u32 [%rd1], %r4;)";
  const std::vector<int32_t> found = ResultOf(body, 64);
  for (int thread = 0; thread < 64; ++thread) EXPECT_EQ(found[thread], 63 - thread);
  std::string without = body;
  without.erase(body.find("bar.sync"), std::strlen("bar.sync 0;"));
  ExpectFault(without, "shared byte", 64);
  // Also within a warp, whose order is no promise.
  const size_t partner = without.find("63;");
  ExpectFault(without.replace(partner, 3, "1;"), "wrote since the last barrier");
}

TEST(MachineTest, RacesInSharedMemoryAreSeen) {
  const std::string begin = kOwnShared;
  ExpectFault(begin + "ld.shared.u32 %r4, [%r1];", "which nobody has written");
  ExpectFault(begin + "st.shared.u32 [shared], %r0;", "wrote since the last barrier");
  ExpectFault(begin + R"(st.shared.u32 [%r1], %r0; bar.sync 0; ld.shared.u32 %r4, [shared];
                         st.shared.u32 [%r1], %r0;)",
              "which another thread read since the last barrier");
  // Each thread its own, and all one that nobody writes, is no race.
  ResultOf(begin + R"(st.shared.u32 [%r1], %r0; ld.shared.u32 %r4, [%r1]; bar.sync 0;
                 ld.shared.u32 %r4, [shared]; bar.sync 0; st.shared.u32 [%r1], %r0;)");
}

// Between blocks there is no order, within one there is a barrier's.
TEST(MachineTest, RacesInTheGpusMemoryAreSeen) {
  const auto run = [](const std::string& body, bool backwards) {
    std::vector<int32_t> memory(32);
    return RunBody("mov.u32 %r1, %ctaid.x;" + std::string(kOwn) + body, &memory, 32,
                   /*blocks=*/3, backwards);
  };
  const auto expect = [&](const std::string& body) {
    for (const bool backwards : {false, true}) {
      EXPECT_THAT(run(body, backwards),
                  IsError(absl::StatusCode::kInternal, HasSubstr("with no order between them")));
    }
  };
  const auto expect_none = [&](const std::string& body) {
    for (const bool backwards : {false, true}) RUBATO_EXPECT_OK(run(body, backwards));
  };
  const std::string per_block = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd0, %rd2;";
  expect("st.global.u32 [%rd1], %r1;");
  expect("st.global.u32 [%rd0], %r0;");
  expect("ld.global.u32 %r2, [%rd1]; add.s32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;");
  expect(per_block + "st.global.u32 [%rd2], 1; ld.global.u32 %r2, [%rd0+4];");
  expect(R"(setp.eq.s32 %p1, %r1, 1; add.s32 %r3, %r0, 1; @%p1 st.global.u32 [%rd1], %r3;
            @!%p1 ld.global.u32 %r2, [%rd1];)");
  // Thread 0 of each block writes for the others.
  const std::string shares = per_block + "setp.eq.s32 %p1, %r0, 0; @%p1 st.global.u32 [%rd2], 5;";
  expect(shares + "ld.global.u32 %r2, [%rd2];");
  expect_none(shares + "bar.sync 0; ld.global.u32 %r2, [%rd2];");
  expect_none("st.global.u32 [%rd0], 7;");  // the same value
  expect_none("ld.global.u32 %r2, [%rd0];");
}

// What a block wrote is gone in the next.
TEST(MachineTest, EachBlockBeginsWithoutSharedValues) {
  std::vector<int32_t> memory(32);
  EXPECT_THAT(RunBody(kOwnShared + std::string(R"(
      mov.u32 %r5, %ctaid.x; setp.ne.s32 %p1, %r5, 0; @%p1 bra $second;
      st.shared.u32 [%r1], %r0; ret;
      $second: ld.shared.u32 %r4, [%r1];)"),
                      &memory, 32, 2),
              IsError(absl::StatusCode::kInternal, HasSubstr("block 1, thread 0, PTX line 20")));
}

TEST(MachineTest, ShufflesGiveLanesOfOthers) {
  // Halving, as sums of warps do.
  std::string sum = "mov.u32 %r1, %r0;";
  for (const char* half : {"16", "8", "4", "2", "1"}) {
    sum += std::string("shfl.sync.down.b32 %r2|%p1, %r1, ") + half +
           ", 31, -1; add.s32 %r1, %r1, %r2;";
  }
  EXPECT_EQ(ResultOf(sum + "st.global.u32 [%rd1], %r1;")[0], 31 * 32 / 2);
  const auto shuffled = [](const char* how) {
    return ResultOf(std::string("shfl.sync.") + how +
                    "selp.b32 %r3, 100, 0, %p1; add.s32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;");
  };
  const auto down = shuffled("down.b32 %r2|%p1, %r0, 3, 31, -1;");
  const auto up = shuffled("up.b32 %r2|%p1, %r0, 3, 0, -1;");
  const auto butterfly = shuffled("bfly.b32 %r2|%p1, %r0, 5, 31, -1;");
  const auto index = shuffled("idx.b32 %r2|%p1, %r0, 5, 31, -1;");
  // Segments of 8: the mask of the lane's upper bits, from bit 8 on, and the greatest in each.
  const auto in_segments = shuffled("down.b32 %r2|%p1, %r0, 3, 0x1807, -1;");
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(down[lane], lane + 3 < 32 ? lane + 103 : lane);
    EXPECT_EQ(up[lane], lane >= 3 ? lane + 97 : lane);
    EXPECT_EQ(butterfly[lane], (lane ^ 5) + 100);
    EXPECT_EQ(index[lane], 105);
    EXPECT_EQ(in_segments[lane], lane % 8 + 3 < 8 ? lane + 103 : lane) << lane;
  }
}

// Threads that went other ways first are waited for, also by barriers, wherever the way lies.
TEST(MachineTest, ShufflesAndBarriersWaitForThoseWhoComeLater) {
  const std::string body = R"(
    and.b32 %r1, %r0, 1; setp.eq.s32 %p1, %r1, 1; mov.u32 %r2, %r0; @%p1 bra $odd;
    $join: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; bar.sync 0; st.global.u32 [%rd1], %r3; ret;
    $odd: add.s32 %r2, %r2, 1000; bra $join;)";
  const std::vector<int32_t> found = ResultOf(body);
  EXPECT_EQ(found[0], 1001);
  EXPECT_EQ(found[1], 0);
}

TEST(MachineTest, WhoMissesAShuffleOrABarrierIsSeen) {
  const std::string parts = "setp.lt.u32 %p1, %r0, 7; @%p1 bra $end;";
  ExpectFault(parts + "bar.sync 0; $end: ret;", "some threads of the block have left");
  ExpectFault(parts + "bar.sync 0; ret; $end: bar.sync 0; ret;",
              "at a barrier, where other threads of its warp are elsewhere");
  ExpectFault("setp.lt.u32 %p1, %r0, 32; @%p1 bra $end; bar.sync 0; $end: ret;",
              "some threads of the block have left", 64);
  ExpectFault(parts + "shfl.sync.down.b32 %r2, %r0, 1, 31, 0xff; $end: ret;",
              "a shuffle of lanes ff");
  ExpectFault(
      "setp.gt.u32 %p1, %r0, 7; @%p1 bra $end;"
      "shfl.sync.down.b32 %r2, %r0, 1, 31, -1; $end: ret;",
      "reads lane 8, which is not there");
}

TEST(MachineTest, AccessesOutsideOrUnalignedAreSeen) {
  ExpectFault(
      "ld.global.u32 %r1, [%rd1+4];",
      "kernel k, block 0, thread 31, PTX line 17: `ld.global.u32 %r1, [%rd1+4]`: 4 bytes at "
      "0x");
  ExpectFault("ld.global.u32 %r1, [%rd1+4];", "in no memory of the GPU");
  ExpectFault("st.global.u32 [%rd0+-4], %r0;", "thread 0");
  ExpectFault("ld.global.u64 %rd2, [%rd0+124];", "not aligned");
  ExpectFault("ld.global.v2.u32 {%r1, %r2}, [%rd0+4];", "not aligned");
  ExpectFault("mov.u64 %rd2, 0; ld.global.u32 %r1, [%rd2];", "in no memory of the GPU");
  ExpectFault("st.shared.u32 [shared+512], %r0;", "beyond the block's 512 bytes");
  ExpectFault("mov.u32 %r1, 0; st.shared.u32 [%r1], %r0;", "beyond the block's 512 bytes");
  ExpectFault("ld.param.u64 %rd2, [k_memory+8];", "beyond the parameters");
}

TEST(MachineTest, AKernelThatDoesNotEndIsStopped) {
  ExpectFault("$loop: setp.eq.s32 %p1, %r0, 5; @%p1 bra $loop; ret;",
              "thread 5, PTX line 17: `setp.eq.s32 %p1, %r0, 5`: it does not end");
}

TEST(MachineTest, LaunchesAreHeldToTheKernel) {
  std::vector<int32_t> memory(1000);
  EXPECT_THAT(RunBody("ret;", &memory, 257),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("of at most 256")));
  const absl::StatusOr<Kernel> kernel = KernelIn(KernelOf("ret;"));
  RUBATO_ASSERT_OK(kernel);
  EXPECT_THAT(ptx::Run(*kernel, Launch(), GlobalMemory({})),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("expected 8")));
}

TEST(DecodeTest, NamesWhatItDoesNotKnow) {
  const auto expect = [](const char* body, const char* what) {
    EXPECT_THAT(KernelIn(KernelOf(body)),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  expect(
      "atom.global.add.u32 %r1, [%rd0], 1;",
      "kernel k, PTX line 17: `atom.global.add.u32 %r1, [%rd0], 1`: the instruction is not known");
  expect("add.s32 %r1, %r1;", "the operands");
  expect("add.s64 %rd1, %rd1, %r1;", "operand 2 has 4 bytes");
  expect("add.s32 %r1, %r99, 1;", "`%r99` is not known");
  expect("bra $nowhere;", "goes nowhere");
  expect("bar.sync 1;", "is not known");
  expect("@%p1 bar.sync 0;", "under a guard");
  expect("@!%p1 shfl.sync.down.b32 %r1, %r1, 1, 31, -1;", "under a guard");
  expect("bar.sync 0, 64;", "is not known");
  expect("ld.volatile.global.u32 %r1, [%rd0];", "is not known");
  expect("ld.global.u64 %r1, [%rd0];", "too short");
  expect("ld.local.u32 %r1, [%rd0];", "is not known");
  expect("shfl.down.b32 %r1, %r1, 1, 31;", "is not known");
  expect("mov.u32 %r1, %clock;", "`%clock` is not known");
}

}  // namespace
}  // namespace rubato::ptx
