// Memory of the host that a GPU reads and writes by itself, though others own it.
#ifndef RUBATO_TENSOR_CUDA_REGISTERED_MEMORY_H_
#define RUBATO_TENSOR_CUDA_REGISTERED_MEMORY_H_

#include <cstdint>
#include <set>

namespace rubato {

// What one GPU has registered. CUDA takes a page once, for all GPUs of the process: the first that
// adds it registers it, and the last that removes it unregisters it. One thread
// at a time; those of other GPUs may be others.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(int gpu) : gpu_(gpu) {}
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;

  // Whole pages. False if CUDA refuses them; the first time a warning says why. What else fails
  // ends the process, with a sentence.
  bool Add(void* host, int64_t bytes);
  // Nothing is checked, for it comes from destructors.
  void Remove(void* host);

 private:
  const int gpu_;
  std::set<void*> own_;
  bool has_warned_ = false;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_REGISTERED_MEMORY_H_
