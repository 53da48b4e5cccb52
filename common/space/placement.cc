#include "common/space/placement.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace rubato {

int64_t ValuesPerBlock(const proto::Job& job) {
  return job.wire().chunk() / static_cast<int64_t>(sizeof(float));
}

FlatSpace SpaceOf(const proto::Job& job, const proto::Layout& layout) {
  return FlatSpace(ValueCount(layout), ValuesPerBlock(job));
}

Placement::Placement(const FlatSpace& space, std::vector<Range> blocks) : space_(space) {
  Table table{std::move(blocks), {}};
  for (size_t shard = 0; shard < table.blocks.size(); ++shard) {
    if (!table.blocks[shard].empty()) table.owners.push_back(static_cast<int>(shard));
  }
  std::sort(table.owners.begin(), table.owners.end(),
            [&](int a, int b) { return table.blocks[a].begin < table.blocks[b].begin; });
  table_ = std::make_shared<const Table>(std::move(table));
}

std::string IdleServers(const Placement& placement) {
  const int idle = placement.shards() - placement.owners();
  if (2 * idle <= placement.shards()) return "";
  const FlatSpace& space = placement.space();
  return absl::StrFormat(
      "%d of %d servers hold no parameters, which are %d %s of %d values (cluster.servers, "
      "wire.chunk)",
      idle, placement.shards(), space.blocks(), space.blocks() == 1 ? "block" : "blocks",
      space.block_values());
}

Placement Placement::Even(const FlatSpace& space, int shards) {
  RUBATO_CHECK(shards > 0);
  std::vector<Range> blocks;
  for (int shard = 0; shard < shards; ++shard) {
    blocks.push_back({shard * space.blocks() / shards, (shard + 1) * space.blocks() / shards});
  }
  return Placement(space, std::move(blocks));
}

absl::StatusOr<Placement> Placement::Of(const proto::Job& job, const proto::View& view) {
  const FlatSpace space = SpaceOf(job, view.layout());
  std::vector<Range> blocks;
  for (const proto::Shard& shard : view.shards()) {
    const Range own{shard.first_block(), shard.end_block()};
    if (own.begin < 0 || own.end < own.begin || space.blocks() < own.end) {
      return absl::InvalidArgumentError(
          absl::StrFormat("view %d gives shard %d blocks [%d, %d) of a space of %d", view.number(),
                          blocks.size(), own.begin, own.end, space.blocks()));
    }
    blocks.push_back(own);
  }
  if (blocks.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("view %d has no shards", view.number()));
  }
  std::vector<Range> sorted = {{space.blocks(), space.blocks()}};
  for (const Range& own : blocks) {
    if (!own.empty()) sorted.push_back(own);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t next = 0;
  for (const Range& own : sorted) {
    if (own.begin != next) {
      return absl::InvalidArgumentError(
          absl::StrFormat("view %d gives block %d to %s", view.number(), std::min(own.begin, next),
                          own.begin < next ? "two shards" : "no shard"));
    }
    next = own.end;
  }
  return Placement(space, std::move(blocks));
}

void Placement::AddTo(proto::View* view) const {
  for (const Range& own : table_->blocks) {
    proto::Shard* shard = view->add_shards();
    shard->set_incarnation(1);
    shard->set_first_block(own.begin);
    shard->set_end_block(own.end);
  }
}

Range Placement::Blocks(int shard) const {
  RUBATO_CHECK(0 <= shard && shard < shards());
  return table_->blocks[shard];
}

Range Placement::Values(int shard) const {
  const Range blocks = Blocks(shard);
  return {std::min(space_.values(), blocks.begin * space_.block_values()),
          std::min(space_.values(), blocks.end * space_.block_values())};
}

int64_t Placement::max_values() const {
  int64_t max = 0;
  for (int shard = 0; shard < shards(); ++shard) max = std::max(max, Values(shard).size());
  return max;
}

int Placement::ShardOf(int64_t block) const {
  RUBATO_CHECK(0 <= block && block < space_.blocks());
  return *std::partition_point(table_->owners.begin(), table_->owners.end(),
                               [&](int shard) { return table_->blocks[shard].end <= block; });
}

std::vector<std::string> ShardAddresses(const proto::View& view) {
  std::vector<std::string> addresses;
  addresses.reserve(view.shards_size());
  for (const proto::Shard& shard : view.shards()) addresses.push_back(shard.address());
  return addresses;
}

}  // namespace rubato
