// Models that the tests of manifests are made of.
#ifndef RUBATO_TOOLS_KUBERNETES_TEST_MODELS_H_
#define RUBATO_TOOLS_KUBERNETES_TEST_MODELS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tools/kubernetes/manifests.h"

namespace rubato::kubernetes {

inline proto::Job MakeJob(int servers = 3, int workers = 4) {
  proto::Job job;
  job.set_version(1);
  job.set_name("Try_it.out");
  job.mutable_cluster()->set_servers(servers);
  job.mutable_cluster()->mutable_workers()->set_start(workers);
  job.mutable_cluster()->mutable_workers()->set_min(2);
  job.mutable_cluster()->mutable_workers()->set_max(workers + 2);
  // As of a job that has been loaded.
  job.mutable_device()->set_threads(1);
  job.mutable_wire()->mutable_push();
  job.mutable_data();
  job.mutable_model();
  return job;
}

inline Options MakeOptions() {
  Options options;
  options.image = "example.org/rubato:1";
  return options;
}

inline Sizes MakeSizes() {
  const Memory memory{200 << 20, 300 << 20};
  return Sizes{memory, memory, memory, int64_t{1} << 30};
}

inline Model Made(const proto::Job& job, const Options& options = MakeOptions()) {
  const absl::StatusOr<Model> model = MakeModel(job, options, MakeSizes());
  EXPECT_THAT(model, IsOk());
  return model.ok() ? *model : Model();
}

inline Json Named(const Model& model, const std::string& kind, const std::string& behind) {
  for (const Json& document : Manifests(model)) {
    if (document["kind"] == kind && document["metadata"]["name"] == model.base + behind) {
      return document;
    }
  }
  return Json();
}

inline Json ContainerOf(const Json& job) {
  return job["spec"]["template"]["spec"]["containers"][0];
}

inline const std::set<std::string> kGiven = {"Secret/try-it-out-server", "Secret/try-it-out-worker",
                                             "PersistentVolumeClaim/datasets"};

inline std::vector<Model> Variants() {
  std::vector<Model> models = {Made(MakeJob()), Made(MakeJob(1, 1))};
  proto::Job job = MakeJob();
  job.mutable_cluster()->set_dedicated_coordinator(true);
  job.mutable_security()->set_mode(proto::Security::MODE_MTLS);
  models.push_back(Made(job));
  Options options = MakeOptions();
  options.gpus = 1;
  options.disruption_budget = true;
  options.priority_class = "high";
  options.data_claim = "datasets:/mnt/sets";
  job = MakeJob();
  job.mutable_data()->set_path("/home/me/fashion-mnist");
  models.push_back(Made(job, options));
  job = MakeJob();
  job.add_script("python3");
  job.add_script("train.py");
  job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  models.push_back(Made(job, options));
  job = MakeJob();
  job.mutable_data()->set_path("/home/me/fashion-mnist");
  options.data_claim.clear();
  options.data_command = "cp -r /image/data/. .";
  models.push_back(Made(job, options));
  return models;
}

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_TEST_MODELS_H_
