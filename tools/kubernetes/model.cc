#include "tools/kubernetes/model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/files/resume_point.h"
#include "common/job/job.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/places.h"

namespace rubato::kubernetes {
namespace {

constexpr size_t kMaxLabel = 63;  // RFC 1123
constexpr size_t kDigestDigits = 8;
// A pod that failed is started again after up to 6 minutes; a node may take its time, too.
constexpr double kStartTimeout = 30 * 60;

bool IsLabel(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxLabel && absl::ascii_isalnum(text.front()) &&
         absl::ascii_isalnum(text.back()) && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

// Labels with dots between: how objects are named.
bool IsSubdomain(absl::string_view text) {
  if (text.size() > 253) return false;
  for (const absl::string_view label : absl::StrSplit(text, '.')) {
    if (!IsLabel(label)) return false;
  }
  return true;
}

absl::Status CheckObjectName(absl::string_view flag, const std::string& name) {
  if (name.empty() || IsSubdomain(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": found ", name,
                   ", expected the name of an object: lower-case letters, digits, - and ."));
}

absl::Status CheckLabel(absl::string_view flag, const std::string& name) {
  if (name.empty() || IsLabel(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": found ", name, ", expected a name: at most 63 lower-case letters, digits and -"));
}

// [HOST[:PORT]/]NAME[/NAME...][:TAG][@DIGEST], as container engines read it
// (github.com/distribution/reference): names have no upper-case letters, nor . _ - at their ends.
bool IsImage(absl::string_view image) {
  const auto is_of_name = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '_' || c == '-';
  };
  const auto is_of_tag = [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  const auto are_all = [](absl::string_view text, auto is_one) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_one);
  };
  if (const size_t at = image.find('@'); at != image.npos) {
    const auto is_of_digest = [&](char c) { return is_of_tag(c) || c == '+' || c == ':'; };
    if (!are_all(image.substr(at + 1), is_of_digest)) return false;
    image = image.substr(0, at);
  }
  if (const size_t at = image.rfind(':'); at != image.npos && image.find('/', at) == image.npos) {
    if (!are_all(image.substr(at + 1), is_of_tag)) return false;
    image = image.substr(0, at);
  }
  std::vector<absl::string_view> names = absl::StrSplit(image, '/');
  if (names.size() > 1 &&
      (names[0] == "localhost" || names[0].find_first_of(".:") != image.npos)) {  // a host
    names.erase(names.begin());
  }
  return std::all_of(names.begin(), names.end(), [&](absl::string_view name) {
    return are_all(name, is_of_name) && absl::ascii_isalnum(name.front()) &&
           absl::ascii_isalnum(name.back());
  });
}

absl::Status CheckImage(absl::string_view flag, const std::string& image) {
  if (IsImage(image)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": found \"", image,
      "\", expected an image such as example.org/rubato:1, its name in lower-case letters"));
}

absl::Status CheckGpus(const proto::Device& device, int gpus) {
  if (gpus < 0 || gpus > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gpus: found ", gpus,
        ", expected 0 or 1: a worker computes with one GPU, and more workers with more"));
  }
  if (gpus == 0 && device.type() == proto::Device::TYPE_CUDA) {
    return absl::InvalidArgumentError("device: found cuda, and no GPU is asked for: give --gpus 1");
  }
  if (gpus == 1 && device.type() == proto::Device::TYPE_CPU) {
    return absl::InvalidArgumentError(
        "--gpus: found 1, and the job says device: cpu: expected 0, or another device");
  }
  return absl::OkStatus();
}

// An earlier run is in a claim that outlives what is rendered.
absl::Status CheckResume(const proto::Job& job, const Options& options) {
  const std::string& resume = options.resume;
  const bool is_path = !resume.empty() && !IsResumeMode(resume);
  if (!is_path && !AsksForNewest(job, resume)) return absl::OkStatus();
  if (is_path && !absl::StartsWith(resume, "runs/") && !absl::StartsWith(resume, "/runs/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--resume: found ", resume,
        ", expected auto, required, never, or a run or checkpoint in the claim, as runs/NAME"));
  }
  // The volume of a TrainingRuntime is that of all its TrainJobs.
  if (!options.runs_claim.empty() || options.format == Format::kTrainingRuntime) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(resume.empty() ? "checkpoint.resume" : "--resume",
                   ": expected with --runs-claim alone, a claim that has earlier runs: that which "
                   "is rendered without it is new"));
}

