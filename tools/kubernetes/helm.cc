#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/version.h"
#include "common/job/job.h"
#include "tools/kubernetes/folders.h"
#include "tools/kubernetes/head.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/places.h"
#include "tools/kubernetes/yaml_text.h"

namespace rubato::kubernetes {
namespace {

// Words that stand in the model for a value, until the text is made: then they are replaced by
// expressions. Those that are plain in YAML stand alone, and their expressions quote; in the name's
// a mark has the text quoted wherever it stands, for a name may be `on`.
constexpr const char* kName = "%rubato--name--value";
constexpr const char* kImage = "rubato--image--value";
constexpr const char* kWorkerImage = "rubato--worker-image--value";
constexpr const char* kDataClaim = "rubato--data-claim--value";
constexpr const char* kRunsClaim = "rubato--runs-claim--value";
constexpr const char* kRunsSize = "rubato--runs-size--value";
// And the group's name.
constexpr const char* kResources = "rubato--resources--value--";
constexpr const char* kMemoryLimit = "rubato--memory--value--";
constexpr const char* kStorageLimit = "rubato--storage--value--";
constexpr const char* kDigest = "rubato--digest--value";
// And the value's name, and where there is one for each group, -- and the group's: the line is
// there only if the value is not empty.
constexpr const char* kOptional = "rubato--optional--value--";
constexpr const char* kRelease = "rubato--release--value";
constexpr const char* kIfOwnClaim = "rubato--if-own-claim--value";
constexpr const char* kIfGpus = "rubato--if-gpus--value";
constexpr const char* kElse = "rubato--else--value";
constexpr const char* kEnd = "rubato--end--value";
constexpr int kWorkers = 1987654321;

constexpr const char* kGpuKey = "nvidia.com/gpu";

// A key of values.yaml.
struct Value {
  std::string key;
  std::string help;
  Json value;
  Json schema;
};

Json Text(const std::string& pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

Json Closed(const Json& properties) {
  Json required = Json::array();
  for (const auto& [key, schema] : properties.items()) required.push_back(key);
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", required},
          {"properties", properties}};
}

Json ResourcesOf(const Model& model, Group group) {
  Json resources = PodTemplate(model, group)["spec"]["containers"][0]["resources"];
  resources["limits"].erase(kGpuKey);  // the value `gpus` says it
  return resources;
}

// All that can be told to the chart. Both values.yaml and its schema are made of these.
std::vector<Value> Values(const Model& model) {
  const std::string object_name = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
  const proto::Workers& workers = model.job.cluster().workers();
  const Json amounts = {{"type", "object"},
                        {"additionalProperties", {{"type", {"string", "number"}}}}};
  std::vector<Value> values;
  Json name = Text("^[a-z]([-a-z0-9]*[a-z0-9])?$");
  name["maxLength"] = 63 - absl::StrCat("-coordinator-", workers.max()).size();
  values.push_back({"name",
                    "Of all objects. Other values need another name: what is in a Job cannot be "
                    "changed.",
                    model.base, name});
  values.push_back({"image", "Has rubato, rubato-server and rubato-worker.", model.options.image,
                    Text("^[^\\s-/][^\\s]*$")});
  values.push_back({"workerImage", "Of the workers; empty: the same.", model.options.worker_image,
                    Text("^$|^[^\\s-/][^\\s]*$")});
  Json gpus = {{"type", "integer"}, {"enum", {0, 1}}};
  if (!model.any_device) gpus["enum"] = Json::array({model.options.gpus});
  values.push_back(
      {"gpus",
       "Of each worker, 0 or 1. For CUDA some 3Gi of memory and 1Gi of storage are to be "
       "added below.",
       model.options.gpus, gpus});
  values.push_back({"workers",
                    absl::StrCat("From ", workers.min(), " to ", workers.max(), "."),
                    workers.start(),
                    {{"type", "integer"}, {"minimum", workers.min()}, {"maximum", workers.max()}}});
  Json resources = Json::object(), groups = Json::object();
  for (const Group group : Groups(model)) {
    resources[GroupWord(model, group)] = ResourcesOf(model, group);
    groups[GroupWord(model, group)] = Closed({{"requests", amounts}, {"limits", amounts}});
  }
  values.push_back({"resources", "Of each pod.", resources, Closed(groups)});
  Json claims = {{"runs", model.options.runs_claim}};
  Json names = {{"runs", Text(absl::StrCat("^$|", object_name))}};
  if (!model.data_claim.empty()) {
    claims["data"] = model.data_claim;
    names["data"] = Text(object_name);
  }
  values.push_back({"claims", "For the run's folder (empty: one is made), and with the data.",
                    claims, Closed(names)});
  values.push_back({"runsSize", "Of the claim that is made.",
                    RunsClaim(model)["spec"]["resources"]["requests"]["storage"],
                    Text("^[0-9]+(Mi|Gi|Ti)$")});
  values.push_back({"storageClass", "Of the claim that is made; empty: the cluster's default.", "",
                    Text(absl::StrCat("^$|", object_name))});
  const Json secret = Closed({{"name", Text(object_name)}});
  values.push_back({"imagePullSecrets",
                    "Of all pods, as [{name: registry}].",
                    Json::array(),
                    {{"type", "array"}, {"items", secret}}});
  const Json texts = {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  const Json objects = {{"type", "array"}, {"items", {{"type", "object"}}}};
  Json selectors = Json::object(), tolerations = Json::object();
  Json selector_schemas = Json::object(), toleration_schemas = Json::object();
  for (const Group group : Groups(model)) {
    const std::string word = GroupWord(model, group);
    selectors[word] = Json::object();
    selector_schemas[word] = texts;
    tolerations[word] = Json::array();
    toleration_schemas[word] = objects;
  }
  values.push_back({"nodeSelector", "Of each pod, the labels that its node has.", selectors,
                    Closed(selector_schemas)});
  values.push_back({"tolerations", "Of each pod, as Kubernetes has them.", tolerations,
                    Closed(toleration_schemas)});
  return values;
}

// The job's text with and without GPUs: where the lines differ, the value says which.
std::string JobText(proto::Job job) {
  const auto lines = [&](proto::Device::Type type) {
    job.mutable_device()->set_type(type);
    return std::vector<std::string>(absl::StrSplit(ResolvedYaml(job), '\n'));
  };
  const std::vector<std::string> cpu = lines(proto::Device::TYPE_CPU);
  const std::vector<std::string> cuda = lines(proto::Device::TYPE_CUDA);
  RUBATO_CHECK(cpu.size() == cuda.size());
  std::vector<std::string> text;
  for (size_t i = 0; i < cpu.size(); ++i) {
    text.push_back(cpu[i] == cuda[i] ? cpu[i]
                                     : absl::StrCat(kIfGpus, cuda[i], kElse, cpu[i], kEnd));
  }
  return absl::StrJoin(text, "\n");
}

// The expression of a group's resources, in one line.
std::string ResourcesText(const std::string& word, bool has_gpus) {
  const std::string value = absl::StrCat("(index .Values.resources \"", word, "\")");
  const std::string plain = absl::StrCat("{{ toJson ", value, " }}");
  if (!has_gpus) return plain;
  return absl::StrCat("{{ if .Values.gpus }}{{ toJson (mergeOverwrite (deepCopy ", value,
                      ") (dict \"limits\" (dict \"", kGpuKey,
                      "\" (toString .Values.gpus)))) }}{{ else }}", plain, "{{ end }}");
}

// The model with words for its values.
Model WithWords(const Model& model) {
  Model words = model;
  words.base = kName;
  words.options.image = kImage;
  words.options.worker_image = kWorkerImage;
  words.job_digest = kDigest;
  words.options.runs_claim = kRunsClaim;
  if (!words.data_claim.empty()) words.data_claim = kDataClaim;
  words.job.mutable_cluster()->mutable_workers()->set_start(kWorkers);
  words.job.mutable_cluster()->set_address(absl::StrCat(CoordinatorHost(words), ":", kPort));
  return words;
}

std::string FileName(const Json& document) {
  const std::string name = document["metadata"]["name"];
  const std::string behind = name.substr(std::string(kName).size());
  return absl::StrCat("templates/", absl::AsciiStrToLower(std::string(document["kind"])),
                      document["kind"] == "Job" ? behind : "", ".yaml");
}

using Expressions = std::vector<std::pair<std::string, std::string>>;

// What replaces the words of WithWords(model).
Expressions ExpressionsOf(const Model& model) {
  Expressions expressions = {
      {"{{", "{{`{{`}}"},  // is none of ours
      {kName, "{{ .Values.name }}"},
      {kImage, "{{ .Values.image | quote }}"},
      {kWorkerImage, "{{ .Values.workerImage | default .Values.image | quote }}"},
      {kDataClaim, "{{ .Values.claims.data | quote }}"},
      {kRunsClaim, "{{ .Values.claims.runs | default (printf \"%s-runs\" .Values.name) | quote }}"},
      {kRunsSize, "{{ .Values.runsSize | quote }}"},
      // The digest counts the workers.
      {kDigest,
       absl::StrCat("\"{{ if eq (int .Values.workers) ", model.job.cluster().workers().start(),
                    " }}", model.job_digest, "{{ end }}\"")},
      {kRelease, "{{ .Release.Name }}"},
      {kIfOwnClaim, "{{ if not .Values.claims.runs }}"},
      {kIfGpus, "{{ if .Values.gpus }}"},
      {kElse, "{{ else }}"},
      {kEnd, "{{ end }}"},
      {absl::StrCat(kWorkers), "{{ int .Values.workers }}"}};
  for (const Group group : Groups(model)) {
    const std::string word = GroupWord(model, group);
    expressions.emplace_back(kResources + word, ResourcesText(word, group == Group::kWorkers));
    const auto limit = [&](const std::string& key) {
      return absl::StrCat("{{ toJson (index .Values.resources \"", word, "\" \"limits\" \"", key,
                          "\") }}");
    };
    expressions.emplace_back(kMemoryLimit + word, limit("memory"));
    expressions.emplace_back(kStorageLimit + word, limit(kStorageKey));
  }
  return expressions;
}

// `document`, made of WithWords(model), as a template.
std::string Template(const Model& model, const Json& document) {
  const Expressions expressions = ExpressionsOf(model);
  std::vector<std::string> lines = absl::StrSplit(YamlText(document), '\n');
  for (std::string& line : lines) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, kOptional);
    if (parts.second.empty()) {
      line = absl::StrReplaceAll(line, expressions);
      continue;
    }
    const std::pair<std::string, std::string> names = absl::StrSplit(parts.second, "--");
    const std::string value = names.second.empty() ? absl::StrCat(".Values.", names.first)
                                                   : absl::StrCat("(index .Values.", names.first,
                                                                  " \"", names.second, "\")");
    line = absl::StrCat("{{- with ", value, " }}\n", parts.first, "{{ toJson . }}\n{{- end }}");
  }
  return absl::StrJoin(lines, "\n");
}

// The documents with words for what the values say.
std::vector<Json> Documents(const Model& model) {
  const Model words = WithWords(model);
  std::vector<Json> documents = Manifests(words);
  for (Json& document : documents) {
    if (document["kind"] == "ConfigMap") document["data"]["job.yaml"] = JobText(words.job);
    if (document["kind"] != "Job") continue;
    for (const Group group : Groups(words)) {
      if (document["metadata"]["name"] != JobName(words, group)) continue;
      Json& pod = document["spec"]["template"]["spec"];
      const std::string word = GroupWord(words, group);
      pod["imagePullSecrets"] = absl::StrCat(kOptional, "imagePullSecrets");
      for (const char* key : {"nodeSelector", "tolerations"}) {
        pod[key] = absl::StrCat(kOptional, key, "--", word);
      }
      for (Json& volume : pod["volumes"]) {
        if (!volume.contains("emptyDir") || !volume["emptyDir"].contains("sizeLimit")) continue;
        const bool is_memory = volume["emptyDir"].contains("medium");
        volume["emptyDir"]["sizeLimit"] = (is_memory ? kMemoryLimit : kStorageLimit) + word;
      }
      for (const char* kind : {"initContainers", "containers"}) {
        if (!pod.contains(kind)) continue;
        for (Json& container : pod[kind]) {
          container["resources"] = kResources + word;
        }
      }
    }
  }
  return documents;
}

}  // namespace

