#include "tensor/cuda/product_contract.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/product_extent.h"

namespace rubato {
namespace {

// Where a matrix's values begin and end, of all that the product has.
std::pair<uintptr_t, uintptr_t> RangeOf(const Matrix& matrix, int64_t extent) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(matrix.values);
  return {begin, begin + static_cast<uintptr_t>(extent * BytesOf(matrix.dtype))};
}

bool Overlap(std::pair<uintptr_t, uintptr_t> a, std::pair<uintptr_t, uintptr_t> b) {
  return a.first < b.second && b.first < a.second;
}

// Of a matrix of `rows` and `columns`, as stored; `name` is a, b or c.
absl::Status CheckMatrix(const char* name, const Matrix& matrix, int64_t rows, int64_t columns) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " of ", rows, " x ", columns, " ", what...));
  };
  if (matrix.values == nullptr) return refuse("has no address");
  // cublasLt.h, CUBLASLT_MATRIX_LAYOUT_LD: not negative, and so great that columns (our rows) do
  // not overlap.
  if (matrix.pitch < columns) {
    return refuse("has a pitch of ", matrix.pitch, ", expected ", columns, " or more");
  }
  // cublasLt.h, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*_BYTES: the least that an algorithm can be
  // asked for is a value's own.
  if (reinterpret_cast<uintptr_t>(matrix.values) % BytesOf(matrix.dtype) != 0) {
    return refuse("is not aligned to its values of ", BytesOf(matrix.dtype), " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContract(const Product& p) {
  const std::string name = absl::StrCat(p.m, " x ", p.n, " x ", p.k);
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("a product of ", name, " ", what...));
  };
  // cublasLt.h: rows and columns are uint64_t, the leading dimension int64_t, the count of a batch
  // int32_t (CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT). Of nothing there is no algorithm.
  if (p.m < 1 || p.n < 1 || p.k < 1) return refuse("is empty");
  if (p.count < 1 || p.count > std::numeric_limits<int32_t>::max()) {
    return refuse("is asked for ", p.count, " times, expected 1 to 2^31 - 1");
  }
  // Documentation of cublasLtMatmul(), table of types: with CUBLAS_COMPUTE_32F and scales of
  // float32, A and B of one type; C and D of theirs or, for the half floats, float32.
  if (p.a.dtype != p.b.dtype) return refuse("has factors of two types");
  const bool known = p.a.dtype == DType::kFloat32 || p.a.dtype == DType::kBFloat16 ||
                     p.a.dtype == DType::kFloat16 || p.a.dtype == DType::kFloat64;
  if (!known) return refuse("has factors of type ", DTypeName(p.a.dtype));
  if (p.c.dtype != p.a.dtype &&
      (p.c.dtype != DType::kFloat32 || BytesOf(p.a.dtype) > BytesOf(DType::kFloat32))) {
    return refuse("of ", DTypeName(p.a.dtype), " ends in ", DTypeName(p.c.dtype));
  }
  const bool ta = p.transpose_a == Transpose::kYes, tb = p.transpose_b == Transpose::kYes;
  for (const absl::Status& status :
       {CheckMatrix("a", p.a, ta ? p.k : p.m, ta ? p.m : p.k),
        CheckMatrix("b", p.b, tb ? p.n : p.k, tb ? p.k : p.n), CheckMatrix("c", p.c, p.m, p.n)}) {
    if (!status.ok()) return refuse("is not allowed: ", status.message());
  }
  // cublasLt.h, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: in elements, 0 by default, so that one
  // factor may be that of all products. What one of them writes another must not: matrices lie
  // behind one another, or beside one another in the same rows.
  const int64_t size = (p.m - 1) * p.c.pitch + p.n;
  const bool beside = p.c.distance >= p.n && p.count * p.c.distance <= p.c.pitch;
  if (p.count > 1 && p.c.distance < size && !beside) {
    return refuse("has results ", p.c.distance, " values apart that overlap");
  }
  // Documentation of cublasLtMatmul(): C may be D, in place; neither may be A or B.
  const auto c = RangeOf(p.c, ExtentOfC(p));
  if (Overlap(c, RangeOf(p.a, ExtentOfA(p))) || Overlap(c, RangeOf(p.b, ExtentOfB(p)))) {
    return refuse("writes on its factors");
  }
  if (p.bias == nullptr) return absl::OkStatus();
  // cublasLt.h, CUBLASLT_EPILOGUE_BIAS: as long as D has rows (our columns), packed, of D's type
  // (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE); that is how Product says it, so only its address is
  // left.
  if (reinterpret_cast<uintptr_t>(p.bias) % BytesOf(p.c.dtype) != 0) {
    return refuse("has a bias that is not aligned to its values");
  }
  if (!MayEndInBias(p)) return refuse("ends in a bias, expected sides of more than 1");
  return absl::OkStatus();
}

}  // namespace rubato
