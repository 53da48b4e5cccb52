#include "tensor/cuda/cudnn_graph.h"

namespace rubato {

CudnnDescriptors::~CudnnDescriptors() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) cudnn_.DestroyDescriptor(*made);
}

void CudnnDescriptors::Note(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) status_ = cudnn_.StatusOf(status, what);
}

cudnnBackendDescriptor_t CudnnDescriptors::Make(cudnnBackendDescriptorType_t type) {
  if (!status_.ok()) return nullptr;
  cudnnBackendDescriptor_t descriptor = nullptr;
  Note(cudnn_.CreateDescriptor(type, &descriptor), "a descriptor");
  if (status_.ok()) made_.push_back(descriptor);
  return descriptor;
}

void CudnnDescriptors::Set(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values) {
  if (!status_.ok()) return;
  Note(cudnn_.SetAttribute(descriptor, attribute, type, count, values), "an attribute");
}

int64_t CudnnDescriptors::Get(cudnnBackendDescriptor_t descriptor,
                              cudnnBackendAttributeName_t attribute,
                              cudnnBackendAttributeType_t type, int64_t most, void* values) {
  if (!status_.ok()) return 0;
  int64_t count = 0;
  Note(cudnn_.GetAttribute(descriptor, attribute, type, most, &count, values), "an attribute");
  return count;
}

void CudnnDescriptors::Finalize(cudnnBackendDescriptor_t descriptor, const char* what) {
  if (status_.ok()) Note(cudnn_.Finalize(descriptor), what);
}

CudnnGraph::Tensor CudnnGraph::Make(int64_t id, const Layout& layout, cudnnDataType_t type,
                                    cudnnBackendAttributeName_t kind, int64_t alignment) {
  const Tensor tensor = all_.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dimensions.data());
  all_.Set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides.data());
  all_.Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (kind != CUDNN_ATTR_TENSOR_UNIQUE_ID) all_.Set(tensor, kind, CUDNN_TYPE_BOOLEAN, true);
  all_.Finalize(tensor, "a tensor");
  return tensor;
}

CudnnGraph::Tensor CudnnGraph::Operand(int64_t id, const Layout& layout, cudnnDataType_t type) {
  return Make(id, layout, type, CUDNN_ATTR_TENSOR_UNIQUE_ID, kOperandAlignment);
}

CudnnGraph::Tensor CudnnGraph::Scalar(int64_t id) {
  const Layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  return Make(id, one, CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_BY_VALUE, sizeof(float));
}

CudnnGraph::Tensor CudnnGraph::Inner(const Layout& layout, cudnnDataType_t type) {
  return Make(inner_++, layout, type, CUDNN_ATTR_TENSOR_IS_VIRTUAL, kOperandAlignment);
}

cudnnBackendDescriptor_t CudnnGraph::MakePointwise(cudnnPointwiseMode_t mode,
                                                   cudnnDataType_t precision, int64_t axis) {
  const cudnnBackendDescriptor_t pointwise = all_.Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  all_.Set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  all_.Set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (axis >= 0) all_.Set(pointwise, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  all_.Finalize(pointwise, "a function of single values");
  return pointwise;
}

void CudnnGraph::AddOperation(cudnnBackendDescriptorType_t type, const char* what,
                              std::initializer_list<Part> parts,
                              std::initializer_list<Number> numbers) {
  const auto operation = all_.Make(type);
  for (const auto& [attribute, descriptor] : parts) {
    if (descriptor == nullptr) continue;
    all_.Set(operation, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor);
  }
  for (const auto& [attribute, number] : numbers) {
    all_.Set(operation, attribute, CUDNN_TYPE_FLOAT, number);
  }
  all_.Finalize(operation, what);
  operations_.push_back(operation);
}

CudnnGraph::Tensor CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b,
                                         Tensor t, cudnnDataType_t precision) {
  AddOperation(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an operation on single values",
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, MakePointwise(mode, precision, /*axis=*/-1)},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
       {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Indices(int64_t axis, Tensor x, Tensor y) {
  AddOperation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "indices",
               {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                 MakePointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis)},
                {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Multiply(Tensor a, Tensor b, Tensor c) {
  const auto product = all_.Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  all_.Set(product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Finalize(product, "a product");
  AddOperation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product",
               {{CUDNN_ATTR_OPERATION_MATMUL_DESC, product},
                {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  return c;
}

CudnnGraph::Tensor CudnnGraph::Reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y) {
  const auto reduction = all_.Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  all_.Set(reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  all_.Set(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Finalize(reduction, "a reduction");
  AddOperation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction",
               {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction},
                {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Reshape(Tensor x, Tensor y) {
  AddOperation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "another shape",
               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
  return y;
}

void CudnnGraph::Convolve(cudnnBackendDescriptorType_t pass, int64_t stride, int64_t padding,
                          Tensor x, Tensor w, Tensor y) {
  const auto convolution = all_.Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
           CUDNN_CROSS_CORRELATION);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
  const std::pair<cudnnBackendAttributeName_t, int64_t> of_sides[] = {
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride},
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1}};
  for (const auto& [attribute, value] : of_sides) {
    const int64_t both[] = {value, value};
    all_.Set(convolution, attribute, CUDNN_TYPE_INT64, 2, both);
  }
  all_.Finalize(convolution, "a convolution");
  struct Names {
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
  };
  const Names names = pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                          ? Names{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}
                      : pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                          ? Names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}
                          : Names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  AddOperation(pass, "a convolution",
               {{names.convolution, convolution}, {names.x, x}, {names.w, w}, {names.y, y}},
               {{names.alpha, 1.0f}, {names.beta, 0.0f}});
}

}  // namespace rubato
