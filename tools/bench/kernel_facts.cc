#include "tools/bench/kernel_facts.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rubato {
namespace {

constexpr char kTable[] =
#include "tools/bench/kernel_table.inc"
    ;

// CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications: of 8.0
// and 9.0. Registers are given out to warps, 256 at a time.
constexpr int64_t kRegisters = 65536, kThreads = 2048, kBlocks = 32, kUnit = 8;

absl::Status Damaged(absl::string_view line) {
  return absl::InvalidArgumentError(absl::StrCat("found in the table of kernels: ", line));
}

}  // namespace

absl::StatusOr<std::map<std::string, KernelFacts>> ParseKernelTable(absl::string_view table,
                                                                    int architecture) {
  const std::vector<std::string> lines = absl::StrSplit(table, '\n', absl::SkipEmpty());
  if (lines.size() < 3) return Damaged(table);
  const std::vector<std::string> heads = absl::StrSplit(lines[1], ' ', absl::SkipEmpty());
  const auto head = std::find(heads.begin(), heads.end(), absl::StrCat("sm_", architecture));
  if (head == heads.end()) return Damaged(lines[1]);
  // A kernel, divisions, and three numbers for each architecture.
  const size_t first = 2 + 3 * (head - heads.begin() - 2);
  std::map<std::string, KernelFacts> facts;
  for (size_t i = 2; i < lines.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i], ' ', absl::SkipEmpty());
    KernelFacts of;
    if (cells.size() != 2 + 3 * (heads.size() - 2) ||
        !absl::SimpleAtoi(cells[first], &of.registers) ||
        !absl::SimpleAtoi(cells[first + 2], &of.loads)) {
      return Damaged(lines[i]);
    }
    facts[cells[0]] = of;
  }
  return facts;
}

absl::StatusOr<std::map<std::string, KernelFacts>> KernelFactsOf(int architecture) {
  return ParseKernelTable(kTable, architecture);
}

int64_t ThreadsOfAProcessor(const KernelFacts& facts, int threads_of_a_block) {
  const int64_t registers = (facts.registers + kUnit - 1) / kUnit * kUnit;
  const int64_t blocks = std::min(
      {kRegisters / (registers * threads_of_a_block), kThreads / threads_of_a_block, kBlocks});
  return blocks * threads_of_a_block;
}

}  // namespace rubato
