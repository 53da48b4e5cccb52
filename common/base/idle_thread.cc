#include "common/base/idle_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rubato {

void GoToBackground(Background background) {
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  setpriority(PRIO_PROCESS, thread, 19);
  const sched_param none = {};
  if (background == Background::kIdle) {
    sched_setscheduler(static_cast<pid_t>(thread), SCHED_IDLE, &none);
  }
}

IdleThread::~IdleThread() {
  {
    MonotonicLock lock(&mutex_);
    ends_ = true;
  }
  thread_.join();
}

void IdleThread::Run(const std::function<void()>& work) {
  MonotonicLock lock(&mutex_);
  work_ = &work;
  const auto is_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return work_ == nullptr; };
  mutex_.Await(absl::Condition(&is_done));
}

void IdleThread::Loop() {
  GoToBackground(Background::kIdle);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return work_ != nullptr || ends_;
  };
  MonotonicLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&has_work));
    if (ends_) return;
    const std::function<void()>& work = *work_;
    mutex_.Unlock();
    work();
    mutex_.Lock();
    work_ = nullptr;
  }
}

}  // namespace rubato
