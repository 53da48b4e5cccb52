// How benches show a product of matrices.
#ifndef RUBATO_TOOLS_BENCH_PRODUCT_NAMES_H_
#define RUBATO_TOOLS_BENCH_PRODUCT_NAMES_H_

#include <string>

#include "tensor/cuda/product.h"

namespace rubato {

// "16384 x 2304 x 768, nt, with bias": of c = a b, a's rows, b's columns, and what both share.
std::string NameOf(const Product& product);

// Additions and multiplications.
double OperationsOf(const Product& product);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_PRODUCT_NAMES_H_
