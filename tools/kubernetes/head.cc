#include "tools/kubernetes/head.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/version.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/places.h"
#include "tools/kubernetes/yaml_text.h"

namespace rubato::kubernetes {
namespace {

std::string Prefixed(absl::string_view prefix, absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&out, prefix, line, "\n");
  }
  return out;
}

std::string Secrets(const Model& model) {
  const std::string server = SecretName(model, /*is_server=*/true);
  const std::string worker = SecretName(model, /*is_server=*/false);
  const auto create = [](const std::string& name, const std::string& from) {
    return absl::StrCat("  kubectl create secret generic ", name, " --from-file=", from, "\n");
  };
  switch (model.job.security().mode()) {
    case proto::Security::MODE_TOKEN:
      return absl::StrCat(
          "First, once for all jobs of this name, the keys that the pods show each other:\n",
          "  (umask 077; rubato token > secret; rubato token --role worker --from secret > "
          "worker-key)\n",
          create(server, "key=secret"), create(worker, "key=worker-key"));
    case proto::Security::MODE_MTLS:
      return absl::StrCat(
          "First, once for all jobs of this name, the certificates that the pods show each "
          "other:\n",
          "  rubato certificates --out certificates\n", create(server, "certificates/server"),
          create(worker, "certificates/worker"));
    case proto::Security::MODE_NONE:
      return "The servers ask nobody for a key: whoever reaches their ports may do everything.\n";
  }
  return "";
}

std::string Workers(const Model& model) {
  const proto::Workers& workers = model.job.cluster().workers();
  const std::string job = JobName(model, Group::kWorkers);
  // What is in a JobSet cannot be changed.
  if (workers.max() == workers.min() || model.options.format != Format::kPlain) return "";
  const std::string count = absl::StrCat(workers.max());
  return absl::StrCat("More or fewer workers while it trains, from ", workers.min(), " to ",
                      workers.max(), "; both numbers in one command:\n", "  kubectl patch job ",
                      job, " --type=merge -p '{\"spec\":{\"parallelism\":", count,
                      ",\"completions\":", count, "}}'\n");
}

// What to type at a job that is there. `pod` prints the manifest of the pod for copying, `remove`
// ends all; `besides` is what goes then beside the pods.
std::string Commands(const Model& model, const std::string& pod, const std::string& remove,
                     const std::string& besides) {
  const std::string coordinator = absl::StrCat("job/", JobName(model, Group::kCoordinator));
  const std::string label = absl::StrCat("app.kubernetes.io/instance=", model.base);
  const std::string in_coordinator = absl::StrCat("  kubectl exec ", coordinator, " -- rubato ");
  const std::string at = absl::StrCat(" --address 127.0.0.1:", kPort, "\n");
  const std::string files = absl::StrCat(model.base, "-files");
  return absl::StrCat(
      "Look inside: pods, what they say, who waits for whom:\n", "  kubectl get jobs,pods -l ",
      label, "\n", "  kubectl logs -f ", coordinator, "\n",
      "  kubectl logs -f --prefix --max-log-requests=100 -l ", label, "\n", in_coordinator,
      "status", at, "Change the mode; write a checkpoint; end the training in order:\n",
      in_coordinator, "switch --mode async", at, in_coordinator, "checkpoint", at, in_coordinator,
      "stop", at,
      Workers(model),  //
      "Get the model out, while it trains or afterwards, by the pod in the lines below (delete it\n"
      "then: most volumes can be at one node at a time, and shard 0's pod may have to move):\n",
      "  ", pod, " | kubectl apply -f -\n", "  kubectl wait --for=condition=Ready pod/", files,
      "\n", "  kubectl exec ", files, " -- ls ", kRunsFolder, "\n", "  kubectl cp ", files, ":",
      kRunsFolder, " runs\n", "  kubectl delete pod ", files, "\n", "Remove all of it", besides,
      ":\n  ", remove, "\n");
}

std::string FilesPodLines(const Model& model) { return Prefixed("#| ", YamlText(FilesPod(model))); }

}  // namespace

std::string HeadText(const Model& model, const std::string& command) {
  const std::string text = absl::StrCat(
      "The job ", model.job.name(), " on Kubernetes, rendered by rubato ", kVersion, ":\n", "  ",
      command, "\n", Secrets(model),  //
      "Begin (job.yaml is this file):\n  kubectl apply -f job.yaml\n",
      IsTraining(model) ? "Then train, by a TrainJob such as that in the lines below:\n"
                          "  sed -n 's/^#> //p' job.yaml | kubectl apply -f -\n"
                        : "",
      Commands(model, "sed -n 's/^#| //p' job.yaml", "kubectl delete -f job.yaml",
               model.options.runs_claim.empty() ? kWithVolume : ""));
  return absl::StrCat(Prefixed("# ", text), FilesPodLines(model),
                      IsTraining(model) ? Prefixed("#> ", YamlText(TrainJobDocument(model))) : "");
}

std::string SecretsText(const Model& model) { return Prefixed("# ", Secrets(model)); }

std::string NotesText(const Model& model, const std::string& release, const std::string& besides) {
  return absl::StrCat(
      "The job ", model.job.name(), " of rubato ", kVersion, ".\n", Secrets(model),
      Commands(model, absl::StrCat("helm get notes ", release, " | sed -n 's/^#| //p'"),
               absl::StrCat("helm uninstall ", release), besides),
      FilesPodLines(model));
}

}  // namespace rubato::kubernetes
