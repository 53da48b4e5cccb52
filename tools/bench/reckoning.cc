#include "tools/bench/reckoning.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tools/bench/product_names.h"

namespace rubato {
namespace {

Part PartOf(const Work& work) {
  if (work.kind == Work::kUpload || work.kind == Work::kDownload) return Part::kTransfers;
  if (work.is_attention) return Part::kAttention;
  if (work.kind == Work::kProduct || work.kind == Work::kConvolution) return Part::kProducts;
  for (absl::string_view name : {"SumColumns<", "SumChannel<", "ChannelGradients<"}) {
    if (absl::StartsWith(work.kernel, name)) return Part::kColumnSums;
  }
  for (absl::string_view name :
       {"AddToPlanes", "AddToRows", "Apply", "Combine", "ConvertValues", "CopyValues", "DropFour",
        "FlagNonFinite", "GeluValues", "SpreadBias", "UnscaleValues", "Zero"}) {
    if (absl::StartsWith(absl::StripPrefix(work.kernel, "ForEachIndex<"), name)) {
      return Part::kSingleValues;
    }
  }
  return Part::kOthers;
}

// Each matrix once.
double BytesOf(const Product& p) {
  const auto bytes = [&](const Matrix& matrix, int64_t rows, int64_t columns) {
    const int64_t count = matrix.distance == 0 ? 1 : p.count;
    return static_cast<double>(count * rows * columns * BytesOf(matrix.dtype));
  };
  return bytes(p.a, p.m, p.k) + bytes(p.b, p.k, p.n) +
         (p.beta != 0 ? 2 : 1) * bytes(p.c, p.m, p.n) +
         (p.bias != nullptr ? static_cast<double>(p.n * BytesOf(p.c.dtype)) : 0);
}

class Reckoner {
 public:
  Reckoner(const PublishedGpu& gpu, ProductPrecision precision,
           const std::map<std::string, KernelFacts>& facts)
      : gpu_(gpu), precision_(precision), facts_(facts) {}

  // Of one piece.
  ReckonedRow RowOf(const Work& work) const {
    ReckonedRow row;
    row.part = PartOf(work);
    row.count = 1;
    if (work.kind == Work::kKernel) {
      OfKernel(work, &row);
    } else if (work.kind == Work::kProduct) {
      OfProduct(*work.product, &row);
    } else if (work.kind == Work::kAttention) {
      OfAttention(*work.attention, &row);
    } else if (work.kind == Work::kConvolution) {
      OfConvolution(*work.convolution, &row);
    } else {
      row.name = work.kind == Work::kUpload ? "to the GPU" : "from the GPU";
      row.bytes = static_cast<double>(work.bytes);
      row.seconds = kLaunchSeconds + row.bytes / gpu_.bus_bytes;
    }
    return row;
  }

 private:
  void OfKernel(const Work& work, ReckonedRow* row) const {
    const Traffic& traffic = work.traffic;
    row->name = work.kernel;
    row->bytes = static_cast<double>(traffic.read + traffic.written);
    row->operations = 2 * traffic.multiplications;
    double seconds = std::max(row->bytes / gpu_.memory_bytes, row->operations / gpu_.float32);
    const auto found = facts_.find(work.kernel);
    if (found != facts_.end()) {
      row->facts = found->second;
      row->threads = ThreadsOfAProcessor(found->second, work.threads);
      const int64_t threads = std::min(work.blocks * work.threads, gpu_.processors * row->threads);
      const int64_t under_way =
          threads * std::max<int64_t>(found->second.loads, 1) * std::max<int64_t>(traffic.load, 1);
      seconds = std::max(seconds, static_cast<double>(traffic.read) /
                                      static_cast<double>(under_way) * kLoadSeconds);
    }
    if (traffic.read > 0) seconds = std::max(seconds, kLoadSeconds);
    row->seconds = kLaunchSeconds + seconds;
  }

  void OfProduct(const Product& product, ReckonedRow* row) const {
    row->name = NameOf(product);
    row->bytes = BytesOf(product);
    row->operations = OperationsOf(product);
    const double peak = product.a.dtype != DType::kFloat32      ? gpu_.half
                        : precision_ == ProductPrecision::kTf32 ? gpu_.tf32
                                                                : gpu_.float32;
    row->seconds = kLaunchSeconds +
                   std::max({row->bytes / gpu_.memory_bytes, row->operations / peak, kLoadSeconds});
  }

