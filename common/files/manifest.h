// What a checkpoint's manifest.json says (proto/checkpoint.proto).
#ifndef RUBATO_COMMON_FILES_MANIFEST_H_
#define RUBATO_COMMON_FILES_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/files/checkpoint_part.h"
#include "common/space/flat_space.h"
#include "proto/checkpoint.pb.h"

namespace rubato {

constexpr int kManifestFormat = 2;  // that is written; 1 is read, too

// Fills in the format and the digest; flushes nothing. Errors as ReadManifestFile if it could not
// be read again.
absl::Status WriteManifest(const std::string& file, proto::Manifest manifest);
// InvalidArgument, in one sentence, if the file is damaged, has a later format or contradicts
// itself.
absl::StatusOr<proto::Manifest> ReadManifestFile(const std::string& file);

// `what` completes "FILE is damaged: ...".
absl::Status Damaged(const std::string& file, absl::string_view what);

// The flat space that the blocks cut. Format 2.
FlatSpace SpaceOf(const proto::Manifest& manifest);
// Of one of its parts.
PartPlace PlaceOf(const proto::Manifest& manifest, int part);
// Begins one of its parts in `folder`. Errors as CheckpointPart::Create.
absl::StatusOr<CheckpointPart> CreatePart(const std::string& folder,
                                          const proto::Manifest& manifest, int part);
// "" for the parameters, then the slots.
std::vector<std::string> VectorsOf(const proto::Manifest& manifest);
// Notes what CheckpointPart has found of its blocks.
void AddChecksums(Range blocks, absl::Span<const uint32_t> checksums, proto::Manifest* manifest);

// For a checkpoint on arrival: the contributions that had been given out and that some block does
// not contain. They are computed again.
std::vector<int64_t> UnitsNotWhole(const proto::Manifest& checkpoint);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_MANIFEST_H_
