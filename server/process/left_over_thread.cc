#include "server/process/left_over_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rubato {

void SetPriority(int nice) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
}

void LeftOverThread::End() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LeftOverThread::Do(absl::FunctionRef<void()> work) {
  const auto is_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return work_ == nullptr; };
  absl::MutexLock lock(&mutex_);
  work_ = &work;
  mutex_.Await(absl::Condition(&is_done));
}

void LeftOverThread::Run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  // The least there is else, where a sandbox refuses the other.
  SetPriority(19);
  const sched_param no_parameters = {};
  sched_setscheduler(0, SCHED_IDLE, &no_parameters);
  const auto has_to_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return work_ != nullptr || ends_;
  };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&has_to_go_on));
    if (work_ == nullptr) return;
    const absl::FunctionRef<void()> work = *work_;
    mutex_.Unlock();
    work();
    mutex_.Lock();
    work_ = nullptr;
  }
}

}  // namespace rubato
