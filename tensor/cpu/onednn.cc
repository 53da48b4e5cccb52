#include "tensor/cpu/onednn.h"

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/check.h"

// Of the OpenMP library that oneDNN is built with. A header of its own is the compiler's.
extern "C" void omp_set_num_threads(int);

namespace rubato {
namespace {

using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;

constexpr auto kFloat = dnnl::memory::data_type::f32;

// What was measured, for products and for channels of a group.
constexpr int64_t kMinMultiplications = 1 << 20;
constexpr int64_t kMinChannels = 8;
constexpr double kMinFill = 0.4;
// Values of scratch for what a primitive needs besides its operands, and for whole cache lines.
constexpr int64_t kScratchpad = 4096;

// The library would choose its number of threads by itself; the number is each thread's own.
void UseOneThread() {
  thread_local const bool once = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

// Whether the library computes at this level. It takes one level for the whole process; without
// a limit, one that this machine has and another lacks.
bool IsAtLevel(Isa isa) {
  if (isa == Isa::kGeneric) return false;
  static const Isa level = [isa] {
    const dnnl_cpu_isa_t wanted =
        isa == Isa::kAvx512 ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx2;
    return dnnl_set_max_cpu_isa(wanted) == dnnl_success && dnnl_get_effective_cpu_isa() == wanted
               ? isa
               : Isa::kGeneric;
  }();
  return level == isa;
}

bool IsDepthwise(const Convolution& c) {
  return c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels;
}

// The share of the blocks that channels are laid out in, of 8 or of 16, that they fill.
double Fill(int64_t channels) {
  return channels == 8
             ? 1
             : static_cast<double>(channels) / static_cast<double>((channels + 15) / 16 * 16);
}

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl_stream_t Stream() {
  thread_local const dnnl::stream stream(Engine());
  return stream.get();
}

// A primitive over tensors in the caller's layout. Those that it wants in another, which is what
// makes it fast, are reordered in scratch.
class Pass {
 public:
  struct Operand {
    int name;
    Desc callers, own;
    bool is_output;
  };

  // scratchpad: what the primitive needs besides.
  Pass(dnnl::primitive primitive, const std::vector<Operand>& operands, const Desc& scratchpad)
      : primitive_(std::move(primitive)), scratchpad_(scratchpad, Engine(), nullptr) {
    for (const Operand& operand : operands) {
      Part part;
      part.callers = dnnl::memory(operand.callers, Engine(), nullptr);
      part.is_output = operand.is_output;
      part.is_reordered = operand.callers != operand.own;
      if (part.is_reordered) {
        part.own = dnnl::memory(operand.own, Engine(), nullptr);
        const auto& [from, to] =
            operand.is_output ? std::tie(part.own, part.callers) : std::tie(part.callers, part.own);
        part.reorder = dnnl::reorder(from, to);
        part.from_and_to = {{{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}};
        part.offset = scratch_;
        scratch_ += Values(operand.own);
      }
      arguments_.push_back({operand.name, part.is_reordered ? part.own.get() : part.callers.get()});
      parts_.push_back(std::move(part));
    }
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
    scratchpad_offset_ = scratch_;
    scratch_ += Values(scratchpad);
  }

  int64_t scratch() const { return scratch_; }

  // values: of the operands, in their order.
  void Run(absl::Span<const float* const> values, float* scratch) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      Set(part.callers, const_cast<float*>(values[i]));
      if (!part.is_reordered) continue;
      Set(part.own, scratch + part.offset);
      if (!part.is_output) Reorder(part);
    }
    Set(scratchpad_, scratch + scratchpad_offset_);
    Execute(primitive_, arguments_);
    for (Part& part : parts_) {
      if (part.is_reordered && part.is_output) Reorder(part);
    }
  }

 private:
  struct Part {
    dnnl::memory callers, own;
    bool is_output = false, is_reordered = false;
    dnnl::primitive reorder;
    std::array<dnnl_exec_arg_t, 2> from_and_to;
    int64_t offset = 0;
  };

  // In whole cache lines.
  static int64_t Values(const Desc& desc) {
    return (static_cast<int64_t>(desc.get_size()) + 63) / 64 * 16;
  }
  static void Set(const dnnl::memory& memory, float* values) {
    RUBATO_CHECK(dnnl_memory_set_data_handle(memory.get(), values) == dnnl_success);
  }
  static void Execute(const dnnl::primitive& primitive, absl::Span<const dnnl_exec_arg_t> args) {
    RUBATO_CHECK(dnnl_primitive_execute(primitive.get(), Stream(), static_cast<int>(args.size()),
                                        args.data()) == dnnl_success);
  }
  static void Reorder(const Part& part) { Execute(part.reorder, part.from_and_to); }

  dnnl::primitive primitive_;
  dnnl::memory scratchpad_;
  int64_t scratchpad_offset_ = 0;
  std::vector<Part> parts_;
  std::vector<dnnl_exec_arg_t> arguments_;
  int64_t scratch_ = 0;
};

enum class Direction { kForward, kByInput, kByWeight };

// A convolution's tensors, in the caller's layout or in one that the library may choose.
struct Descriptions {
  Descriptions(const Convolution& c, int64_t n, bool any) {
    const Window& w = c.window;
    const auto tag = [any](Tag tag) { return any ? Tag::any : tag; };
    x = Desc({n, c.in_channels, w.height, w.width}, kFloat, tag(Tag::nchw));
    y = Desc({n, c.out_channels, w.out_height(), w.out_width()}, kFloat, tag(Tag::nchw));
    bias = Desc({c.out_channels}, kFloat, Tag::x);
    const int64_t in = c.in_channels / c.groups;
    weight = c.groups == 1 ? Desc({c.out_channels, in, w.kernel, w.kernel}, kFloat, tag(Tag::oihw))
                           : Desc({c.groups, c.out_channels / c.groups, in, w.kernel, w.kernel},
                                  kFloat, tag(Tag::goihw));
  }
  Desc x, weight, bias, y;
};

// Makes descriptors of a primitive from what it computes, a value in oneDNN 2 and arguments in 3.
// forward: those of the way back need its descriptor.
template <typename Primitive, typename... Forward>
auto Descriptor(const dnnl::primitive_attr& attributes, const Forward&... forward) {
  return [&](const auto&... computed) {
#if DNNL_VERSION_MAJOR < 3
    return typename Primitive::primitive_desc({computed...}, attributes, Engine(), forward...);
#else
    typename Primitive::primitive_desc descriptor(Engine(), computed..., forward..., attributes);
    // For the gradient by x of strided ones its first choice needs more scratch than we have. The
    // next is oneDNN 2's choice and took 0.4 to 1.5 of the time (11 shapes, AVX-512, 3.7.2).
    if constexpr (std::is_same_v<Primitive, dnnl::convolution_backward_data>) {
      while (absl::StartsWith(descriptor.impl_info_str(), "brgconv") && descriptor.next_impl()) {
      }
    }
    return descriptor;
#endif
  };
}

// Null, or an exception, if the library has nothing for it but what a product does, too.
std::unique_ptr<Pass> MakePass(Direction direction, const Convolution& c, int64_t n,
                               bool has_bias) {
  const Descriptions callers(c, n, /*any=*/false), any(c, n, /*any=*/true);
  const Desc bias = has_bias ? any.bias : Desc();
  const dnnl::memory::dims strides(2, c.window.stride), padding(2, c.window.padding);
  // Direct: those by transformation (Winograd) are faster still, and round more.
  const auto algorithm = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto forward = Descriptor<dnnl::convolution_forward>(attributes)(
      dnnl::prop_kind::forward_training, algorithm, any.x, any.weight, bias, any.y, strides,
      padding, padding);
  const auto make = [&](const auto& desc, dnnl::primitive primitive,
                        std::vector<Pass::Operand> operands, const Pass::Operand& last) {
    std::unique_ptr<Pass> pass;
    if (absl::StrContains(desc.impl_info_str(), "gemm")) return pass;
    if (has_bias) operands.push_back(last);
    pass = std::make_unique<Pass>(std::move(primitive), operands, desc.scratchpad_desc());
    return pass;
  };
  if (direction == Direction::kForward) {
    return make(forward, dnnl::convolution_forward(forward),
                {{DNNL_ARG_SRC, callers.x, forward.src_desc(), false},
                 {DNNL_ARG_WEIGHTS, callers.weight, forward.weights_desc(), false},
                 {DNNL_ARG_DST, callers.y, forward.dst_desc(), true}},
                {DNNL_ARG_BIAS, bias, bias, false});
  }
  if (direction == Direction::kByWeight) {
    const auto by_weight = Descriptor<dnnl::convolution_backward_weights>(attributes, forward)(
        algorithm, any.x, any.weight, bias, any.y, strides, padding, padding);
    return make(by_weight, dnnl::convolution_backward_weights(by_weight),
                {{DNNL_ARG_SRC, callers.x, by_weight.src_desc(), false},
                 {DNNL_ARG_DIFF_DST, callers.y, by_weight.diff_dst_desc(), false},
                 {DNNL_ARG_DIFF_WEIGHTS, callers.weight, by_weight.diff_weights_desc(), true}},
                {DNNL_ARG_DIFF_BIAS, bias, bias, true});
  }
  const auto by_input = Descriptor<dnnl::convolution_backward_data>(attributes, forward)(
      algorithm, any.x, any.weight, any.y, strides, padding, padding);
  return make(by_input, dnnl::convolution_backward_data(by_input),
              {{DNNL_ARG_DIFF_DST, callers.y, by_input.diff_dst_desc(), false},
               {DNNL_ARG_WEIGHTS, callers.weight, by_input.weights_desc(), false},
               {DNNL_ARG_DIFF_SRC, callers.x, by_input.diff_src_desc(), true}},
              /*last=*/{});
}

// Null if the library has nothing for it.
Pass* PassOf(Direction direction, const Convolution& c, int64_t n, bool has_bias) {
  using Key = std::array<int64_t, 11>;
  thread_local std::map<Key, std::unique_ptr<Pass>> passes;
  UseOneThread();  // when it is made, too: how work is cut may be decided there
  const Window& w = c.window;
  const Key key = {static_cast<int64_t>(direction),
                   n,
                   has_bias,
                   c.in_channels,
                   c.out_channels,
                   c.groups,
                   w.height,
                   w.width,
                   w.kernel,
                   w.stride,
                   w.padding};
  auto found = passes.find(key);
  if (found == passes.end()) {
    std::unique_ptr<Pass> pass;
    try {
      pass = MakePass(direction, c, n, has_bias);
      if (pass != nullptr && pass->scratch() > OneDnnConvolutionScratch(c, n)) pass = nullptr;
    } catch (const dnnl::error& error) {
      RUBATO_CHECK(error.status == dnnl_unimplemented);
    }
    found = passes.emplace(key, std::move(pass)).first;
  }
  return found->second.get();
}

const float* Values(const ConstTensorRef& tensor) { return tensor.values<float>().data(); }

}  // namespace

bool OneDnnTakes(Isa isa, int64_t m, int64_t n, int64_t k) {
  return isa == Isa::kAvx512 && m * n * k >= kMinMultiplications && IsAtLevel(isa);
}

bool OneDnnTakes(Isa isa, const Convolution& c) {
  const int64_t in = c.in_channels / c.groups, out = c.out_channels / c.groups;
  const bool is_wide = std::min(in, out) >= kMinChannels && Fill(in) * Fill(out) >= kMinFill;
  return c.window.kernel > std::max<int64_t>(1, c.window.padding) && (is_wide || IsDepthwise(c)) &&
         IsAtLevel(isa);
}

void OneDnnGemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
                float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                float* c, int64_t ldc) {
  UseOneThread();
  const auto letter = [](Transpose transpose) { return transpose == Transpose::kYes ? 'T' : 'N'; };
  RUBATO_CHECK(dnnl_sgemm(letter(transpose_a), letter(transpose_b), m, n, k, alpha, a, lda, b, ldb,
                          beta, c, ldc) == dnnl_success);
}

