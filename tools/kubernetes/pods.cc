// What runs in the pods of each group.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/places.h"

namespace rubato::kubernetes {
namespace {

// Of everything: an identity that nothing on a node has.
constexpr int kUser = 10001;

Json FieldVariable(const std::string& name, const std::string& path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

Json Volume(const std::string& name, const std::string& kind, Json what) {
  Json volume = {{"name", name}};
  volume[kind] = std::move(what);
  return volume;
}

Json Mount(const std::string& name, const std::string& path, bool read_only) {
  Json mount = {{"name", name}, {"mountPath", path}};
  if (read_only) mount["readOnly"] = true;
  return mount;
}

// In `command` Kubernetes makes $(NAME) the value of a variable, and $$ a $.
std::string AsItStands(const std::string& text) { return absl::StrReplaceAll(text, {{"$", "$$"}}); }

bool IsServer(Group group) { return group != Group::kWorkers; }

// Whether the containers run a script, which begins a rubato-worker by itself.
bool RunsScript(const Model& model, Group group) { return !IsServer(group) && model.IsScript(); }

Json Command(const Model& model, Group group) {
  if (RunsScript(model, group)) {
    // As it stands in the job: the image's folder is that of its files.
    Json words = Json::array();
    for (const std::string& word : model.job.script()) words.push_back(AsItStands(word));
    return words;
  }
  return Json::array({IsServer(group) ? "rubato-server" : "rubato-worker"});
}

Json Arguments(const Model& model, Group group) {
  Json arguments = Json::array({"--config", kJobFile});
  const auto add = [&](const std::string& flag, const std::string& value) {
    arguments.push_back(flag);
    arguments.push_back(value);
  };
  const bool is_dedicated = model.job.cluster().dedicated_coordinator();
  const std::string port = absl::StrCat(":", kPort);
  switch (group) {
    case Group::kCoordinator:
      if (is_dedicated) {
        arguments.push_back("--coordinator");
      } else {
        add("--shard", "0");
      }
      add("--advertise", absl::StrCat(CoordinatorHost(model), port));
      add("--run-dir", absl::StrCat(kRunsFolder, "/", model.base, "-$(RUN_UID)"));
      if (!model.options.resume.empty()) add("--resume", AsItStands(model.options.resume));
      break;
    case Group::kServers:
      add("--first-shard", is_dedicated ? "0" : "1");
      add("--advertise", absl::StrCat(PodHost(model, group, "$(JOB_COMPLETION_INDEX)"), port));
      break;
    case Group::kWorkers:
      return arguments;
  }
  add("--listen", absl::StrCat("[::]", port));
  add("--health", absl::StrCat("[::]:", kHealthPort));
  arguments.push_back("--leave-on-sigterm");
  return arguments;
}

Json Environment(const Model& model, Group group) {
  Json environment = Json::array();
  if (group == Group::kCoordinator) {
    environment.push_back(
        FieldVariable("RUN_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"));
  }
  if (IsTraining(model)) {
    // Names follow that of the TrainJob, which is known only there.
    environment.push_back(
        FieldVariable("JOBSET_NAME", "metadata.labels['jobset.sigs.k8s.io/jobset-name']"));
    environment.push_back({{"name", "RUBATO__CLUSTER__ADDRESS"},
                           {"value", absl::StrCat(CoordinatorHost(model), ":", kPort)}});
  }
  switch (model.job.security().mode()) {
    case proto::Security::MODE_TOKEN:
      environment.push_back(
          {{"name", "RUBATO_KEY"},
           {"valueFrom",
            {{"secretKeyRef", {{"name", SecretName(model, IsServer(group))}, {"key", "key"}}}}}});
      break;
    case proto::Security::MODE_MTLS:
      environment.push_back({{"name", "RUBATO_CERTIFICATES"}, {"value", kCertificatesFolder}});
      break;
    case proto::Security::MODE_NONE:
      break;
  }
  environment.push_back({{"name", "HOME"}, {"value", "/tmp"}});
  if (RunsScript(model, group)) {
    // What `rubato train` tells a script (docs/scripts.md); the address stands in the job.
    environment.push_back({{"name", "RUBATO_JOB"}, {"value", kJobFile}});
    environment.push_back({{"name", "RUBATO_WORKER"}, {"value", "rubato-worker"}});
    environment.push_back(FieldVariable(
        "RUBATO_RANK", "metadata.labels['batch.kubernetes.io/job-completion-index']"));
    environment.push_back({{"name", "LOCAL_RANK"}, {"value", "0"}});  // a pod has one GPU
  }
  return environment;
}

// Where a group sees the data: workers, and who reads the initial values of a checkpoint.
bool MountsData(const Model& model, Group group) {
  if (model.data_volume.empty()) return false;
  return group == Group::kWorkers ||
         (group == Group::kCoordinator && model.job.model().has_init_from());
}

Json Mounts(const Model& model, Group group) {
  Json mounts = Json::array({Mount("job", kJobFolder, true), Mount("tmp", "/tmp", false)});
  if (group == Group::kCoordinator) mounts.push_back(Mount("runs", kRunsFolder, false));
  if (MountsData(model, group)) mounts.push_back(Mount("data", model.data_volume, true));
  if (RunsScript(model, group)) mounts.push_back(Mount("shm", "/dev/shm", false));
  if (model.job.security().mode() == proto::Security::MODE_MTLS) {
    mounts.push_back(Mount("certificates", kCertificatesFolder, true));
  }
  return mounts;
}

std::string Mebibytes(int64_t bytes) {
  constexpr int64_t kMebibyte = 1 << 20;
  return absl::StrCat((bytes + kMebibyte - 1) / kMebibyte, "Mi");
}

// Of a node's disk, of a pod. Nothing of Rubato's was found in /tmp; of a log the kubelet keeps
// five files of 10 MiB by default, and the rest is for whoever looks inside.
constexpr int64_t kStorage = int64_t{128} << 20;
// The kernels that CUDA compiles for a GPU, in HOME: CUDA_CACHE_MAXSIZE by default.
constexpr int64_t kCudaCache = int64_t{1} << 30;

// The most that a pod may have there; zero: nobody knows.
int64_t StorageLimit(const Model& model, Group group) {
  if (IsServer(group)) return kStorage;
  if (model.sizes.worker_storage > 0) return model.sizes.worker_storage;
  if (model.IsScript() || !model.options.data_command.empty()) return 0;
  return kStorage + (model.options.gpus > 0 ? kCudaCache : 0);
}

// A folder on the node's disk, of at most `limit` bytes if that is not zero.
Json Scratch(const std::string& name, int64_t limit) {
  Json what = Json::object();
  if (limit > 0) what["sizeLimit"] = Mebibytes(limit);
  return Volume(name, "emptyDir", std::move(what));
}

Json Volumes(const Model& model, Group group) {
  const int64_t storage = StorageLimit(model, group);
  Json volumes =
      Json::array({Volume("job", "configMap", {{"name", model.base}}), Scratch("tmp", storage)});
  if (group == Group::kCoordinator) {
    volumes.push_back(
        Volume("runs", "persistentVolumeClaim", {{"claimName", RunsClaimName(model)}}));
  }
  if (MountsData(model, group)) {
    volumes.push_back(model.data_claim.empty()
                          ? Scratch("data", storage)
                          : Volume("data", "persistentVolumeClaim",
                                   {{"claimName", model.data_claim}, {"readOnly", true}}));
  }
  if (RunsScript(model, group)) {
    // PyTorch's loaders hand batches over in it, and a container has 64 MiB of it by default. What
    // is there counts as the container's memory.
    volumes.push_back(
        Volume("shm", "emptyDir",
               {{"medium", "Memory"}, {"sizeLimit", Mebibytes(model.sizes.worker.limit)}}));
  }
  if (model.job.security().mode() == proto::Security::MODE_MTLS) {
    // Root's, and read by the group of fsGroup.
    volumes.push_back(
        Volume("certificates", "secret",
               {{"secretName", SecretName(model, IsServer(group))}, {"defaultMode", 0440}}));
  }
  return volumes;
}

Json Resources(const Model& model, Group group) {
  const Memory& memory = group == Group::kCoordinator ? model.sizes.coordinator
                         : group == Group::kServers   ? model.sizes.server
                                                      : model.sizes.worker;
  const int threads =
      IsServer(group) ? model.job.cluster().server_threads() : model.job.device().threads();
  const std::string cpu = model.options.cpu.empty() ? absl::StrCat(threads) : model.options.cpu;
  const int64_t storage = StorageLimit(model, group);
  Json requests = {{"cpu", cpu},
                   {"memory", Mebibytes(memory.request)},
                   {kStorageKey, Mebibytes(storage > 0 ? storage : kStorage)}};
  Json limits = {{"memory", Mebibytes(memory.limit)}};
  if (storage > 0) limits[kStorageKey] = Mebibytes(storage);
  if (group == Group::kWorkers && model.options.gpus > 0) {
    limits["nvidia.com/gpu"] = absl::StrCat(model.options.gpus);
  }
  return {{"requests", requests}, {"limits", limits}};
}

Json ContainerSecurity() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", {{"drop", Json::array({"ALL"})}}}};
}

Json PodSecurity() {
  return {{"runAsNonRoot", true},
          {"runAsUser", kUser},
          {"runAsGroup", kUser},
          {"fsGroup", kUser},
          {"fsGroupChangePolicy", "OnRootMismatch"},
          {"seccompProfile", {{"type", "RuntimeDefault"}}}};
}

// `live` is served as long as the process runs, `ready` while it takes part: who waits for others
// is not killed.
Json Probe(const std::string& service, int period_seconds, int failures) {
  return {{"grpc", {{"port", kHealthPort}, {"service", service}}},
          {"periodSeconds", period_seconds},
          {"timeoutSeconds", 5},
          {"failureThreshold", failures}};
}

Json Container(const Model& model, Group group) {
  Json container = {{"name", ContainerName(model, group)},
                    {"image", IsServer(group) ? model.options.image : model.WorkerImage()},
                    {"command", Command(model, group)}};
  if (!RunsScript(model, group)) container["args"] = Arguments(model, group);
  if (group == Group::kCoordinator) container["workingDir"] = "/";  // earlier runs are in runs/
  container["env"] = Environment(model, group);
  if (IsServer(group)) {
    container["ports"] = Json::array({{{"name", kPortName}, {"containerPort", kPort}},
                                      {{"name", kHealthPortName}, {"containerPort", kHealthPort}}});
    container["startupProbe"] = Probe("live", 2, 60);
    container["readinessProbe"] = Probe("ready", 5, 1);
    container["livenessProbe"] = Probe("live", 10, 6);
  }
  container["resources"] = Resources(model, group);
  container["securityContext"] = ContainerSecurity();
  container["volumeMounts"] = Mounts(model, group);
  return container;
}

Json FillData(const Model& model) {
  return {{"name", "data"},
          {"image", model.WorkerImage()},
          {"command", Json::array({"sh", "-c", AsItStands(model.options.data_command)})},
          {"workingDir", model.data_volume},
          {"env", Json::array({{{"name", "HOME"}, {"value", "/tmp"}}})},
          {"resources", Resources(model, Group::kWorkers)},
          {"securityContext", ContainerSecurity()},
          {"volumeMounts",
           Json::array({Mount("tmp", "/tmp", false), Mount("data", model.data_volume, false)})}};
}

Json PodLabels(const Model& model, Group group) {
  Json labels = Labels(model);
  labels["app.kubernetes.io/component"] = Component(group);
  return labels;
}

}  // namespace

Json PodTemplate(const Model& model, Group group) {
  Json spec = {{"restartPolicy", "Never"},
               {"terminationGracePeriodSeconds", IsServer(group) ? kServerGrace : kWorkerGrace},
               {"enableServiceLinks", false},
               {"automountServiceAccountToken", false}};
  if (!model.options.priority_class.empty()) {
    spec["priorityClassName"] = model.options.priority_class;
  }
  if (IsServer(group) && model.options.format == Format::kPlain) {
    // An indexed Job gives its pods host names of their own; a JobSet this, too.
    if (group == Group::kCoordinator) spec["hostname"] = JobName(model, group);
    spec["subdomain"] = model.base;
  }
  spec["securityContext"] = PodSecurity();
  spec["topologySpreadConstraints"] =
      Json::array({{{"maxSkew", 1},
                    {"topologyKey", "kubernetes.io/hostname"},
                    {"whenUnsatisfiable", "ScheduleAnyway"},
                    {"labelSelector", {{"matchLabels", PodLabels(model, group)}}}}});
  if (MountsData(model, group) && !model.options.data_command.empty()) {
    spec["initContainers"] = Json::array({FillData(model)});
  }
  spec["containers"] = Json::array({Container(model, group)});
  spec["volumes"] = Volumes(model, group);
  return {{"metadata", {{"labels", PodLabels(model, group)}}}, {"spec", spec}};
}

Json FilesPod(const Model& model) {
  Json labels = Labels(model);
  labels["app.kubernetes.io/component"] = "files";
  const Json container = {
      {"name", "files"},
      {"image", model.options.image},
      {"command", Json::array({"sleep", "3600"})},
      {"resources",
       {{"requests", {{"cpu", "10m"}, {"memory", "64Mi"}, {kStorageKey, Mebibytes(kStorage)}}},
        {"limits", {{"memory", "256Mi"}, {kStorageKey, Mebibytes(kStorage)}}}}},
      {"securityContext", ContainerSecurity()},
      {"volumeMounts", Json::array({Mount("runs", kRunsFolder, true)})}};
  const Json volume =
      Volume("runs", "persistentVolumeClaim", {{"claimName", RunsClaimName(model)}});
  // Most volumes can be at one node at a time: that of shard 0, while it has one.
  const Json beside = {
      {"weight", 100},
      {"podAffinityTerm",
       {{"topologyKey", "kubernetes.io/hostname"},
        {"labelSelector",
         {{"matchLabels",
           {{"batch.kubernetes.io/job-name", JobName(model, Group::kCoordinator)}}}}}}}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", absl::StrCat(model.base, "-files")}, {"labels", labels}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"activeDeadlineSeconds", 3600},
            {"terminationGracePeriodSeconds", 0},
            {"enableServiceLinks", false},
            {"automountServiceAccountToken", false},
            {"securityContext", PodSecurity()},
            {"affinity",
             {{"podAffinity",
               {{"preferredDuringSchedulingIgnoredDuringExecution", Json::array({beside})}}}}},
            {"containers", Json::array({container})},
            {"volumes", Json::array({volume})}}}};
}

}  // namespace rubato::kubernetes
