#include "tools/bench/product_names.h"

#include "absl/strings/str_cat.h"

namespace rubato {

std::string NameOf(const Product& p) {
  return absl::StrCat(p.count > 1 ? absl::StrCat(p.count, " of ") : "", p.m, " x ", p.n, " x ", p.k,
                      ", ", p.transpose_a == Transpose::kYes ? "t" : "n",
                      p.transpose_b == Transpose::kYes ? "t" : "n",
                      p.bias != nullptr ? ", with bias" : "");
}

double OperationsOf(const Product& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
         static_cast<double>(p.count);
}

}  // namespace rubato
