#include "common/files/manifest.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/consistency/block_units.h"
#include "common/files/atomic_file.h"
#include "common/files/message_json.h"
#include "common/files/run_folder.h"

namespace rubato {
namespace {

// Of all that the manifest says.
std::string DigestOf(proto::Manifest manifest) {
  manifest.clear_digest();
  return Sha256Hex(manifest.SerializeAsString());
}

// Of format 2: each block is in one part, and has its checksums.
absl::Status CheckParts(const std::string& file, const proto::Manifest& manifest) {
  if (const absl::Status layout = CheckLayout(manifest.layout()); !layout.ok()) {
    return Damaged(file, layout.message());
  }
  const int64_t blocks = SpaceOf(manifest).blocks();
  if (manifest.blocks_size() != blocks) {
    return Damaged(
        file, absl::StrFormat("it has %d blocks, expected %d", manifest.blocks_size(), blocks));
  }
  int64_t end = 0;
  for (const proto::Manifest::Part& part : manifest.parts()) {
    if (part.begin() != end || part.end() < end || part.end() > blocks) {
      return Damaged(file, absl::StrFormat("a part is of blocks %d to %d, expected from %d on",
                                           part.begin(), part.end(), end));
    }
    end = part.end();
  }
  if (end != blocks) {
    return Damaged(file, absl::StrFormat("its parts end with block %d of %d", end, blocks));
  }
  for (const proto::BlockState& block : manifest.blocks()) {
    if (block.checksums_size() != 1 + manifest.slots_size()) {
      return Damaged(file, absl::StrFormat("block %d has %d checksums, expected %d", block.block(),
                                           block.checksums_size(), 1 + manifest.slots_size()));
    }
  }
  return absl::OkStatus();
}

// What a manifest says must hold together, whoever wrote it: what goes on from it computes with it
// unchecked.
absl::Status CheckManifest(const std::string& file, const proto::Manifest& manifest) {
  if (manifest.format() > 1 && !manifest.has_digest()) return Damaged(file, "it has no digest");
  if (manifest.has_digest() && manifest.digest() != DigestOf(manifest)) {
    return Damaged(file, "what it says has another digest than it names");
  }
  for (const auto& [name, number] : {std::pair("step", manifest.step()),
                                     {"samples", manifest.samples()},
                                     {"samples_per_epoch", manifest.samples_per_epoch()},
                                     {"origin_unit", manifest.origin_unit()},
                                     {"origin_samples", manifest.origin_samples()},
                                     {"origin_steps", manifest.origin_steps()},
                                     {"unit_samples", manifest.unit_samples()},
                                     {"block_values", manifest.block_values()},
                                     {"residuals", manifest.residuals()}}) {
    if (number < 0 || number > kMaxCount) {
      return Damaged(file, absl::StrFormat("%s is %d, expected 0 to %d", name, number, kMaxCount));
    }
  }
  for (const auto& [name, number] :
       {std::pair("epoch", manifest.epoch()), {"seconds", manifest.seconds()}}) {
    if (!(number >= 0 && number <= static_cast<double>(kMaxCount))) {
      return Damaged(file, absl::StrFormat("%s is %g", name, number));
    }
  }
  if (manifest.blocks().empty()) return Damaged(file, "it has no blocks");
  if (manifest.origin_unit() > manifest.step()) {
    return Damaged(file, absl::StrFormat("step is %d, before origin_unit, which is %d",
                                         manifest.step(), manifest.origin_unit()));
  }
  int64_t samples = 0;
  for (int i = 0; i < manifest.blocks_size(); ++i) {
    const proto::BlockState& block = manifest.blocks(i);
    bool fits = block.block() == i;
    for (const int64_t number :
         {block.version(), block.samples(), block.units_below(), block.skipped()}) {
      fits = fits && 0 <= number && number <= kMaxCount;
    }
    const int64_t given = std::max(manifest.step(), int64_t{1});
    for (const int64_t unit : block.units_above()) fits = fits && 0 <= unit && unit < given;
    for (const proto::UnitRun& run : block.unit_runs()) {
      fits = fits && 0 <= run.begin() && run.begin() < run.end() && run.end() <= given;
    }
    if (manifest.mode() == proto::Manifest::MODE_SYNC) {  // all blocks are at one version
      fits = fits && block.version() == manifest.step();
    } else {
      fits = fits && block.units_below() <= manifest.step();
    }
    if (!fits) {
      return Damaged(file, absl::StrFormat("of block %d it says what cannot be", i));
    }
    samples = std::max(samples, block.samples());
  }
  if (samples != manifest.samples()) {
    return Damaged(file,
                   absl::StrFormat("samples is %d, of the blocks %d", manifest.samples(), samples));
  }
  return manifest.format() > 1 ? CheckParts(file, manifest) : absl::OkStatus();
}

}  // namespace

absl::Status WriteManifest(const std::string& file, proto::Manifest manifest) {
  manifest.set_format(kManifestFormat);
  manifest.set_digest(DigestOf(manifest));
  RUBATO_RETURN_IF_ERROR(CheckManifest(file, manifest));  // else nobody could read it
  RUBATO_ASSIGN_OR_RETURN(AtomicFile writer, AtomicFile::Reuse(file));
  RUBATO_RETURN_IF_ERROR(writer.Append(MessageJson(manifest)));
  return writer.Commit(Flush::kNothing);
}

absl::StatusOr<proto::Manifest> ReadManifestFile(const std::string& file) {
  RUBATO_ASSIGN_OR_RETURN(const std::string json, ReadSmallFile(file));
  proto::Manifest manifest;
  if (!google::protobuf::util::JsonStringToMessage(json, &manifest).ok()) {
    return Damaged(file, "it is no JSON of a manifest");
  }
  if (manifest.format() < 1 || manifest.format() > kManifestFormat) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has format %d; this version reads formats 1 to %d", file,
                        manifest.format(), kManifestFormat));
  }
  RUBATO_RETURN_IF_ERROR(CheckManifest(file, manifest));
  return manifest;
}

