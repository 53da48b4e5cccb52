#include "tools/bench/kernels.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "common/codec/top_k.h"
#include "common/flags.h"
#include "common/isa.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/kernels.h"
#include "common/log.h"
#include "common/process_exit.h"
#include "common/random.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"
#include "server/optimizer.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

constexpr int64_t kBlock = 65536;  // values: wire.chunk's default

// A kernel over all blocks, and the bytes that it moves for each value.
struct Kernel {
  std::string name;
  double bytes;
  std::function<void()> run;
};

struct Arrays {
  explicit Arrays(int64_t n) : parameters(n), gradient(n), slots(3, std::vector<float>(n)) {
    RandomStream stream(1);
    for (std::vector<float>* array : {&parameters, &gradient, &slots[0]}) {
      for (float& value : *array) value = stream.Uniform(-1, 1);
    }
    // Squares, and the greatest of them.
    for (int64_t i = 0; i < n; ++i) slots[1][i] = slots[2][i] = gradient[i] * gradient[i];
  }

  std::vector<float> parameters, gradient;
  std::vector<std::vector<float>> slots;
};

void ForEachBlock(int64_t n, const std::function<void(int64_t begin, int64_t size)>& visit) {
  for (int64_t begin = 0; begin < n; begin += kBlock) visit(begin, std::min(kBlock, n - begin));
}

struct Variant {
  const char* name;
  proto::Optimizer::Name optimizer;
  double momentum;
  bool amsgrad;
};
constexpr Variant kVariants[] = {
    {"sgd", proto::Optimizer::NAME_SGD, 0, false},
    {"sgd momentum", proto::Optimizer::NAME_SGD, 0.9, false},
    {"adam", proto::Optimizer::NAME_ADAM, 0, false},
    {"adamw", proto::Optimizer::NAME_ADAMW, 0, false},
    {"adam amsgrad", proto::Optimizer::NAME_ADAM, 0, true},
    {"adagrad", proto::Optimizer::NAME_ADAGRAD, 0, false},
    {"rmsprop", proto::Optimizer::NAME_RMSPROP, 0, false},
};

// The next version is written over the gradient, as a shard does it.
absl::StatusOr<Kernel> OptimizerKernel(const Variant& variant, Arrays* arrays) {
  proto::Optimizer settings;
  settings.set_name(variant.optimizer);
  settings.set_learning_rate(1e-6);
  if (variant.momentum > 0) settings.set_momentum(variant.momentum);
  if (variant.amsgrad) settings.set_amsgrad(true);
  Report report;
  Complete(&settings, &report);
  RUBATO_RETURN_IF_ERROR(report.ToStatus());
  RUBATO_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::Create(settings));
  const size_t slots = optimizer.slots().size();
  return Kernel{variant.name, 4.0 * (3 + 2 * static_cast<double>(slots)),
                [arrays, optimizer = std::move(optimizer), slots] {
                  const int64_t n = static_cast<int64_t>(arrays->parameters.size());
                  ForEachBlock(n, [&](int64_t begin, int64_t size) {
                    const auto part = [&](std::vector<float>& array) {
                      return absl::MakeSpan(array).subspan(begin, size);
                    };
                    std::vector<absl::Span<float>> spans;
                    for (size_t i = 0; i < slots; ++i) spans.push_back(part(arrays->slots[i]));
                    optimizer.Apply({1e-6f, 1e-2f, 10}, part(arrays->parameters),
                                    part(arrays->gradient), spans, part(arrays->gradient));
                  });
                }};
}

std::vector<Kernel> CodecKernels(Arrays* arrays, std::vector<char>* bytes) {
  std::vector<Kernel> kernels;
  const int64_t n = static_cast<int64_t>(arrays->parameters.size());
  const int64_t stride = static_cast<int64_t>(EncodedBound(Codec::kTopK, kBlock));
  bytes->resize((n + kBlock - 1) / kBlock * stride);
  const auto at = [bytes, stride](int64_t begin) {
    return bytes->data() + begin / kBlock * stride;
  };
  for (Codec codec : {Codec::kBf16, Codec::kFp16, Codec::kInt8, Codec::kTopK}) {
    constexpr double kDensity = 0.01;
    const bool is_top_k = codec == Codec::kTopK;
    const auto count = [](int64_t size) { return static_cast<size_t>(kDensity * size); };
    const double encoded =
        is_top_k ? 8 * kDensity : static_cast<double>(EncodedBound(codec, kBlock)) / kBlock;
    const auto encode = [=] {
      std::vector<uint32_t> sent;
      ForEachBlock(n, [&](int64_t begin, int64_t size) {
        const auto values = absl::MakeConstSpan(arrays->parameters).subspan(begin, size);
        if (is_top_k) {
          EncodeTopK(values, count(size), at(begin), &sent);
        } else {
          Encode(codec, static_cast<uint64_t>(begin), values, at(begin));
        }
      });
    };
    const auto decode = [=] {
      ForEachBlock(n, [&](int64_t begin, int64_t size) {
        const size_t length = EncodedBound(codec, is_top_k ? count(size) : size);
        const auto read = Encoded::Create(codec, absl::MakeConstSpan(at(begin), length), size);
        if (read.ok()) read->Decode(0, absl::MakeSpan(arrays->gradient).subspan(begin, size));
      });
    };
    kernels.push_back({absl::StrCat(CodecName(codec), " encode"), 4 + encoded, encode});
    kernels.push_back({absl::StrCat(CodecName(codec), " decode"), 4 + encoded, decode});
  }
  return kernels;
}

}  // namespace