  // Its operands cross the memory once. Backward, the gradient by all scores that are seen does so
  // twice: cuDNN's deterministic algorithm. Two products forward, five backward.
  void OfAttention(const FusedAttention& fused, ReckonedRow* row) const {
    const Attention& a = fused.attention;
    const bool is_backward = fused.dx != nullptr;
    const double size = static_cast<double>(BytesOf(a.dtype));
    const double places = static_cast<double>(fused.n * a.places);
    const double rows = places * static_cast<double>(a.heads);
    const double scores =
        rows * (a.causal ? (static_cast<double>(a.places) + 1) / 2 : static_cast<double>(a.places));
    const double values = places * static_cast<double>(a.channels);
    row->name = is_backward ? "attention, backward" : "attention, forward";
    row->bytes = (is_backward ? 8 : 4) * values * size + rows * sizeof(float) +
                 (is_backward ? 2 * scores * size : 0);
    row->operations =
        (is_backward ? 5 : 2) * 2 * scores * static_cast<double>(a.channels / a.heads);
    row->seconds = kLaunchSeconds + std::max({row->bytes / gpu_.memory_bytes,
                                              row->operations / gpu_.half, kLoadSeconds});
  }

  // Its operands cross the memory once.
  void OfConvolution(const FusedConvolution& fused, ReckonedRow* row) const {
    constexpr const char* kNames[] = {"forward", "by inputs", "by weights"};
    const Convolution& c = fused.convolution;
    const int64_t n_x = fused.n * c.in_channels * c.window.plane();
    const int64_t n_y = fused.n * c.out_channels * c.window.out_plane();
    const bool is_of_weights = fused.pass == ConvolutionPass::kWeightGradient;
    const int64_t weight =
        c.out_channels * c.filter() * BytesOf(is_of_weights ? DType::kFloat32 : fused.dtype);
    row->name = absl::StrCat("convolutions, ", kNames[static_cast<int>(fused.pass)]);
    row->bytes = static_cast<double>((n_x + n_y) * BytesOf(fused.dtype) + weight);
    row->operations = 2 * static_cast<double>(n_y) * static_cast<double>(c.filter());
    row->seconds = kLaunchSeconds + std::max({row->bytes / gpu_.memory_bytes,
                                              row->operations / gpu_.half, kLoadSeconds});
  }

  const PublishedGpu& gpu_;
  const ProductPrecision precision_;
  const std::map<std::string, KernelFacts>& facts_;
};

}  // namespace

const char* PartName(Part part) {
  constexpr const char* kNames[kParts] = {"products",        "softmax and attention",
                                          "sums of columns", "single values",
                                          "others",          "transfers over PCIe"};
  return kNames[static_cast<int>(part)];
}

Reckoning Reckon(const std::vector<Work>& work, const PublishedGpu& gpu, ProductPrecision precision,
                 const std::map<std::string, KernelFacts>& facts) {
  const Reckoner reckoner(gpu, precision, facts);
  Reckoning reckoning;
  std::map<std::pair<Part, std::string>, size_t> places;
  double done[kStreams] = {};  // by stream: when what it has so far is done
  for (const Work& piece : work) {
    double& stream = done[static_cast<int>(piece.stream)];
    if (piece.kind == Work::kOrder) {
      stream = std::max(stream, done[static_cast<int>(piece.other)]);
      continue;
    }
    if (piece.kind == Work::kSignal) continue;
    const ReckonedRow row = reckoner.RowOf(piece);
    stream += row.seconds;
    reckoning.seconds_of[static_cast<int>(row.part)] += row.seconds;
    if (row.part != Part::kTransfers) reckoning.seconds_on_gpu += row.seconds;
    const auto [place, is_new] = places.try_emplace({row.part, row.name}, reckoning.rows.size());
    if (is_new) {
      reckoning.rows.push_back(row);
      continue;
    }
    ReckonedRow& all = reckoning.rows[place->second];
    ++all.count;
    all.bytes += row.bytes;
    all.operations += row.operations;
    all.seconds += row.seconds;
  }
  reckoning.seconds = *std::max_element(done, done + kStreams);
  std::stable_sort(
      reckoning.rows.begin(), reckoning.rows.end(),
      [](const ReckonedRow& a, const ReckonedRow& b) { return a.seconds > b.seconds; });
  return reckoning;
}

}  // namespace rubato
