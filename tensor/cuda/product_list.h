// Which products of matrices a model asks for.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_LIST_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_LIST_H_

#include <memory>
#include <vector>

#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

// A device that computes nothing and has any amount of memory: what its kernels are asked for makes
// them append to `products`, in order, what they would ask cuBLAS for. The products' addresses are
// aligned as a GPU's would be; nothing is there. `products` must outlive the device.
std::unique_ptr<Device> MakeProductList(std::vector<Product>* products);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_LIST_H_
