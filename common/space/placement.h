// Which shard holds which blocks of a job's flat space: what a view states of its shards.
#ifndef RUBATO_COMMON_SPACE_PLACEMENT_H_
#define RUBATO_COMMON_SPACE_PLACEMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/space/flat_space.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "proto/view.pb.h"

namespace rubato {

// Floats of a block of the job, and its flat space.
int64_t ValuesPerBlock(const proto::Job& job);
FlatSpace SpaceOf(const proto::Job& job, const proto::Layout& layout);

// Immutable; copies share one table.
class Placement {
 public:
  // Consecutive runs of blocks, in the order of the shards (> 0); the lengths differ by at most
  // one. With fewer blocks than shards some shards own none.
  static Placement Even(const FlatSpace& space, int shards);
  // InvalidArgument unless the shards of `view` hold each block of the job's space exactly once.
  static absl::StatusOr<Placement> Of(const proto::Job& job, const proto::View& view);

  // Writes the placement to `view`: shards in their first incarnation, without addresses.
  void AddTo(proto::View* view) const;

  const FlatSpace& space() const { return space_; }
  int shards() const { return static_cast<int>(table_->blocks.size()); }
  // Shards that hold blocks.
  int owners() const { return static_cast<int>(table_->owners.size()); }

  Range Blocks(int shard) const;
  Range Values(int shard) const;
  int ShardOf(int64_t block) const;
  // Values of the shard that holds the most.
  int64_t max_values() const;

 private:
  Placement(const FlatSpace& space, std::vector<Range> blocks);

  struct Table {
    std::vector<Range> blocks;  // by shard
    std::vector<int> owners;    // shards that hold blocks, in the order of these
  };

  FlatSpace space_;
  std::shared_ptr<const Table> table_;
};

// What to warn of where more than half of the servers hold nothing; empty elsewhere.
std::string IdleServers(const Placement& placement);

// Of the view's data services, "host:port", by shard.
std::vector<std::string> ShardAddresses(const proto::View& view);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_PLACEMENT_H_
