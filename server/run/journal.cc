#include "server/run/journal.h"

#include "common/base/json.h"
#include "common/space/modes.h"

namespace rubato {

using Json = nlohmann::ordered_json;

std::string JournalLine(const proto::View& view, const std::string& reason, absl::Time time) {
  Json json;
  json["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  json["term"] = view.term();
  json["view"] = view.number();
  json["lineage"] = view.lineage();
  json["mode"] = ModeName(view.mode());
  json["reason"] = reason;
  json["from_step"] = view.from_step();
  json["until_step"] = view.until_step();
  Json members = Json::array();
  for (const proto::Member& member : view.members()) {
    members.push_back({{"rank", member.rank()}, {"incarnation", member.incarnation()}});
  }
  json["members"] = std::move(members);
  Json assignments = Json::array();
  for (const proto::Assignment& assignment : view.assignments()) {
    Json grants = Json::array();
    for (const proto::Grant& grant : assignment.grants()) {
      grants.push_back(
          {{"rank", grant.rank()}, {"micro_batches", {grant.first_leaf(), grant.end_leaf()}}});
    }
    assignments.push_back({{"from_step", assignment.from_step()}, {"grants", std::move(grants)}});
  }
  if (!assignments.empty()) json["assignments"] = std::move(assignments);
  return JsonText(json) + "\n";
}

}  // namespace rubato
