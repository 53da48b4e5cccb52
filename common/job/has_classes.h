// Jobs whose targets are labels.
#ifndef RUBATO_COMMON_JOB_HAS_CLASSES_H_
#define RUBATO_COMMON_JOB_HAS_CLASSES_H_

#include "proto/job.pb.h"

namespace rubato {

// Whether the targets of a table or of sparse rows are labels of classes, not numbers: by data.task
// or, where that says nothing, by the loss.
inline bool HasClasses(const proto::Job& job) {
  const proto::Data::Task task = job.data().task();
  return task == proto::Data::TASK_CLASSIFICATION ||
         (task == proto::Data::TASK_AUTO && job.loss().name() == proto::Loss::NAME_CROSS_ENTROPY);
}

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_HAS_CLASSES_H_
