#include "tensor/cuda/recorded_cudnn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "common/base/check.h"
#include "tensor/cuda/numbers.h"

namespace rubato {
namespace {

RecordedCudnn* the = nullptr;

size_t SizeOfType(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // enumerations
  }
}

}  // namespace

// What stands in the place of the library's functions.
struct Recording {
  static bool Fails(const char* name) {
    if (the->calls++ != the->fails_at) return false;
    the->failed = name;
    return true;
  }
  static cudnnStatus_t Create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
    if (Fails("create")) return the->error;
    const cudnnStatus_t status = the->real_.CreateDescriptor(type, made);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    ++the->live;
    the->descriptors_[*made] = {type, {}};
    if (type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) the->graphs_.push_back(*made);
    return status;
  }
  static cudnnStatus_t Destroy(cudnnBackendDescriptor_t descriptor) {
    --the->live;
    return the->real_.DestroyDescriptor(descriptor);
  }
  static cudnnStatus_t Set(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values) {
    if (Fails("set")) return the->error;
    const char* const bytes = static_cast<const char*>(values);
    the->descriptors_[descriptor].attributes[attribute].assign(bytes,
                                                               bytes + count * SizeOfType(type));
    return the->real_.SetAttribute(descriptor, attribute, type, count, values);
  }
  static cudnnStatus_t Get(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t most, int64_t* count, void* values) {
    if (Fails("get")) return the->error;
    if (attribute == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && the->note.has_value()) {
      std::memcpy(values, &*the->note, sizeof *the->note);
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    return the->real_.GetAttribute(descriptor, attribute, type, most, count, values);
  }
  static cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
    if (Fails("finalize")) return the->error;
    const auto type = the->descriptors_.at(descriptor).type;
    if (type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ++the->plans;
    return the->real_.Finalize(descriptor);
  }
  static cudnnStatus_t Execute(cudnnHandle_t, cudnnBackendDescriptor_t,
                               cudnnBackendDescriptor_t pack) {
    if (Fails("execute")) return the->error;
    const auto& attributes = the->descriptors_.at(pack).attributes;
    const std::vector<char>& ids = attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const std::vector<char>& addresses = attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    RUBATO_CHECK(ids.size() == addresses.size());
    the->operands.clear();
    for (size_t i = 0; i < ids.size(); i += 8) {
      int64_t id;
      std::memcpy(&id, &ids[i], 8);
      std::memcpy(&the->operands[id], &addresses[i], 8);
      if (!the->IsScalar(id)) continue;
      the->scalars_[id] = *static_cast<const float*>(the->operands[id]);
      the->operands[id] = &the->scalars_[id];
    }
    std::memcpy(&the->workspace, attributes.at(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).data(), 8);
    return the->run;
  }
};

RecordedCudnn::RecordedCudnn(const Cudnn& real)
    : real_(real), functions_(std::make_shared<Cudnn>(real)) {
  RUBATO_CHECK(the == nullptr);
  the = this;
  functions_->CreateDescriptor = Recording::Create;
  functions_->DestroyDescriptor = Recording::Destroy;
  functions_->SetAttribute = Recording::Set;
  functions_->GetAttribute = Recording::Get;
  functions_->Finalize = Recording::Finalize;
  functions_->Execute = Recording::Execute;
}

RecordedCudnn::~RecordedCudnn() { the = nullptr; }

namespace {

using Four = std::array<int64_t, 4>;

struct TensorOf {
  int64_t id;
  Four dimensions, strides;
  cudnnDataType_t type;
  bool is_inner, is_scalar;

  int64_t At(const Four& index) const {
    int64_t at = 0;
    for (int d = 0; d < 4; ++d) at += (dimensions[d] == 1 ? 0 : index[d]) * strides[d];
    return at;
  }
};

void ForEach(const Four& dimensions, const std::function<void(const Four&)>& f) {
  Four i;
  for (i[0] = 0; i[0] < dimensions[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dimensions[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dimensions[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dimensions[3]; ++i[3]) f(i);
      }
    }
  }
}

// Values of a graph under way: operands where they lie, what is inner here.
class Values {
 public:
  explicit Values(const std::map<int64_t, const void*>& addresses) : addresses_(addresses) {}

