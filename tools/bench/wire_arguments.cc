#include "tools/bench/wire_arguments.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace rubato {
namespace {

absl::Status SetSizes(const std::string& sizes, WireBench* bench) {
  if (!sizes.empty()) bench->sizes.clear();
  for (absl::string_view size : absl::StrSplit(sizes, ',', absl::SkipEmpty())) {
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(size, &bytes) || bytes < 64 || bytes % 64 != 0 || bytes > 1 << 30 ||
        (bytes > 256 << 10 && bytes % (256 << 10) != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found --sizes ", sizes,
          ", expected numbers of bytes: multiples of 64, above 262144 of that, up to 1073741824"));
    }
    bench->sizes.push_back(bytes);
  }
  return absl::OkStatus();
}

absl::Status SetPath(const std::string& path, WireBench* bench) {
  if (path.empty()) return absl::OkStatus();
  bench->paths = absl::StrSplit(path, ',');
  for (const std::string& one : bench->paths) {
    if (one != "tcp" && one != "shm" && one != "token" && one != "mtls") {
      return absl::InvalidArgumentError(
          absl::StrCat("found --path ", path, ", expected some of tcp, shm, token and mtls"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetCodecs(const std::string& codecs, WireBench* bench) {
  if (codecs.empty()) return absl::OkStatus();
  std::vector<Codec> chosen;
  for (absl::string_view name : absl::StrSplit(codecs, ',')) {
    const auto codec = std::find_if(bench->codecs.begin(), bench->codecs.end(),
                                    [&](Codec known) { return CodecName(known) == name; });
    if (codec == bench->codecs.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found --codec ", codecs, ", expected some of float32, bf16, fp16, int8 and topk"));
    }
    chosen.push_back(*codec);
  }
  bench->codecs = chosen;
  return absl::OkStatus();
}

absl::Status SetWorkers(const std::string& workers, WireBench* bench) {
  if (workers.empty()) return absl::OkStatus();
  bench->workers.clear();
  for (absl::string_view number : absl::StrSplit(workers, ',')) {
    int count = 0;
    // Means of powers of two are exact.
    if (!absl::SimpleAtoi(number, &count) || count < 1 || count > 64 ||
        (count & (count - 1)) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("found --workers ", workers, ", expected powers of two up to 64"));
    }
    bench->workers.push_back(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WireArguments::ApplyTo(WireBench* bench) const {
  RUBATO_RETURN_IF_ERROR(SetSizes(sizes, bench));
  RUBATO_RETURN_IF_ERROR(SetPath(path, bench));
  RUBATO_RETURN_IF_ERROR(SetCodecs(codecs, bench));
  RUBATO_RETURN_IF_ERROR(SetWorkers(workers, bench));
  if (bench->rounds < 1 || bench->rounds > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --rounds ", bench->rounds, ", expected 1 to 1000"));
  }
  if (bench->threads < 1 || bench->threads > 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --threads ", bench->threads, ", expected 1 to 16"));
  }
  if (quick) {
    bench->rounds = 1;
    bench->sample_bytes = 1 << 20;
    bench->round_trips = 100;
    bench->memory_bytes = 4 << 20;
  }
  return absl::OkStatus();
}

}  // namespace rubato
