#include "tensor/cuda/ptx/memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rubato::ptx {

GlobalMemory::GlobalMemory(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
}

const Piece* GlobalMemory::Find(uint64_t address, int64_t bytes) const {
  auto after = std::upper_bound(pieces_.begin(), pieces_.end(), address,
                                [](uint64_t a, const Piece& piece) { return a < piece.begin; });
  if (after == pieces_.begin()) return nullptr;
  --after;
  return address <= after->end && static_cast<uint64_t>(bytes) <= after->end - address ? &*after
                                                                                       : nullptr;
}

GlobalAccesses::Page* GlobalAccesses::PageOf(uint64_t index) {
  if (index != last_index_) {
    std::unique_ptr<Page>& page = pages_[index];
    if (page == nullptr) page = std::make_unique<Page>();
    last_index_ = index;
    last_ = page.get();
  }
  return last_;
}

const char* GlobalAccesses::Touch(uint64_t address, int64_t bytes, int thread, bool writes,
                                  bool changes) {
  for (uint64_t i = address / kBytesOfCell; i * kBytesOfCell < address + bytes; ++i) {
    Cell& cell = PageOf(i / kCellsOfPage)->cells[i % kCellsOfPage];
    if (!writes) {
      if (IsBeside(cell.written, cell.writer, thread)) {
        return "which another thread of the launch wrote, with no order between them";
      }
      // One of another block is kept: whoever writes must not have it beside.
      if (cell.read >= launch_ && cell.read < block_) continue;
      cell.reader = cell.read == now_ && cell.reader != thread ? kSeveral : thread;
      cell.read = now_;
      continue;
    }
    if (changes && IsBeside(cell.written, cell.writer, thread)) {
      return "which another thread of the launch wrote otherwise, with no order between them";
    }
    if (changes && IsBeside(cell.read, cell.reader, thread)) {
      return "which another thread of the launch read, with no order between them";
    }
    cell.writer = static_cast<uint16_t>(thread);
    cell.written = now_;
  }
  return nullptr;
}

std::string SharedMemory::Touch(uint64_t offset, int64_t bytes, int thread, bool writes) {
  if (offset > bytes_.size() || static_cast<uint64_t>(bytes) > bytes_.size() - offset) {
    return absl::StrCat("beyond the block's ", bytes_.size(), " bytes of shared memory");
  }
  for (uint64_t i = offset; i < offset + bytes; ++i) {
    Cell& cell = cells_[i];
    if (cell.written == epoch_ && cell.writer != thread) {
      return absl::StrCat("shared byte ", i, ", which thread ", cell.writer,
                          " wrote since the last barrier");
    }
    if (!writes) {
      if (cell.written < first_epoch_) {
        return absl::StrCat("shared byte ", i, ", which nobody has written");
      }
      cell.reader = cell.read == epoch_ && cell.reader != thread ? kSeveral : thread;
      cell.read = epoch_;
      continue;
    }
    if (cell.read == epoch_ && cell.reader != thread) {
      return absl::StrCat("shared byte ", i, ", which another thread read since the last barrier");
    }
    cell.writer = thread;
    cell.written = epoch_;
  }
  return "";
}

}  // namespace rubato::ptx
