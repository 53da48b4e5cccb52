#include "server/shard/stream_names.h"

#include "absl/strings/str_format.h"

namespace rubato {

void StreamNames::SetMembers(const proto::View& view) {
  attempts_.clear();
  for (const proto::Member& member : view.members()) {
    if (member.attempt() != 0) attempts_[static_cast<uint32_t>(member.rank())] = member.attempt();
  }
}

absl::Status StreamNames::Check(uint64_t stream, const Name& name, bool is_member) {
  Name& own = by_stream_.try_emplace(stream, name).first->second;
  if (own.incarnation == 0 && own.rank == name.rank) own.incarnation = name.incarnation;
  const bool is_own =
      own.rank == name.rank && (name.incarnation == 0 || name.incarnation == own.incarnation);
  if (!is_own) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "frame is from worker %d (incarnation %d); its stream is that of worker %d (incarnation "
        "%d)",
        name.rank, name.incarnation, own.rank, own.incarnation));
  }
  if (!is_member) return absl::OkStatus();
  const auto attempt = attempts_.find(name.rank);
  if (attempt != attempts_.end()) {
    const auto shown = shown_.find(stream);
    if (shown == shown_.end() || shown->second != attempt->second) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "frame is from worker %d (incarnation %d); its stream has not shown that it is that "
          "worker's",
          name.rank, name.incarnation));
    }
  }
  const auto [holder, is_new] = by_rank_.try_emplace(name.rank, Holder{name.incarnation, stream});
  if (is_new || holder->second.incarnation != name.incarnation) {
    holder->second = {name.incarnation, stream};
  } else if (holder->second.stream != stream) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame is from worker %d (incarnation %d), who has another stream",
                        name.rank, name.incarnation));
  }
  return absl::OkStatus();
}

void StreamNames::Forget(uint64_t stream) {
  shown_.erase(stream);
  const auto own = by_stream_.find(stream);
  if (own == by_stream_.end()) return;
  const auto holder = by_rank_.find(own->second.rank);
  if (holder != by_rank_.end() && holder->second.stream == stream) by_rank_.erase(holder);
  by_stream_.erase(own);
}

}  // namespace rubato
