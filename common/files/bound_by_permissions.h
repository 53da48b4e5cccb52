// For tests, which may run as root: a thread that no permission of a file binds any less than
// another user.
#ifndef RUBATO_COMMON_FILES_BOUND_BY_PERMISSIONS_H_
#define RUBATO_COMMON_FILES_BOUND_BY_PERMISSIONS_H_

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rubato {

// While it lives, of the thread that has made it.
class BoundByPermissions {
 public:
  BoundByPermissions() {
    syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct without[2] = {before_[0], before_[1]};
    without[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    syscall(SYS_capset, &header_, without);
  }
  ~BoundByPermissions() { syscall(SYS_capset, &header_, before_); }
  BoundByPermissions(const BoundByPermissions&) = delete;
  BoundByPermissions& operator=(const BoundByPermissions&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_BOUND_BY_PERMISSIONS_H_