absl::StatusOr<std::string> BenchKernels(const KernelBench& bench, bool json) {
  Arrays arrays(bench.values);
  std::vector<char> bytes;
  std::vector<Kernel> kernels;
  kernels.push_back({"sum", 12, [&] {
                       ForEachBlock(bench.values, [&](int64_t begin, int64_t size) {
                         Add(&arrays.slots[0][begin], &arrays.parameters[begin],
                             &arrays.slots[0][begin], size);
                       });
                     }});
  for (const Variant& variant : kVariants) {
    RUBATO_ASSIGN_OR_RETURN(Kernel kernel, OptimizerKernel(variant, &arrays));
    kernels.push_back(std::move(kernel));
  }
  for (Kernel& kernel : CodecKernels(&arrays, &bytes)) kernels.push_back(std::move(kernel));

  Triad triad;
  Copying copying;
  std::vector<double> triads, copies;
  std::vector<std::vector<double>> speeds(kernels.size());  // bytes a second of traffic
  for (const Kernel& kernel : kernels) kernel.run();        // touches all memory
  for (int round = 0; round < bench.rounds; ++round) {
    triads.push_back(triad.GigabytesPerSecond());
    copies.push_back(copying.GigabytesPerSecond());
    for (size_t i = 0; i < kernels.size(); ++i) {
      const double seconds = SecondsOf(kernels[i].run);
      speeds[i].push_back(kernels[i].bytes * static_cast<double>(bench.values) / seconds * 1e-9);
    }
  }
  const double yardstick = Median(triads);
  if (json) {
    nlohmann::ordered_json object;
    object["isa"] = std::string(IsaName(CurrentIsa()));
    object["yardsticks"] = {{"triad_gbps", yardstick}, {"memcpy_gbps", Median(copies)}};
    for (size_t i = 0; i < kernels.size(); ++i) {
      const double speed = Median(speeds[i]);
      object["results"].push_back({{"kernel", kernels[i].name},
                                   {"traffic_gbps", speed},
                                   {"float_gbps", speed * 4 / kernels[i].bytes},
                                   {"share_of_triad", speed / yardstick}});
    }
    return object.dump() + "\n";
  }
  std::string text = absl::StrFormat(
      "one thread, %s; STREAM triad %.1f GB/s, memcpy %.1f GB/s; medians of %d rounds\n"
      "%-14s %14s %18s %14s\n",
      IsaName(CurrentIsa()), yardstick, Median(copies), bench.rounds, "kernel", "traffic GB/s",
      "floats GB/s", "of triad");
  for (size_t i = 0; i < kernels.size(); ++i) {
    const double speed = Median(speeds[i]);
    absl::StrAppendFormat(&text, "%-14s %14.1f %18.1f %14.2f\n", kernels[i].name, speed,
                          speed * 4 / kernels[i].bytes, speed / yardstick);
  }
  return text;
}

int BenchKernelsMain(const std::vector<std::string>& arguments) {
  KernelBench bench;
  std::string isa = "auto";
  bool json = false;
  Flags flags("rubato bench kernels",
              "Measures the loops of a shard on one thread: sums, optimizers, codecs, over memory "
              "larger than\ncaches; beside them STREAM's triad and memcpy.",
              {"rubato bench kernels --json", "rubato bench kernels --isa avx2"});
  flags.Add("values", &bench.values, "N", "floats in each array");
  flags.Add("rounds", &bench.rounds, "N", "of which the medians count");
  flags.Add("isa", &isa, "ISA", "auto, generic, avx2 or avx512");
  flags.Add("json", &json, "", "print one JSON object");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  const absl::StatusOr<Isa> level = IsaFromName(isa);
  absl::Status status = level.status();
  if (bench.values < 1 || bench.values > (int64_t{1} << 30) || bench.rounds < 1 ||
      bench.rounds > 1000) {
    status = absl::InvalidArgumentError(
        absl::StrCat("found --values ", bench.values, " and --rounds ", bench.rounds,
                     ", expected 1 to 2^30 values and 1 to 1000 rounds"));
  }
  if (status.ok()) SetIsa(*level);
  const absl::StatusOr<std::string> text =
      status.ok() ? BenchKernels(bench, json) : absl::StatusOr<std::string>(status);
  if (!text.ok()) {
    PrintError(text.status());
    return ExitCode(text.status());
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace rubato
