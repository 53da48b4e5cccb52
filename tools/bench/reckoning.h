// Estimates how long a GPU would take for a step from its published figures: arithmetic, not
// measurement.
#ifndef RUBATO_TOOLS_BENCH_RECKONING_H_
#define RUBATO_TOOLS_BENCH_RECKONING_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/cuda/product.h"
#include "tensor/cuda/work_list.h"
#include "tools/bench/kernel_facts.h"
#include "tools/bench/published.h"

namespace rubato {

// What kernels, products and copies are for.
enum class Part {
  kProducts,      // of linear layers and convolutions
  kAttention,     // its products and its softmax
  kColumnSums,    // sums over rows: gradients of biases and of norms' weights
  kSingleValues,  // functions of single values, and additions
  kOthers,        // norms, columns of convolutions, pooling, embeddings, the loss
  kTransfers,     // between the host and the GPU
};
constexpr int kParts = 6;
const char* PartName(Part part);

// Pieces of work of one name, together.
struct ReckonedRow {
  std::string name;
  Part part;
  int64_t count = 0;
  double bytes = 0;       // of the GPU's memory or, of transfers, of the bus
  double operations = 0;  // of products
  double seconds = 0;
  // Of a kernel that is in the table: what its time is bound by, 0 otherwise.
  KernelFacts facts = {0, 0};
  int64_t threads = 0;  // of a processor at a time
};

struct Reckoning {
  std::vector<ReckonedRow> rows;  // the longest first
  std::array<double, kParts> seconds_of = {};
  // From the step's begin to its end, with what overlaps in streams; and of the work in order
  // without the transfers.
  double seconds = 0, seconds_on_gpu = 0;
};

// A kernel takes the longest of these times: its bytes at the memory's bandwidth, its bytes at the
// rate that its loads in flight allow (tensor/cuda/kernel_table.txt, by `facts`), one load, its
// operations at the peak rate. The same for a product, and for attention and convolutions in one
// piece, without the second. Each piece of work begins kLaunchSeconds after the previous one of its
// stream.
Reckoning Reckon(const std::vector<Work>& work, const PublishedGpu& gpu, ProductPrecision precision,
                 const std::map<std::string, KernelFacts>& facts);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_RECKONING_H_
