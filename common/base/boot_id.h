// Which start of which machine this is.
#ifndef RUBATO_COMMON_BASE_BOOT_ID_H_
#define RUBATO_COMMON_BASE_BOOT_ID_H_

#include <fstream>
#include <string>

namespace rubato {

// Differs from one start of a machine to the next, and between machines: processes that find the
// same share a kernel, its memory and its page cache. Empty where the kernel does not tell.
inline std::string BootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_BOOT_ID_H_
