#include "worker/data/idx.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "worker/data/gzip_reader.h"

namespace rubato {
namespace {

// What one file must hold.
struct Kind {
  absl::string_view name;    // in the file's name
  absl::string_view holds;   // in messages
  absl::string_view layout;  // in messages
  int dimensions;
};
constexpr Kind kImages = {"images-idx3", "images", "count, height, width", 3};
constexpr Kind kLabels = {"labels-idx1", "labels", "count", 1};

struct Array {
  std::string path;
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> values;
};

absl::Status Wrong(const std::string& path, absl::string_view sentence) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", sentence));
}

// A header: two zero bytes, the type of the values, the number of dimensions, and each dimension
// as 32 bits, most significant byte first.
absl::StatusOr<std::vector<int64_t>> ReadHeader(const std::string& path, const Kind& kind,
                                                GzipReader& reader, std::vector<uint8_t>* header) {
  constexpr uint8_t kUnsignedByte = 0x08;
  RUBATO_RETURN_IF_ERROR(reader.Append(4, header));
  if (header->empty()) return Wrong(path, "is empty, expected an IDX header");
  if (header->size() < 4 || (*header)[0] != 0 || (*header)[1] != 0) {
    const std::string found(header->begin(), header->end());
    return Wrong(path, absl::StrCat("is no IDX file: begins with the bytes \"",
                                    absl::BytesToHexString(found), "\", expected \"0000080",
                                    kind.dimensions, "\""));
  }
  if ((*header)[2] != kUnsignedByte) {
    return Wrong(path,
                 absl::StrCat("holds values of type 0x", absl::Hex((*header)[2], absl::kZeroPad2),
                              ", expected 0x08, unsigned bytes"));
  }
  if ((*header)[3] != kind.dimensions) {
    return Wrong(
        path, absl::StrCat("has ", (*header)[3], " dimension", (*header)[3] == 1 ? "" : "s",
                           ", expected ", kind.dimensions, " (", kind.layout, ") of ", kind.holds));
  }
  RUBATO_RETURN_IF_ERROR(reader.Append(4 * kind.dimensions, header));
  if (header->size() < 4 + 4 * static_cast<size_t>(kind.dimensions)) {
    return Wrong(path, absl::StrCat("is cut off: its header has ", header->size(),
                                    " bytes, expected ", 4 + 4 * kind.dimensions));
  }
  std::vector<int64_t> dimensions;
  for (int i = 0; i < kind.dimensions; ++i) {
    const uint8_t* bytes = header->data() + 4 + 4 * i;
    dimensions.push_back(int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]);
  }
  return dimensions;
}

absl::StatusOr<Array> ReadFile(const std::string& path, const Kind& kind, Sha256* digest) {
  // More than any data set that one machine's memory holds, and far from overflow.
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  RUBATO_ASSIGN_OR_RETURN(GzipReader reader, GzipReader::Open(path));
  std::vector<uint8_t> header;
  RUBATO_ASSIGN_OR_RETURN(std::vector<int64_t> dimensions, ReadHeader(path, kind, reader, &header));
  const std::string shape = absl::StrJoin(dimensions, " x ");
  int64_t bytes = 1;
  for (const int64_t dimension : dimensions) {
    if (dimension == 0) {
      return Wrong(path, absl::StrCat("holds no ", kind.holds, ": its header says ", shape));
    }
    if (dimension > kMaxBytes / bytes) {
      return Wrong(path, absl::StrCat("has a header that says ", shape,
                                      " bytes, more than any data set has"));
    }
    bytes *= dimension;
  }
  std::vector<uint8_t> values;
  // Address space, which costs nothing until it is written: spares usual sizes from growing
  // twofold.
  values.reserve(std::min(bytes, int64_t{256} << 20));
  RUBATO_RETURN_IF_ERROR(reader.Append(bytes, &values));
  if (static_cast<int64_t>(values.size()) < bytes) {
    return Wrong(path, absl::StrCat("is cut off: holds ", values.size(), " values, expected the ",
                                    bytes, " (", shape, ") that its header says"));
  }
  std::vector<uint8_t> rest;  // also makes zlib verify its checksum
  RUBATO_RETURN_IF_ERROR(reader.Append(1, &rest));
  if (!rest.empty()) {
    return Wrong(path, absl::StrCat("goes on after the ", bytes, " values (", shape,
                                    ") that its header says"));
  }
  for (const std::vector<uint8_t>* part : {&header, &values}) {
    digest->Update({reinterpret_cast<const char*>(part->data()), part->size()});
  }
  return Array{path, std::move(dimensions), std::move(values)};
}

