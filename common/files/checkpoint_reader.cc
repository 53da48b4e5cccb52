#include "common/files/checkpoint_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/status.h"
#include "common/files/checkpoint_part.h"
#include "common/files/manifest.h"

namespace rubato {
namespace {

// Of format 1.
constexpr char kParameters[] = "/parameters.safetensors";
constexpr char kOptimizer[] = "/optimizer.safetensors";

absl::Status CheckDigest(const std::string& path, const std::string& digest) {
  RUBATO_ASSIGN_OR_RETURN(const std::string found, FileDigest(path));
  if (found == digest) return absl::OkStatus();
  return Damaged(path, absl::StrFormat("its digest is %s, the manifest says %s",
                                       found.substr(0, 12), digest.substr(0, 12)));
}

// The places of the parameters' tensors in a file of one vector. InvalidArgument, listing what
// differs, if the file is of another model.
absl::StatusOr<std::vector<size_t>> FindTensors(const SafetensorsReader& reader,
                                                const proto::Layout& layout,
                                                const std::string& slot) {
  std::vector<size_t> places;
  std::vector<std::string> wrong;
  for (const TensorInfo& tensor : VectorTensors(layout, slot)) {
    const std::optional<size_t> index = reader.Find(tensor.name);
    if (!index.has_value()) {
      wrong.push_back(absl::StrCat(tensor.name, " is missing"));
    } else if (const std::vector<int64_t>& shape = reader.tensors()[*index].shape;
               shape != tensor.shape) {
      wrong.push_back(absl::StrFormat("%s has shape (%s), the model's is (%s)", tensor.name,
                                      absl::StrJoin(shape, ", "),
                                      absl::StrJoin(tensor.shape, ", ")));
    } else {
      places.push_back(*index);
    }
  }
  if (wrong.empty() && slot.empty() && places.size() < reader.tensors().size()) {
    wrong.push_back(absl::StrFormat("%d more tensors", reader.tensors().size() - places.size()));
  }
  if (wrong.empty()) return places;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s does not fit the model: %s", reader.path(), absl::StrJoin(wrong, "; ")));
}

}  // namespace

absl::Status CheckDigests(const std::string& path, const proto::Manifest& manifest) {
  RUBATO_RETURN_IF_ERROR(CheckDigest(path + kParameters, manifest.parameters_digest()));
  if (manifest.slots().empty()) return absl::OkStatus();
  return CheckDigest(path + kOptimizer, manifest.optimizer_digest());
}

absl::StatusOr<SafetensorsReader> OpenVector(const std::string& path,
                                             const proto::Manifest& manifest,
                                             const std::string& slot) {
  if (manifest.format() == 1) {
    return SafetensorsReader::Open(path + (slot.empty() ? kParameters : kOptimizer));
  }
  std::vector<SafetensorsReader> parts;
  for (int i = 0; i < manifest.parts_size(); ++i) {
    if (PlaceOf(manifest, i).blocks.empty()) continue;
    absl::StatusOr<SafetensorsReader> part = OpenPart(path, slot, PlaceOf(manifest, i));
    if (absl::IsNotFound(part.status())) {
      return Damaged(path, absl::StrCat("part ", i, " is missing: ", part.status().message()));
    }
    RUBATO_RETURN_IF_ERROR(part.status());
    parts.push_back(*std::move(part));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return SafetensorsReader::Join(
      absl::StrFormat("%s/%s-*-of-%d.safetensors", path, slot.empty() ? "parameters" : slot,
                      manifest.parts_size()),
      VectorTensors(manifest.layout(), slot), std::move(parts));
}

CheckpointReader::CheckpointReader(const proto::Manifest& manifest, const proto::Layout& layout)
    : manifest_(manifest), layout_(layout), space_(SpaceOf(manifest)) {}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& path,
                                                        const proto::Manifest& manifest,
                                                        const proto::Layout& layout) {
  if (manifest.format() == 1) RUBATO_RETURN_IF_ERROR(CheckDigests(path, manifest));
  CheckpointReader reader(manifest, layout);
  for (const std::string& vector : VectorsOf(manifest)) {
    RUBATO_ASSIGN_OR_RETURN(SafetensorsReader file, OpenVector(path, manifest, vector));
    RUBATO_ASSIGN_OR_RETURN(std::vector<size_t> tensors, FindTensors(file, layout, vector));
    reader.vectors_.push_back({std::move(file), std::move(tensors)});
  }
  return reader;
}

absl::Status CheckpointReader::Read(size_t vector, int64_t begin, absl::Span<float> out) const {
  if (manifest_.format() == 1) return ReadUnchecked(vector, begin, out);
  std::vector<float> whole;  // of a block of which only some is wanted
  while (!out.empty()) {
    const int64_t block = begin / space_.block_values();
    const Range values = space_.BlockValues(block);
    const auto wanted = std::min<int64_t>(values.end - begin, out.size());
    if (wanted == values.size()) {
      RUBATO_RETURN_IF_ERROR(ReadUnchecked(vector, begin, out.first(wanted)));
      RUBATO_RETURN_IF_ERROR(CheckBlock(vector, block, out.first(wanted)));
    } else {
      whole.resize(values.size());
      RUBATO_RETURN_IF_ERROR(ReadUnchecked(vector, values.begin, absl::MakeSpan(whole)));
      RUBATO_RETURN_IF_ERROR(CheckBlock(vector, block, whole));
      std::copy_n(whole.begin() + (begin - values.begin), wanted, out.begin());
    }
    begin += wanted;
    out.remove_prefix(wanted);
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckBlock(size_t vector, int64_t block,
                                          absl::Span<const float> values) const {
  const uint32_t expected =
      manifest_.blocks(static_cast<int>(block)).checksums(static_cast<int>(vector));
  const uint32_t found = Crc32c(AsBytes(values));
  if (found == expected) return absl::OkStatus();
  return Damaged(vectors_[vector].file.path(),
                 absl::StrFormat("the checksum of block %d is %08x, the manifest says %08x", block,
                                 found, expected));
}

absl::Status CheckpointReader::ReadUnchecked(size_t vector, int64_t begin,
                                             absl::Span<float> out) const {
  const Vector& from = vectors_[vector];
  int64_t first = 0;  // value of the parameter
  for (int i = 0; i < layout_.parameters_size() && !out.empty(); ++i) {
    const int64_t end = first + ValueCount(layout_.parameters(i));
    if (begin < end) {
      const auto count = std::min<int64_t>(end - begin, out.size());
      RUBATO_RETURN_IF_ERROR(
          from.file.ReadFloats(from.tensors[i], begin - first, out.first(count)));
      begin += count;
      out.remove_prefix(count);
    }
    first = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ReadParameters(const SafetensorsReader& reader,
                                                  const proto::Layout& layout) {
  RUBATO_ASSIGN_OR_RETURN(const std::vector<size_t> tensors, FindTensors(reader, layout, ""));
  std::vector<float> parameters(ValueCount(layout));
  int64_t begin = 0;
  for (const size_t tensor : tensors) {
    const int64_t count = reader.tensors()[tensor].Elements();
    RUBATO_RETURN_IF_ERROR(
        reader.ReadFloats(tensor, 0, absl::MakeSpan(parameters).subspan(begin, count)));
    begin += count;
  }
  return parameters;
}

}  // namespace rubato