absl::Status Damaged(const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, " is damaged: ", what));
}

FlatSpace SpaceOf(const proto::Manifest& manifest) {
  const int64_t values = ValueCount(manifest.layout());
  return FlatSpace(
      values, manifest.block_values() > 0 ? manifest.block_values() : std::max<int64_t>(1, values));
}

void AddChecksums(Range blocks, absl::Span<const uint32_t> checksums, proto::Manifest* manifest) {
  const size_t vectors = blocks.empty() ? 0 : checksums.size() / blocks.size();
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    proto::BlockState* state = manifest->mutable_blocks(static_cast<int>(block));
    state->clear_checksums();
    for (const uint32_t checksum : checksums.subspan((block - blocks.begin) * vectors, vectors)) {
      state->add_checksums(checksum);
    }
  }
}

PartPlace PlaceOf(const proto::Manifest& manifest, int part) {
  return {part, manifest.parts_size(), {manifest.parts(part).begin(), manifest.parts(part).end()}};
}

absl::StatusOr<CheckpointPart> CreatePart(const std::string& folder,
                                          const proto::Manifest& manifest, int part) {
  return CheckpointPart::Create(folder, manifest.layout(), SpaceOf(manifest),
                                {manifest.slots().begin(), manifest.slots().end()},
                                PlaceOf(manifest, part));
}

std::vector<std::string> VectorsOf(const proto::Manifest& manifest) {
  std::vector<std::string> vectors = {""};
  vectors.insert(vectors.end(), manifest.slots().begin(), manifest.slots().end());
  return vectors;
}

std::vector<int64_t> UnitsNotWhole(const proto::Manifest& checkpoint) {
  std::vector<UnitSet> sets;
  for (const proto::BlockState& block : checkpoint.blocks()) sets.push_back(UnitsOf(block));
  std::vector<const UnitSet*> blocks;
  for (const UnitSet& set : sets) blocks.push_back(&set);
  std::vector<int64_t> units;
  if (blocks.empty()) return units;
  const UnitSet whole = HeldBy(blocks).by_all;
  for (int64_t unit = whole.below(); unit < checkpoint.step(); ++unit) {
    if (!whole.Contains(unit)) units.push_back(unit);
  }
  return units;
}

}  // namespace rubato
