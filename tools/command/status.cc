#include "tools/command/status.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/job/schema.h"
#include "common/space/modes.h"
#include "tools/command/loss_text.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

void AppendLine(absl::string_view name, absl::string_view value, std::string* text) {
  absl::StrAppendFormat(text, "%-12s%s\n", name, Printable(value));
}

std::vector<proto::JobStatus::Member> ByRank(const proto::JobStatus& status) {
  std::vector<proto::JobStatus::Member> members(status.members().begin(), status.members().end());
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  return members;
}

std::vector<proto::JobStatus::Server> ByShard(const proto::JobStatus& status) {
  std::vector<proto::JobStatus::Server> servers(status.servers().begin(), status.servers().end());
  std::sort(servers.begin(), servers.end(),
            [](const auto& a, const auto& b) { return a.shard() < b.shard(); });
  return servers;
}

// The process numbers of servers, and of a coordinator that is none of them.
void AppendServers(const proto::JobStatus& status, std::string* text) {
  if (status.servers_size() > 0) AppendLine("servers", "shard  heard of  process", text);
  bool is_server = false;
  for (const proto::JobStatus::Server& server : ByShard(status)) {
    const std::string heard = server.has_seconds_silent()
                                  ? absl::StrFormat("%6.1f s", server.seconds_silent())
                                  : "answers";
    AppendLine("", absl::StrFormat("%5d  %8s  %s", server.shard(), heard, server.process()), text);
    is_server = is_server || server.process() == status.coordinator();
  }
  if (status.has_coordinator() && !is_server) AppendLine("coordinator", status.coordinator(), text);
}

std::string TestText(const proto::JobStatus::Test& test) {
  std::vector<std::string> figures;
  if (test.has_loss()) figures.push_back(absl::StrCat("loss ", LossText(test.loss())));
  if (test.has_accuracy()) {
    figures.push_back(absl::StrFormat("accuracy %.1f %%", 100 * test.accuracy()));
  }
  for (const auto& other : test.others()) {
    figures.push_back(absl::StrFormat("%s %.4g", other.name(), other.value()));
  }
  if (figures.empty()) figures.push_back("no number");
  return absl::StrCat("step ", test.step(), ", ", absl::StrJoin(figures, ", "));
}

Json TestJson(const proto::JobStatus::Test& test) {
  Json json;
  json["step"] = test.step();
  if (test.has_loss()) json["loss"] = test.loss();
  if (test.has_accuracy()) json["accuracy"] = test.accuracy();
  for (const auto& other : test.others()) json[other.name()] = other.value();
  return json;
}

}  // namespace

std::string StatusText(const proto::JobStatus& status) {
  std::string text;
  AppendLine("state", status.state(), &text);
  if (!status.stopped().empty()) AppendLine("stopping", status.stopped(), &text);
  if (status.has_view()) {
    AppendLine("mode",
               absl::StrCat(ModeName(status.mode()),
                            status.has_next_mode()
                                ? absl::StrCat(", switching to ", ModeName(status.next_mode()))
                                : ""),
               &text);
    AppendLine("view",
               absl::StrFormat("%d, lineage %d, %d shards", status.view(), status.lineage(),
                               status.shards()),
               &text);
    AppendLine("progress",
               absl::StrFormat("step %d, epoch %.2f, %d samples, %.0f samples/s", status.step(),
                               status.epoch(), status.samples(), status.samples_per_second()),
               &text);
  }
  if (status.has_last_test()) AppendLine("tested", TestText(status.last_test()), &text);
  AppendServers(status, &text);
  if (status.members_size() > 0) {
    const std::string columns = absl::StrFormat("%4s  %8s  %9s  %8s  %8s  %s", "rank", "clock",
                                                "staleness", "heard of", "computed", "process");
    AppendLine("workers", columns, &text);
  }
  for (const proto::JobStatus::Member& member : ByRank(status)) {
    AppendLine("",
               absl::StrFormat("%4d  %8d  %9.2f  %6.1f s  %6.1f s  %s", member.rank(),
                               member.clock(), member.staleness(), member.seconds_silent(),
                               member.seconds_idle(), member.process()),
               &text);
  }
  for (int i = 0; i < status.waits_size(); ++i) {
    AppendLine(i == 0 ? "waits" : "", status.waits(i), &text);
  }
  const proto::JobStatus::Ledger& ledger = status.ledger();
  if (ledger.given() > 0) {
    AppendLine("given out",
               absl::StrFormat("%d contributions = %d applied + %d partial + %d lost + %d left out "
                               "+ %d under way",
                               ledger.given(), ledger.applied(), ledger.partial(), ledger.lost(),
                               ledger.left_out(), ledger.under_way()),
               &text);
  }
  if (status.servers_lost() > 0) {
    AppendLine("rolled back",
               absl::StrFormat("%d samples, %d server%s lost", status.samples_rolled_back(),
                               status.servers_lost(), status.servers_lost() == 1 ? "" : "s"),
               &text);
  }
  if (status.refused() > 0) {
    AppendLine("refused", absl::StrCat(status.refused(), " calls, streams and messages"), &text);
  }
  if (!status.last_checkpoint().empty()) AppendLine("checkpoint", status.last_checkpoint(), &text);
  return text;
}

std::string StatusJson(const proto::JobStatus& status) {
  Json json;
  json["state"] = status.state();
  if (!status.stopped().empty()) json["stopped"] = status.stopped();
  json["shards"] = status.shards();
  if (status.has_view()) {
    json["view"] = status.view();
    json["lineage"] = status.lineage();
    json["mode"] = YamlName(status.mode().mode());  // the bound is a number of its own
    json["staleness"] = status.mode().staleness();
    if (status.has_next_mode()) json["next_mode"] = YamlName(status.next_mode().mode());
    json["step"] = status.step();
    json["samples"] = status.samples();
    json["epoch"] = status.epoch();
    json["samples_per_second"] = status.samples_per_second();
    const proto::JobStatus::Ledger& ledger = status.ledger();
    json["ledger"] = {{"given", ledger.given()},       {"applied", ledger.applied()},
                      {"partial", ledger.partial()},   {"lost", ledger.lost()},
                      {"left_out", ledger.left_out()}, {"under_way", ledger.under_way()}};
  }
  if (status.has_last_test()) json["last_test"] = TestJson(status.last_test());
  json["servers_lost"] = status.servers_lost();
  json["samples_rolled_back"] = status.samples_rolled_back();
  json["refused"] = status.refused();
  json["members"] = Json::array();
  for (const proto::JobStatus::Member& member : ByRank(status)) {
    json["members"].push_back({{"rank", member.rank()},
                               {"incarnation", member.incarnation()},
                               {"process", member.process()},
                               {"clock", member.clock()},
                               {"staleness", member.staleness()},
                               {"seconds_silent", member.seconds_silent()},
                               {"seconds_idle", member.seconds_idle()}});
  }
  json["servers"] = Json::array();
  for (const proto::JobStatus::Server& server : ByShard(status)) {
    Json entry = {{"shard", server.shard()}, {"process", server.process()}};
    if (server.has_seconds_silent()) entry["seconds_silent"] = server.seconds_silent();
    json["servers"].push_back(std::move(entry));
  }
  json["coordinator"] = status.coordinator();
  json["waits"] = Json::array();
  for (const std::string& wait : status.waits()) json["waits"].push_back(wait);
  json["last_checkpoint"] = status.last_checkpoint();
  return JsonText(json) + "\n";
}

std::string AnswerJson(const std::string& text) {
  Json json;
  json["answer"] = text;
  return JsonText(json);
}

}  // namespace rubato
