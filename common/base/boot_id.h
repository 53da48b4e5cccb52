// Identifies the current boot of this machine.
#ifndef RUBATO_COMMON_BASE_BOOT_ID_H_
#define RUBATO_COMMON_BASE_BOOT_ID_H_

#include <fstream>
#include <string>

namespace rubato {

// Changes at every boot and differs between machines: processes that read the same ID share a
// kernel, its memory and its page cache. Empty if the kernel does not provide it.
inline std::string BootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_BOOT_ID_H_
