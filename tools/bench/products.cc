#include "tools/bench/products.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "tensor/cuda/work_list.h"
#include "tools/bench/product_names.h"
#include "worker/model/model.h"

namespace rubato {
namespace {

// All that a product's time depends on, but for the values.
auto KeyOf(const Product& p) {
  const auto matrix = [](const Matrix& m) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(m.values) | 256;
    const uintptr_t alignment = address & -address;
    return std::make_tuple(m.dtype, m.pitch, m.distance, alignment);
  };
  return std::make_tuple(p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.count, matrix(p.a),
                         matrix(p.b), matrix(p.c), p.bias != nullptr, p.beta != 0);
}

}  // namespace

absl::StatusOr<std::vector<StepProduct>> ProductsOf(const BenchSetup& setup, int64_t batch) {
  std::vector<Work> work;
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(setup.model, setup.shape, setup.objective, batch, setup.device.dtype(),
                    Purpose::kTraining, MakeWorkList(&work)));
  const std::vector<float> parameters(model->parameter_count());
  std::vector<float> gradient(parameters.size());
  model->Gradient(parameters, setup.features, {setup.labels, {}}, 0,
                  TensorRef(absl::MakeSpan(gradient)), [](int64_t) {});
  std::vector<StepProduct> products;
  std::map<decltype(KeyOf(std::declval<Product>())), size_t> places;
  for (const Product& product : ProductsOf(work)) {
    const auto [place, is_new] = places.try_emplace(KeyOf(product), products.size());
    if (is_new) products.push_back({product, 0});
    ++products[place->second].times;
  }
  return products;
}

absl::StatusOr<std::string> BenchProducts(const BenchSubject& subject, bool json) {
  RUBATO_ASSIGN_OR_RETURN(const BenchSetup setup, MakeSetup(subject));
  if (setup.device.is_cpu()) {
    return absl::InvalidArgumentError(absl::StrCat("found --device ", subject.device,
                                                   ", expected cuda: products are compared with "
                                                   "cuBLAS alone"));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::vector<StepProduct> products,
                          ProductsOf(setup, subject.batch));
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<ProductTimer> timer, setup.device.OpenTimer());
  nlohmann::ordered_json object;
  object["model"] = subject.model;
  object["batch"] = subject.batch;
  object["device"] = setup.device.numerics();
  std::string text = absl::StrFormat("%-44s %6s %10s %10s %8s %8s\n", "product", "times", "ms",
                                     "alone", "TFLOP/s", "share");
  double operations = 0, seconds = 0, alone = 0, least = 0, difference = 0;
  for (const StepProduct& each : products) {
    RUBATO_ASSIGN_OR_RETURN(const ProductTime time, timer->Time(each.product));
    const double times = static_cast<double>(each.times);
    const double share = time.alone_seconds / time.seconds;
    operations += times * OperationsOf(each.product);
    seconds += times * time.seconds;
    alone += times * time.alone_seconds;
    least = least == 0 ? share : std::min(least, share);
    if (!(time.difference <= difference)) difference = time.difference;
    object["products"].push_back({{"product", NameOf(each.product)},
                                  {"times", each.times},
                                  {"milliseconds", time.seconds * 1e3},
                                  {"alone_milliseconds", time.alone_seconds * 1e3},
                                  {"share_of_alone", share},
                                  {"difference", time.difference}});
    absl::StrAppendFormat(&text, "%-44s %6d %10.4f %10.4f %8.1f %7.1f%%\n", NameOf(each.product),
                          each.times, time.seconds * 1e3, time.alone_seconds * 1e3,
                          OperationsOf(each.product) / time.seconds * 1e-12, share * 100);
  }
  if (products.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --model ", subject.model, ", expected one with products of matrices"));
  }
  object["milliseconds"] = seconds * 1e3;
  object["alone_milliseconds"] = alone * 1e3;
  object["gflop"] = operations * 1e-9;
  object["share_of_alone"] = alone / seconds;
  object["min_share_of_alone"] = least;
  object["difference"] = difference;
  if (json) return JsonText(object) + "\n";
  absl::StrAppendFormat(&text,
                        "together   %.3f ms a step, %.3f ms by cuBLAS alone: %.1f %% of its speed, "
                        "the least %.1f %%; %.1f TFLOP/s\n"
                        "results    at most %.1e apart, of the greatest\n",
                        seconds * 1e3, alone * 1e3, alone / seconds * 100, least * 100,
                        operations / seconds * 1e-12, difference);
  return text;
}

int BenchProductsMain(const std::vector<std::string>& arguments) {
  BenchSubject subject;
  subject.device = "cuda";
  std::string shape;
  bool json = false;
  Flags flags("rubato bench products",
              "Measures the products of matrices of a model's step on a GPU, each by itself, as "
              "layers\nask for them and by cuBLAS alone.",
              {"rubato bench products --model resnet18 --precision bf16 --batch 256",
               "rubato bench products --model '{preset: char_gpt, blocks: 12, heads: 12, channels: "
               "768}' --shape 1024 --precision bf16 --batch 16"});
  AddSubjectFlags(&flags, &subject, &shape);
  flags.Add("json", &json, "", "print one JSON object");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  const absl::StatusOr<std::vector<int64_t>> sizes = ParseShape(shape);
  if (sizes.ok()) subject.shape = *sizes;
  const absl::StatusOr<std::string> text =
      !sizes.ok()         ? absl::StatusOr<std::string>(sizes.status())
      : subject.batch < 1 ? absl::InvalidArgumentError(absl::StrCat("found --batch ", subject.batch,
                                                                    ", expected 1 or more"))
                          : BenchProducts(subject, json);
  return PrintResult(text);
}

}  // namespace rubato
