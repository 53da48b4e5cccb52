// Compositions of layers, as PyTorch computes them: for tests.
#ifndef RUBATO_WORKER_MODEL_NETWORK_CASES_H_
#define RUBATO_WORKER_MODEL_NETWORK_CASES_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model/graph.h"

namespace rubato {

inline proto::Model Parse(const std::string& text) {
  proto::Model model;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

// The operands of a network, and what it gives for them.
template <typename T>
struct Call {
  std::vector<T> parameters, x, dy;
  std::vector<T> y, dx, dparameters;
};

template <typename T>
Call<T> Convert(const Call<double>& call) {
  const auto to = [](const std::vector<double>& v) { return std::vector<T>(v.begin(), v.end()); };
  return {to(call.parameters), to(call.x), to(call.dy), {}, {}, {}};
}

inline double Greatest(const std::vector<double>& values) {
  double greatest = 0;
  for (double value : values) greatest = std::max(greatest, std::abs(value));
  return greatest;
}

// How far values may be from those of exact operands: as far as they move when each operand is off
// by some roundings, with random signs, a few times over.
template <typename T>
struct Tolerance {
  // compute(call) runs a reference in double.
  template <typename Compute>
  Tolerance(Compute compute, const Call<double>& call,
            double rounding = std::numeric_limits<T>::epsilon()) {
    constexpr double kRoundings = 4;
    RandomStream stream(23);
    const double epsilon = kRoundings * rounding;
    // Of what double itself can show.
    const double scale = std::max(1.0, 1e-9 / epsilon);
    Call<double> exact = call;
    compute(exact);
    for (int i = 0; i < 6; ++i) {
      Call<double> moved = call;
      for (std::vector<double>* operand : {&moved.parameters, &moved.x, &moved.dy}) {
        for (double& value : *operand) {
          value *= 1 + epsilon * scale * (stream.Below(2) == 0 ? 1 : -1);
        }
      }
      compute(moved);
      Add(moved.y, exact.y, scale, &y);
      Add(moved.dx, exact.dx, scale, &dx);
      Add(moved.dparameters, exact.dparameters, scale, &dparameters);
    }
  }

  // The greatest move of any value of the tensor: single ones may happen to stand still.
  static void Add(const std::vector<double>& moved, const std::vector<double>& exact, double scale,
                  double* tolerance) {
    for (size_t i = 0; i < moved.size(); ++i) {
      *tolerance = std::max(*tolerance, std::abs(moved[i] - exact[i]) / scale);
    }
  }

  double y = 0, dx = 0, dparameters = 0;
};

template <typename T>
void ExpectNear(const std::vector<T>& found, const std::vector<double>& expected, double tolerance,
                const char* what, double rounding = std::numeric_limits<T>::epsilon()) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  // A sum that is 0 but for roundings does not move with its operands.
  tolerance += 4 * rounding * Greatest(expected);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance) << what << "[" << i << "]";
  }
}

struct Case {
  std::string text;
  std::vector<int64_t> shape;
  Call<double> call;
  std::vector<double> running, evaluated;  // of batch norm
};

inline Case Read(const Golden& golden, const std::string& name) {
  Case result{golden.metadata().at(name), golden.Shape(name + "/x"), {}, {}, {}};
  const absl::Span<const int64_t> shape = absl::MakeSpan(result.shape).subspan(1);
  const absl::StatusOr<Graph> graph = BuildGraph(Parse(result.text), shape, 0);
  RUBATO_CHECK(graph.ok());
  Call<double>& call = result.call;
  for (const proto::Parameter& parameter : graph->layout.parameters()) {
    const std::vector<int64_t> expected(parameter.shape().begin(), parameter.shape().end());
    if (parameter.average() > 0) {
      const std::vector<double> running =
          golden.Values<double>(absl::StrCat(name, "/running:", parameter.name()));
      result.running.insert(result.running.end(), running.begin(), running.end());
      call.parameters.resize(call.parameters.size() + running.size(), parameter.init().constant());
      continue;
    }
    EXPECT_EQ(golden.Shape(absl::StrCat(name, "/", parameter.name())), expected);
    for (const auto& [prefix, values] :
         {std::pair("/", &call.parameters), std::pair("/d:", &call.dparameters)}) {
      const std::vector<double> v =
          golden.Values<double>(absl::StrCat(name, prefix, parameter.name()));
      values->insert(values->end(), v.begin(), v.end());
    }
  }
  call.x = golden.Values<double>(name + "/x");
  call.y = golden.Values<double>(name + "/y");
  call.dy = golden.Values<double>(name + "/dy");
  if (name != "embedding") call.dx = golden.Values<double>(name + "/dx");
  if (!result.running.empty()) result.evaluated = golden.Values<double>(name + "/eval");
  return result;
}

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_NETWORK_CASES_H_