  double Read(const TensorOf& t, int64_t at) {
    if (t.is_inner) return inner_[t.id].at(at);
    const void* const base = addresses_.at(t.id);
    if (t.type == CUDNN_DATA_FLOAT) return static_cast<const float*>(base)[at];
    if (t.type == CUDNN_DATA_HALF) return Widen(static_cast<const Float16*>(base)[at]);
    RUBATO_CHECK(t.type == CUDNN_DATA_BFLOAT16);
    return Widen(static_cast<const BFloat16*>(base)[at]);
  }
  void Write(const TensorOf& t, int64_t at, double value) {
    if (t.is_inner) {
      inner_[t.id][at] = value;
      return;
    }
    void* const base = const_cast<void*>(addresses_.at(t.id));
    const float narrow = static_cast<float>(value);
    if (t.type == CUDNN_DATA_FLOAT) static_cast<float*>(base)[at] = narrow;
    if (t.type == CUDNN_DATA_HALF) static_cast<Float16*>(base)[at] = Float16(narrow);
    if (t.type == CUDNN_DATA_BFLOAT16) static_cast<BFloat16*>(base)[at] = BFloat16(narrow);
  }

 private:
  const std::map<int64_t, const void*>& addresses_;
  std::map<int64_t, std::map<int64_t, double>> inner_;  // by id and place
};

double Function(cudnnPointwiseMode_t mode, double x, double b, double t) {
  switch (mode) {
    case CUDNN_POINTWISE_IDENTITY:
      return x;
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    default:
      break;
  }
  RUBATO_CHECK(false);
}

}  // namespace

const RecordedCudnn::Descriptor& RecordedCudnn::Graph(int which) const {
  return descriptors_.at(graphs_.at(which));
}

std::vector<cudnnBackendDescriptor_t> RecordedCudnn::OperationsOf(int which) const {
  const std::vector<char>& bytes = Graph(which).attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  std::vector<cudnnBackendDescriptor_t> operations(bytes.size() / 8);
  std::memcpy(operations.data(), bytes.data(), bytes.size());
  return operations;
}

namespace {

// An attribute of a descriptor's, or `none`.
template <typename T, typename Attributes>
T ValueOf(const Attributes& attributes, int name, T none = T()) {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return none;
  T value;
  RUBATO_CHECK(found->second.size() == sizeof value);
  std::memcpy(&value, found->second.data(), sizeof value);
  return value;
}

}  // namespace

