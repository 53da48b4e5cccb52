#include "common/job/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/address.h"
#include "common/job/yaml_document.h"

namespace rubato {
namespace {

constexpr absl::string_view kPrefix = "RUBATO__";
constexpr const char* kRankVariables[] = {"RANK", "JOB_COMPLETION_INDEX", "LOCAL_RANK"};
constexpr const char* kShapeVariables[] = {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
constexpr int kMaxRank = 65535;  // cluster.workers is at most one more

// Set and not empty, else "".
std::string Value(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// As YAML that is text whatever it looks like.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

void AddAddress(const Environment& environment, absl::string_view address,
                std::vector<Assignment>* assignments) {
  std::string host = Value(environment, "MASTER_ADDR");
  std::string port = Value(environment, "MASTER_PORT");
  if (absl::StrContains(port, "://")) port.clear();  // injected for a service called master
  if (host.empty() && port.empty()) return;
  const std::string source = host.empty()   ? "MASTER_PORT"
                             : port.empty() ? "MASTER_ADDR"
                                            : "MASTER_ADDR and MASTER_PORT";
  const absl::StatusOr<std::vector<HostPort>> parsed = ParseAddresses(address);
  const HostPort otherwise = parsed.ok() ? parsed->front() : HostPort{"127.0.0.1", 29500};
  if (host.empty()) host = otherwise.host;
  if (port.empty()) port = absl::StrCat(otherwise.port);
  if (absl::StrContains(host, ':') && !absl::StartsWith(host, "[")) {
    host = absl::StrCat("[", host, "]");
  }
  assignments->push_back({source, "cluster.address", Quoted(absl::StrCat(host, ":", port))});
}

absl::StatusOr<std::optional<int>> RankOf(const Environment& environment, const char* name) {
  const std::string text = Value(environment, name);
  if (text.empty()) return std::optional<int>();
  int rank = 0;
  if (!absl::SimpleAtoi(text, &rank) || rank < 0 || rank > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": found ", Show(text),
                     ", expected a worker's rank, an integer from 0 to ", kMaxRank));
  }
  return std::optional<int>(rank);
}

}  // namespace

Environment ProcessEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t cut = text.find('=');
    if (cut == absl::string_view::npos) continue;
    environment.emplace(text.substr(0, cut), text.substr(cut + 1));
  }
  return environment;
}

void RemoveJobVariables() {
  for (const auto& [name, value] : ProcessEnvironment()) {
    if (absl::StartsWith(name, kPrefix)) unsetenv(name.c_str());
  }
  for (const char* name : kRankVariables) unsetenv(name);
  for (const char* name : kShapeVariables) unsetenv(name);
}

std::string VariableOf(absl::string_view key) {
  return absl::StrCat(kPrefix, absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{".", "__"}})));
}

std::vector<Assignment> JobAssignments(const Environment& environment, absl::string_view address) {
  std::vector<Assignment> assignments;
  // The start alone: how far the number may change is not theirs to say.
  const std::string world_size = Value(environment, "WORLD_SIZE");
  if (!world_size.empty()) {
    assignments.push_back({"WORLD_SIZE", "cluster.workers.start", world_size});
  }
  AddAddress(environment, address, &assignments);

  const auto first_of_ours = static_cast<std::ptrdiff_t>(assignments.size());
  for (const auto& [name, value] : environment) {
    if (!absl::StartsWith(name, kPrefix)) continue;
    const absl::string_view path = absl::string_view(name).substr(kPrefix.size());
    assignments.push_back(
        {name, absl::AsciiStrToLower(absl::StrReplaceAll(path, {{"__", "."}})), value});
  }
  // A part after its whole: RUBATO__TRAIN before RUBATO__TRAIN__BATCH_SIZE.
  std::sort(assignments.begin() + first_of_ours, assignments.end(),
            [](const Assignment& a, const Assignment& b) {
              return std::tie(a.key, a.source) < std::tie(b.key, b.source);
            });
  return assignments;
}

absl::StatusOr<std::optional<int>> WorkerRank(const Environment& environment) {
  for (const char* name : kRankVariables) {
    const absl::StatusOr<std::optional<int>> rank = RankOf(environment, name);
    if (!rank.ok() || rank->has_value()) return rank;
  }
  return std::optional<int>();
}

absl::StatusOr<std::optional<int>> LocalRank(const Environment& environment) {
  return RankOf(environment, "LOCAL_RANK");
}

}  // namespace rubato