// The longest name that leaves room for what stands behind it: the digest, and the index of a
// worker.
absl::StatusOr<std::string> NameOf(const proto::Job& job, const Options& options) {
  const std::string& given = options.name;
  std::string name = given;
  if (given.empty()) {
    for (const char c : job.name()) {
      name.push_back(absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '-');
    }
  }
  const std::string key = given.empty() ? "name" : "--name";
  // A JobSet's pods are called by two indexes, and it counts what is drawn behind them.
  const size_t drawn = options.format == Format::kPlain ? 0 : std::string("-0-0-abcde").size();
  const size_t behind =
      1 + kDigestDigits + drawn +
      std::max(std::string("-coordinator").size(),
               absl::StrCat("-workers-", job.cluster().workers().max() - 1).size());
  if (name.size() > kMaxLabel - behind) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: found %d characters, expected at most %d, so that pods can be called by it%s", key,
        name.size(), kMaxLabel - behind, given.empty() ? "; --name gives another" : ""));
  }
  if (!IsLabel(name) || !absl::ascii_islower(name.front())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: found %s, expected a letter in front, then lower-case letters, digits and -%s", key,
        name, given.empty() ? "; --name gives another" : ""));
  }
  return name;
}

// Where the data lie for the pods: the claim's or the init container's folder, and in it what the
// job names by their last names.
absl::Status PlaceData(Model* model) {
  namespace fs = std::filesystem;
  const Options& options = model->options;
  proto::Data& data = *model->job.mutable_data();
  proto::Model& net = *model->job.mutable_model();
  const bool has_claim = !options.data_claim.empty(), has_command = !options.data_command.empty();
  if (has_claim && has_command) {
    return absl::InvalidArgumentError(
        "--data-claim and --data-command exclude one another: the data are in a claim, or made by "
        "each worker");
  }
  std::string folder = kDataFolder;
  if (has_claim) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(options.data_claim, absl::MaxSplits(':', 1));
    model->data_claim = parts.first;
    if (parts.first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--data-claim: found ", options.data_claim, ", expected NAME or NAME:PATH"));
    }
    RUBATO_RETURN_IF_ERROR(CheckObjectName("--data-claim", parts.first));
    if (options.data_claim.find(':') != std::string::npos) folder = parts.second;
    if (folder.empty() || folder.front() != '/' || folder == "/" ||
        folder.find(':') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--data-claim: found ", options.data_claim,
          ", expected behind the colon the folder in the pods where it is mounted, such as /data"));
    }
  }
  std::vector<std::string> mounted = {"/tmp", kJobFolder};
  if (model->IsScript()) mounted.push_back("/dev/shm");
  if (net.has_init_from()) mounted.push_back(kRunsFolder);
  if (model->job.security().mode() == proto::Security::MODE_MTLS) {
    mounted.push_back(kCertificatesFolder);
  }
  for (const std::string& path : mounted) {
    if (has_claim && fs::path(folder + "/").lexically_normal() == fs::path(path) / "") {
      return absl::InvalidArgumentError(absl::StrCat("--data-claim: found ", options.data_claim,
                                                     ", and ", path,
                                                     " is a folder that pods have already"));
    }
  }
  if (has_claim || has_command) model->data_volume = folder;
  const bool reads = data.has_path(), initial = net.has_init_from();
  if (!reads && !initial) {
    // What a script reads, and where, is its own affair.
    const bool may_read = model->IsScript() && options.data_path.empty();
    if (!may_read && (has_claim || has_command || !options.data_path.empty())) {
      return absl::InvalidArgumentError(
          absl::StrCat(has_claim     ? "--data-claim"
                       : has_command ? "--data-command"
                                     : "--data-path",
                       model->IsScript() ? ": the job is a script's, which knows where its data lie"
                                         : ": the job draws its data and reads no files"));
    }
    return absl::OkStatus();
  }
  if (!has_claim && !has_command && options.data_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        reads ? "data.path" : "model.init_from", ": found ", reads ? data.path() : net.init_from(),
        ", a path of this machine; say where the pods find it: --data-claim NAME[:PATH], "
        "--data-command, or --data-path if the image has it"));
  }
  if (!options.data_path.empty() && options.data_path.front() != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("--data-path: found ", options.data_path,
                     ", expected a path in the pods that begins with /"));
  }
  const fs::path here = reads ? data.path() : net.init_from();
  const fs::path there =
      options.data_path.empty() ? fs::path(folder) / here.filename() : fs::path(options.data_path);
  const auto move = [&](const char* key, std::string* path) {
    if (fs::path(*path).parent_path() != here.parent_path()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": found ", *path,
                                                     ", expected a file beside ", here.string(),
                                                     ", so that the pods find both in one folder"));
    }
    *path = (there.parent_path() / fs::path(*path).filename()).string();
    return absl::OkStatus();
  };
  if (data.has_test_path())
    RUBATO_RETURN_IF_ERROR(move("data.test_path", data.mutable_test_path()));
  if (initial && reads) RUBATO_RETURN_IF_ERROR(move("model.init_from", net.mutable_init_from()));
  if (reads) {
    data.set_path(there.string());
  } else {
    net.set_init_from(there.string());
  }
  return absl::OkStatus();
}

