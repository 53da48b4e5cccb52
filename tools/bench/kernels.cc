#include "tools/bench/kernels.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/flags.h"
#include "common/base/isa.h"
#include "common/base/json.h"
#include "common/base/kernels.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/frames/codec.h"
#include "common/frames/top_k.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/wire/channel.h"
#include "proto/job.pb.h"
#include "server/optimizers/optimizer.h"
#include "server/shard/block_store.h"
#include "tools/bench/median.h"
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

// A block's floats, each array where a shard has it.
struct Block {
  std::shared_ptr<FloatBuffer> parameters, gradient;
  std::vector<std::shared_ptr<FloatBuffer>> slots;
  std::vector<char> coded;
};

absl::StatusOr<std::vector<Block>> MakeBlocks(int64_t n) {
  RandomStream stream(1);
  std::vector<Block> blocks((n + kBlock - 1) / kBlock);
  for (Block& block : blocks) {
    const int64_t size = std::min(kBlock, n);
    n -= size;
    block.slots.resize(3);
    block.coded.resize(EncodedBound(Codec::kTopK, size));
    for (auto* array :
         {&block.parameters, &block.slots[0], &block.slots[1], &block.slots[2], &block.gradient}) {
      RUBATO_ASSIGN_OR_RETURN(*array, FloatBuffer::Create(size));
      for (float& value : (*array)->values()) value = stream.Uniform(-1, 1);
    }
    // Squares, and the greatest of them.
    for (int64_t i = 0; i < size; ++i) {
      const float value = block.gradient->values()[i];
      block.slots[1]->values()[i] = block.slots[2]->values()[i] = value * value;
    }
  }
  return blocks;
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
absl::StatusOr<Kernel> OptimizerKernel(const Variant& variant, const std::vector<Block>* blocks) {
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
                [blocks, optimizer = std::move(optimizer), slots] {
                  for (const Block& block : *blocks) {
                    absl::InlinedVector<absl::Span<float>, 4> spans;
                    for (size_t i = 0; i < slots; ++i) spans.push_back(block.slots[i]->values());
                    optimizer.Apply({1e-6f, 1e-2f, 10},
                                    {block.parameters->values(), block.gradient->values(), spans,
                                     block.gradient->values()});
                  }
                }};
}

std::vector<Kernel> CodecKernels(std::vector<Block>* blocks) {
  constexpr double kDensity = 0.01;
  std::vector<Kernel> kernels;
  for (const Codec codec : {Codec::kBf16, Codec::kFp16, Codec::kInt8, Codec::kTopK}) {
    const bool is_top_k = codec == Codec::kTopK;
    // Of how many values the bytes are.
    const auto count = [is_top_k](const Block& block) {
      const size_t size = block.parameters->values().size();
      return is_top_k ? static_cast<size_t>(kDensity * static_cast<double>(size)) : size;
    };
    const double coded =
        is_top_k ? 8 * kDensity : static_cast<double>(EncodedBound(codec, kBlock)) / kBlock;
    const auto encode = [=] {
      std::vector<uint32_t> sent;
      for (Block& block : *blocks) {
        const absl::Span<const float> values = block.parameters->values();
        if (is_top_k) {
          EncodeTopK(values, count(block), block.coded.data(), &sent);
        } else {
          Encode(codec, /*key=*/1, values, block.coded.data());
        }
      }
    };
    const auto decode = [=] {
      for (const Block& block : *blocks) {
        const absl::Span<float> values = block.gradient->values();
        const auto bytes =
            absl::MakeConstSpan(block.coded).first(EncodedBound(codec, count(block)));
        const absl::StatusOr<Encoded> read = Encoded::Create(codec, bytes, values.size());
        if (read.ok()) read->Decode(0, values);
      }
    };
    kernels.push_back({absl::StrCat(CodecName(codec), " encode"), 4 + coded, encode});
    kernels.push_back({absl::StrCat(CodecName(codec), " decode"), 4 + coded, decode});
  }
  return kernels;
}

}  // namespace

absl::StatusOr<std::string> BenchKernels(const KernelBench& bench, bool json) {
  Triad triad;
  Copying copying;
  KeepFreedMemory();  // as in a server
  RUBATO_ASSIGN_OR_RETURN(std::vector<Block> blocks, MakeBlocks(bench.values));
  std::vector<Kernel> kernels;
  kernels.push_back({"sum", 12, [&] {
                       for (const Block& block : blocks) {
                         const absl::Span<float> sum = block.slots[0]->values();
                         Add(sum.data(), block.parameters->values().data(), sum.data(), sum.size());
                       }
                     }});
  for (const Variant& variant : kVariants) {
    RUBATO_ASSIGN_OR_RETURN(Kernel kernel, OptimizerKernel(variant, &blocks));
    kernels.push_back(std::move(kernel));
  }
  for (Kernel& kernel : CodecKernels(&blocks)) kernels.push_back(std::move(kernel));

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
    return JsonText(object) + "\n";
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
  flags.Add("rounds", &bench.rounds, "N", "how many rounds; medians are printed");
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
  return PrintResult(text);
}

}  // namespace rubato
