// How layers declare their parameters.
#ifndef RUBATO_WORKER_MODEL_LAYERS_PARAMETER_H_
#define RUBATO_WORKER_MODEL_LAYERS_PARAMETER_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/types/span.h"
#include "proto/layout.pb.h"

namespace rubato {

// All values are `value` at the start.
inline proto::Parameter ConstantParameter(const std::string& name, absl::Span<const int64_t> shape,
                                          double value) {
  proto::Parameter parameter;
  parameter.set_name(name);
  for (int64_t dim : shape) parameter.add_shape(dim);
  parameter.mutable_init()->set_constant(value);
  return parameter;
}

// Drawn from U(-bound, bound).
inline proto::Parameter UniformParameter(const std::string& name, absl::Span<const int64_t> shape,
                                         double bound) {
  proto::Parameter parameter = ConstantParameter(name, shape, 0);
  parameter.mutable_init()->set_uniform_bound(bound);
  return parameter;
}

// Drawn from the normal distribution with mean 0.
inline proto::Parameter NormalParameter(const std::string& name, absl::Span<const int64_t> shape,
                                        double deviation) {
  proto::Parameter parameter = ConstantParameter(name, shape, 0);
  parameter.mutable_init()->set_normal_deviation(deviation);
  return parameter;
}

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_PARAMETER_H_