bool RecordedCudnn::IsScalar(int64_t id) const {
  return std::any_of(descriptors_.begin(), descriptors_.end(), [id](const auto& each) {
    const auto& attributes = each.second.attributes;
    return each.second.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
           ValueOf<int64_t>(attributes, CUDNN_ATTR_TENSOR_UNIQUE_ID) == id &&
           ValueOf<bool>(attributes, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  });
}

std::vector<int64_t> RecordedCudnn::OperandsOf(int which) const {
  std::vector<int64_t> ids;
  for (const cudnnBackendDescriptor_t operation : OperationsOf(which)) {
    for (const auto& [name, bytes] : descriptors_.at(operation).attributes) {
      cudnnBackendDescriptor_t other;
      if (bytes.size() != sizeof other) continue;
      std::memcpy(&other, bytes.data(), sizeof other);
      const auto found = descriptors_.find(other);
      if (found == descriptors_.end() || found->second.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
        continue;
      }
      const auto& attributes = found->second.attributes;
      if (ValueOf<bool>(attributes, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) continue;
      ids.push_back(ValueOf<int64_t>(attributes, CUDNN_ATTR_TENSOR_UNIQUE_ID));
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

namespace {

// The attributes of a convolution's three passes, whose operands are named alike.
struct PassNames {
  cudnnBackendAttributeName_t convolution, x, w, y;
};
std::optional<PassNames> NamesOf(cudnnBackendDescriptorType_t pass) {
  switch (pass) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return PassNames{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return PassNames{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return PassNames{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      return std::nullopt;
  }
}

// Adds a product of two of x, w and y to the third, for all places that a window meets.
void ConvolveIn(Values* values, cudnnBackendDescriptorType_t pass, const TensorOf& x,
                const TensorOf& w, const TensorOf& y, std::array<int64_t, 2> strides,
                std::array<int64_t, 2> padding) {
  const bool to_x = pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const bool to_y = pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const TensorOf& to = to_x ? x : to_y ? y : w;
  const int64_t in = w.dimensions[1], out = y.dimensions[1] / (x.dimensions[1] / in);
  std::map<int64_t, double> sums;
  ForEach(to.dimensions, [&](const Four& i) { sums[to.At(i)] = 0; });
  ForEach(y.dimensions, [&](const Four& o) {
    ForEach({1, in, w.dimensions[2], w.dimensions[3]}, [&](const Four& k) {
      const Four i = {o[0], o[1] / out * in + k[1], o[2] * strides[0] - padding[0] + k[2],
                      o[3] * strides[1] - padding[1] + k[3]};
      if (i[2] < 0 || i[2] >= x.dimensions[2] || i[3] < 0 || i[3] >= x.dimensions[3]) return;
      const Four filter = {o[1], k[1], k[2], k[3]};
      const double of_x = to_x ? 1 : values->Read(x, x.At(i));
      const double of_y = to_y ? 1 : values->Read(y, y.At(o));
      const double of_w = !to_x && !to_y ? 1 : values->Read(w, w.At(filter));
      sums[to.At(to_x ? i : to_y ? o : filter)] += of_x * of_y * of_w;
    });
  });
  for (const auto& [at, sum] : sums) values->Write(to, at, sum);
}

}  // namespace

void RecordedCudnn::Compute(int which, const std::map<int64_t, const void*>& addresses) const {
  Values values(addresses);
  for (const cudnnBackendDescriptor_t descriptor : OperationsOf(which)) {
    const Descriptor& operation = descriptors_.at(descriptor);
    const auto part = [&](int name) -> const Descriptor& {
      return descriptors_.at(ValueOf<cudnnBackendDescriptor_t>(operation.attributes, name));
    };
    const auto tensor = [&](int name) {
      const auto& a = part(name).attributes;
      return TensorOf{ValueOf<int64_t>(a, CUDNN_ATTR_TENSOR_UNIQUE_ID),
                      ValueOf<Four>(a, CUDNN_ATTR_TENSOR_DIMENSIONS),
                      ValueOf<Four>(a, CUDNN_ATTR_TENSOR_STRIDES),
                      ValueOf<cudnnDataType_t>(a, CUDNN_ATTR_TENSOR_DATA_TYPE),
                      ValueOf<bool>(a, CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                      ValueOf<bool>(a, CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
    };
    const auto has = [&](int name) { return operation.attributes.count(name) > 0; };
    if (operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      const auto& function = part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).attributes;
      const auto mode = ValueOf<cudnnPointwiseMode_t>(function, CUDNN_ATTR_POINTWISE_MODE);
      const TensorOf x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
      const TensorOf y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      const bool has_b = has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      const bool has_t = has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
      const TensorOf b = has_b ? tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : x;
      const TensorOf t = has_t ? tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC) : x;
      ForEach(y.dimensions, [&](const Four& i) {
        values.Write(
            y, y.At(i),
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? static_cast<double>(i[ValueOf<int64_t>(function, CUDNN_ATTR_POINTWISE_AXIS)])
                : Function(mode, values.Read(x, x.At(i)), values.Read(b, b.At(i)),
                           values.Read(t, t.At(i))));
      });
    } else if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      const auto op = ValueOf<cudnnReduceTensorOp_t>(
          part(CUDNN_ATTR_OPERATION_REDUCTION_DESC).attributes, CUDNN_ATTR_REDUCTION_OPERATOR);
      const bool is_sum = op == CUDNN_REDUCE_TENSOR_ADD;
      const TensorOf x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
      const TensorOf y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
      ForEach(y.dimensions, [&](const Four& i) {
        values.Write(y, y.At(i), is_sum ? 0 : -std::numeric_limits<double>::infinity());
      });
      ForEach(x.dimensions, [&](const Four& i) {
        const double value = values.Read(x, x.At(i)), so_far = values.Read(y, y.At(i));
        values.Write(y, y.At(i), is_sum ? so_far + value : std::max(so_far, value));
      });
    } else if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      const TensorOf a = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
      const TensorOf b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
      const TensorOf c = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      RUBATO_CHECK(a.dimensions[3] == b.dimensions[2] && a.dimensions[2] == c.dimensions[2] &&
                   b.dimensions[3] == c.dimensions[3]);
      ForEach(c.dimensions, [&](const Four& i) {
        double sum = 0;
        for (int64_t k = 0; k < a.dimensions[3]; ++k) {
          sum += values.Read(a, a.At({i[0], i[1], i[2], k})) *
                 values.Read(b, b.At({i[0], i[1], k, i[3]}));
        }
        values.Write(c, c.At(i), sum);
      });
    } else if (const auto names = NamesOf(operation.type); names.has_value()) {
      const auto& convolution = part(names->convolution).attributes;
      using Two = std::array<int64_t, 2>;
      const auto sides = [&](int name) { return ValueOf<Two>(convolution, name); };
      const Two padding = sides(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
      RUBATO_CHECK(ValueOf<cudnnConvolutionMode_t>(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
                       CUDNN_CROSS_CORRELATION &&
                   ValueOf<cudnnDataType_t>(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) ==
                       CUDNN_DATA_FLOAT &&
                   sides(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) == padding &&
                   sides(CUDNN_ATTR_CONVOLUTION_DILATIONS) == (Two{1, 1}));
      ConvolveIn(&values, operation.type, tensor(names->x), tensor(names->w), tensor(names->y),
                 sides(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), padding);
    } else {
      // The same places, under other dimensions.
      RUBATO_CHECK(operation.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
      const TensorOf x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
      const TensorOf y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
      ForEach(y.dimensions,
              [&](const Four& i) { values.Write(y, y.At(i), values.Read(x, y.At(i))); });
    }
  }
}

}  // namespace rubato
