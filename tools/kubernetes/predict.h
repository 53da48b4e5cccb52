// What a job's pods are predicted to hold, which they request.
#ifndef RUBATO_TOOLS_KUBERNETES_PREDICT_H_
#define RUBATO_TOOLS_KUBERNETES_PREDICT_H_

#include "tools/command/plan.h"
#include "tools/kubernetes/model.h"

namespace rubato::kubernetes {

// By the formulas of `rubato train --dry-run`, for processes that share no memory, and for any
// number of workers that the job allows.
Sizes Predict(const Plan& plan, const Options& options);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_PREDICT_H_