int64_t OneDnnConvolutionScratch(const Convolution& c, int64_t n) {
  // The library's layouts are of blocks of up to 16 channels.
  const auto whole = [](int64_t channels) { return (channels + 15) / 16 * 16; };
  const Window& w = c.window;
  const int64_t weights = IsDepthwise(c) ? whole(c.groups)
                                         : c.groups * whole(c.in_channels / c.groups) *
                                               whole(c.out_channels / c.groups);
  return n * (whole(c.in_channels) * w.plane() + whole(c.out_channels) * w.out_plane()) +
         weights * w.kernel * w.kernel + kScratchpad;
}

bool OneDnnConv2d(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                  const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) {
  Pass* const pass = PassOf(Direction::kForward, c, x.dim(0), !bias.is_null());
  if (pass == nullptr) return false;
  const float* const values[] = {Values(x), Values(weight), Values(y),
                                 bias.is_null() ? nullptr : Values(bias)};
  pass->Run(absl::MakeConstSpan(values).first(bias.is_null() ? 3 : 4),
            scratch.values<float>().data());
  return true;
}

bool OneDnnConv2dBackward(const Convolution& c, const ConstTensorRef& x,
                          const ConstTensorRef& weight, const ConstTensorRef& dy,
                          const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias,
                          const TensorRef& scratch) {
  Pass* const by_weight = PassOf(Direction::kByWeight, c, x.dim(0), !dbias.is_null());
  Pass* const by_input =
      dx.is_null() ? nullptr : PassOf(Direction::kByInput, c, x.dim(0), /*has_bias=*/false);
  if (by_weight == nullptr || (by_input == nullptr && !dx.is_null())) return false;
  float* const memory = scratch.values<float>().data();
  const float* const values[] = {Values(x), Values(dy), Values(dweight),
                                 dbias.is_null() ? nullptr : Values(dbias)};
  by_weight->Run(absl::MakeConstSpan(values).first(dbias.is_null() ? 3 : 4), memory);
  if (by_input != nullptr) {
    const float* const others[] = {Values(dy), Values(weight), Values(dx)};
    by_input->Run(others, memory);
  }
  return true;
}

std::string OneDnnSignature(Isa isa) {
  if (!IsAtLevel(isa)) return "";
  const dnnl_version_t& version = *dnnl_version();
  return absl::StrCat("oneDNN ", version.major, ".", version.minor, ".", version.patch, " ",
                      IsaName(isa));
}

}  // namespace rubato