Files HelmChart(const Model& model) {
  Files files;
  Json chart = Json::object();
  chart["apiVersion"] = "v2";
  chart["name"] = model.name;
  chart["description"] = absl::StrCat("The job ", model.job.name(), " of Rubato");
  chart["type"] = "application";
  chart["version"] = kVersion;
  chart["appVersion"] = kVersion;
  files["Chart.yaml"] = YamlText(chart);

  std::string values = SecretsText(model);
  Json schemas = Json::object();
  for (const Value& value : Values(model)) {
    Json entry = Json::object();
    entry[value.key] = value.value;
    absl::StrAppend(&values, "\n# ", value.help, "\n", YamlText(entry));
    schemas[value.key] = value.schema;
  }
  files["values.yaml"] = values;
  Json schema = Closed(schemas);
  schema["$schema"] = "http://json-schema.org/draft-07/schema#";
  files["values.schema.json"] = absl::StrCat(schema.dump(2), "\n");

  for (const Json& document : Documents(model)) {
    files[FileName(document)] = Template(model, document);
  }
  Model made = WithWords(model);
  made.options.runs_claim.clear();
  Json claim = RunsClaim(made);
  claim["spec"]["resources"]["requests"]["storage"] = kRunsSize;
  claim["spec"]["storageClassName"] = absl::StrCat(kOptional, "storageClass");
  files[FileName(claim)] =
      absl::StrCat("{{- if not .Values.claims.runs }}\n", Template(model, claim), "{{- end }}\n");
  files["templates/NOTES.txt"] = absl::StrReplaceAll(
      NotesText(WithWords(model), kRelease, absl::StrCat(kIfOwnClaim, kWithVolume, kEnd)),
      ExpressionsOf(model));
  return files;
}

}  // namespace rubato::kubernetes