absl::Status CheckScript(const proto::Job& job) {
  if (job.model().preset() != proto::Model::PRESET_SCRIPT || job.script_size() > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "model: found script, and no `script` that the workers run, such as [python3, train.py]");
}

// Kubernetes takes no other text.
absl::Status CheckUtf8(const proto::Job& job, const Options& options) {
  const std::pair<const char*, std::string> texts[] = {
      {"--data-claim", options.data_claim}, {"--data-command", options.data_command},
      {"--data-path", options.data_path},   {"--resume", options.resume},
      {"the job", ResolvedYaml(job)},
  };
  for (const auto& [name, text] : texts) {
    if (!IsUtf8(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": found bytes that are not UTF-8 text, which manifests must be"));
    }
  }
  return absl::OkStatus();
}

std::string Digest(const Model& model) {
  std::string text;
  for (const Json& document : Manifests(model)) absl::StrAppend(&text, document.dump(), "\n");
  return Sha256Hex(text).substr(0, kDigestDigits);
}

}  // namespace

absl::StatusOr<Model> MakeModel(proto::Job job, const Options& options, const Sizes& sizes) {
  if (options.image.empty()) {
    return absl::InvalidArgumentError(
        "--image is missing: an image that has rubato-server and rubato-worker");
  }
  RUBATO_RETURN_IF_ERROR(CheckImage("--image", options.image));
  if (!options.worker_image.empty()) {
    RUBATO_RETURN_IF_ERROR(CheckImage("--worker-image", options.worker_image));
  }
  RUBATO_RETURN_IF_ERROR(CheckUtf8(job, options));
  RUBATO_RETURN_IF_ERROR(CheckScript(job));
  RUBATO_RETURN_IF_ERROR(CheckGpus(job.device(), options.gpus));
  RUBATO_RETURN_IF_ERROR(CheckResume(job, options));
  RUBATO_RETURN_IF_ERROR(CheckObjectName("--runs-claim", options.runs_claim));
  RUBATO_RETURN_IF_ERROR(CheckObjectName("--priority-class", options.priority_class));
  RUBATO_RETURN_IF_ERROR(CheckLabel("--queue", options.queue));
  RUBATO_RETURN_IF_ERROR(CheckLabel("--monitoring-namespace", options.monitoring_namespace));
  Model model;
  model.any_device = job.device().type() == proto::Device::TYPE_AUTO;
  RUBATO_ASSIGN_OR_RETURN(model.name, NameOf(job, options));
  model.job = std::move(job);
  model.options = options;
  model.sizes = sizes;
  RUBATO_RETURN_IF_ERROR(PlaceData(&model));
  proto::Job& inside = model.job;
  inside.mutable_cluster()->set_start_timeout(
      std::max(inside.cluster().start_timeout(), kStartTimeout));
  inside.mutable_device()->set_type(options.gpus > 0 ? proto::Device::TYPE_CUDA
                                                     : proto::Device::TYPE_CPU);
  // Pods share none.
  inside.mutable_wire()->set_shared_memory(proto::Wire::SHARED_MEMORY_OFF);
  model.job_digest = JobDigest(inside);
  // What is rendered cannot be changed in place, so each change has names of its own.
  for (const bool has_digest : {false, true}) {
    model.base = has_digest ? absl::StrCat(model.name, "-", Digest(model)) : model.name;
    if (options.format == Format::kTrainingRuntime) continue;  // each TrainJob has its own
    inside.mutable_cluster()->set_address(absl::StrCat(CoordinatorHost(model), ":", kPort));
  }
  return model;
}

}  // namespace rubato::kubernetes
