// `rubato bench products`: a model's products of matrices on a GPU, beside cuBLAS alone.
#ifndef RUBATO_TOOLS_BENCH_PRODUCTS_H_
#define RUBATO_TOOLS_BENCH_PRODUCTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_timer.h"
#include "tools/bench/subject.h"

namespace rubato {

// A product that a step has `times` times.
struct StepProduct {
  Product product;
  int64_t times;
};

// All products of a step of training on a GPU, forward and backward, in the order of their first
// appearance. Needs no GPU.
absl::StatusOr<std::vector<StepProduct>> ProductsOf(const BenchSetup& setup, int64_t batch);

// Each of them by itself, and what the step's take together. For people, or as one JSON object.
// FailedPrecondition without a GPU.
absl::StatusOr<std::string> BenchProducts(const BenchSubject& subject, bool json);

// Returns the exit code.
int BenchProductsMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_PRODUCTS_H_
