#include "common/files/checkpoint_part.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/finite.h"
#include "common/base/status.h"
#include "common/files/atomic_file.h"

namespace rubato {
namespace {

// Files of so many bytes are written past the kernel's memory. What is smaller is written sooner
// so, and may be written over while it is there (RecycleCheckpoint).
constexpr int64_t kLarge = int64_t{32} << 20;

// So many values are looked at and summed up while they are in the first-level cache.
constexpr size_t kTile = 6144;

std::string PartFile(const std::string& folder, const std::string& slot, const PartPlace& place) {
  const std::string vector = slot.empty() ? "parameters" : slot;
  if (place.parts == 1) return absl::StrCat(folder, "/", vector, ".safetensors");
  return absl::StrFormat("%s/%s-%d-of-%d.safetensors", folder, vector, place.part, place.parts);
}

Range ValuesOf(const FlatSpace& space, Range blocks) {
  if (blocks.empty()) return {0, 0};
  return {space.BlockValues(blocks.begin).begin, space.BlockValues(blocks.end - 1).end};
}

// What of the tensors lies in `values` of the flat vector. One without values is in the first part
// that reaches its place.
std::vector<TensorInfo> Cut(std::vector<TensorInfo> tensors, Range values) {
  std::vector<TensorInfo> pieces;
  int64_t begin = 0;
  for (TensorInfo& tensor : tensors) {
    const int64_t count = tensor.Elements();
    const Range piece = {std::max(values.begin, begin) - begin,
                         std::min(values.end, begin + count) - begin};
    const bool is_empty_here = count == 0 && piece.begin == 0 && piece.end == 0 &&
                               (begin > values.begin || values.begin == 0);
    begin += count;
    if (piece.begin >= piece.end && !is_empty_here) continue;
    if (piece.size() < count) {
      absl::StrAppendFormat(&tensor.name, "[%d:%d]", piece.begin, piece.end);
      tensor.shape = {piece.size()};
    }
    pieces.push_back(std::move(tensor));
  }
  return pieces;
}

}  // namespace

std::vector<TensorInfo> VectorTensors(const proto::Layout& layout, const std::string& slot) {
  std::vector<TensorInfo> tensors;
  for (const proto::Parameter& parameter : layout.parameters()) {
    TensorInfo tensor;
    tensor.name = slot.empty() ? parameter.name() : absl::StrCat(parameter.name(), ".", slot);
    tensor.shape.assign(parameter.shape().begin(), parameter.shape().end());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<SafetensorsReader> OpenPart(const std::string& folder, const std::string& slot,
                                           const PartPlace& place) {
  return SafetensorsReader::Open(PartFile(folder, slot, place));
}

bool HasPart(const std::string& folder, const std::string& slot, const FlatSpace& space,
             const PartPlace& place) {
  struct stat file = {};
  const int64_t values = ValuesOf(space, place.blocks).size();
  return stat(PartFile(folder, slot, place).c_str(), &file) == 0 &&
         file.st_size > values * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<CheckpointPart> CheckpointPart::Create(const std::string& folder,
                                                      const proto::Layout& layout,
                                                      const FlatSpace& space,
                                                      const std::vector<std::string>& slots,
                                                      const PartPlace& place) {
  CheckpointPart part(layout, space, place.blocks);
  part.appended_.resize(1 + slots.size());
  part.checksums_.resize(place.blocks.size() * (1 + slots.size()));
  if (place.blocks.empty()) return part;
  const Range values = ValuesOf(space, place.blocks);
  part.is_large_ = values.size() * static_cast<int64_t>(sizeof(float)) >= kLarge;
  std::vector<std::string> vectors = {""};
  vectors.insert(vectors.end(), slots.begin(), slots.end());
  for (const std::string& vector : vectors) {
    RUBATO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Reuse(PartFile(folder, vector, place)));
    if (part.is_large_) file.BypassCache();
    RUBATO_ASSIGN_OR_RETURN(
        SafetensorsWriter writer,
        SafetensorsWriter::Create(std::move(file), Cut(VectorTensors(layout, vector), values),
                                  {{"format", "pt"}}));
    part.files_.push_back(std::move(writer));
  }
  return part;
}

absl::Status CheckpointPart::Append(size_t vector, absl::Span<const float> values) {
  RUBATO_CHECK(appended_[vector] < blocks_.size());
  const int64_t index = appended_[vector]++;
  const Range range = space_.BlockValues(blocks_.begin + index);
  RUBATO_CHECK(static_cast<int64_t>(values.size()) == range.size());
  uint32_t checksum = 0;
  for (size_t begin = 0; begin < values.size(); begin += kTile) {
    const absl::Span<const float> tile = values.subspan(begin, kTile);
    if (const size_t wrong = FirstNonFinite(tile); wrong < tile.size()) {
      return absl::DataLossError(
          absl::StrCat(ParameterAt(layout_, range.begin + static_cast<int64_t>(begin + wrong)),
                       " is not finite"));
    }
    checksum = Crc32c(AsBytes(tile), checksum);
  }
  checksums_[index * files_.size() + vector] = checksum;
  return files_[vector].Append(AsBytes(values));
}

absl::Status CheckpointPart::Finish(Flush flush, const std::function<bool()>& goes_on) {
  for (SafetensorsWriter& file : files_) {
    if (goes_on && !goes_on()) return absl::CancelledError("the part is not wanted any more");
    RUBATO_RETURN_IF_ERROR(file.Finish(flush));
  }
  return absl::OkStatus();
}

}  // namespace rubato