// The path of the file in `folder`, under the first of its customary names that is there; empty if
// none is.
std::string Find(const std::string& folder, absl::string_view split, const Kind& kind) {
  std::string dotted(kind.name);
  std::replace(dotted.begin(), dotted.end(), '-', '.');
  for (const absl::string_view name : {kind.name, absl::string_view(dotted)}) {
    for (const absl::string_view suffix : {"-ubyte", "-ubyte.gz"}) {
      const std::filesystem::path path =
          std::filesystem::path(folder) / absl::StrCat(split, "-", name, suffix);
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) return path.string();
    }
  }
  return "";
}

// One split of its two files. Takes the images' pixels.
absl::StatusOr<Examples> Join(Array images, Array labels) {
  if (images.dimensions[0] != labels.dimensions[0]) {
    return Wrong(labels.path,
                 absl::StrCat("holds ", labels.dimensions[0], " labels, but ", images.path,
                              " holds ", images.dimensions[0], " images"));
  }
  Examples examples;
  examples.shape = {1, images.dimensions[1], images.dimensions[2]};
  examples.pixels = std::move(images.values);
  examples.labels.assign(labels.values.begin(), labels.values.end());
  return examples;
}

}  // namespace

absl::StatusOr<IdxFolder> ReadIdxFolder(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     ": there is no such folder, expected one with IDX files "
                     "(tools/download_data fetches MNIST and "
                     "Fashion-MNIST)"));
  }
  std::vector<Array> arrays;
  std::vector<std::string> paths, missing;
  for (const absl::string_view split : {"train", "t10k"}) {
    for (const Kind& kind : {kImages, kLabels}) {
      paths.push_back(Find(folder, split, kind));
      if (paths.back().empty()) missing.push_back(absl::StrCat(split, "-", kind.name, "-ubyte"));
    }
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, ": lacks ", absl::StrJoin(missing, ", "),
                                            " (also looked for with .gz)"));
  }
  Sha256 digest;
  for (size_t i = 0; i < paths.size(); ++i) {
    RUBATO_ASSIGN_OR_RETURN(Array array,
                            ReadFile(paths[i], i % 2 == 0 ? kImages : kLabels, &digest));
    arrays.push_back(std::move(array));
  }
  IdxFolder result;
  RUBATO_ASSIGN_OR_RETURN(result.train, Join(std::move(arrays[0]), std::move(arrays[1])));
  RUBATO_ASSIGN_OR_RETURN(result.test, Join(std::move(arrays[2]), std::move(arrays[3])));
  if (!(result.train.shape == result.test.shape)) {
    return Wrong(paths[2],
                 absl::StrCat("holds images of ", result.test.shape.height, " x ",
                              result.test.shape.width, " pixels, but ", paths[0], " of ",
                              result.train.shape.height, " x ", result.train.shape.width));
  }
  const int32_t largest = *std::max_element(result.train.labels.begin(), result.train.labels.end());
  result.train.classes = result.test.classes = int64_t{largest} + 1;
  const auto strange = std::find_if(result.test.labels.begin(), result.test.labels.end(),
                                    [largest](int32_t label) { return label > largest; });
  if (strange != result.test.labels.end()) {
    return Wrong(paths[3], absl::StrCat("has label ", *strange, " at place ",
                                        strange - result.test.labels.begin(),
                                        ", but the largest in ", paths[1], " is ", largest));
  }
  result.digest = digest.FinishHex();
  return result;
}

}  // namespace rubato
