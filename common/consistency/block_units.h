// Sets of contributions in messages.
#ifndef RUBATO_COMMON_CONSISTENCY_BLOCK_UNITS_H_
#define RUBATO_COMMON_CONSISTENCY_BLOCK_UNITS_H_

#include "common/consistency/unit_set.h"
#include "proto/cluster.pb.h"

namespace rubato {

// What the block holds.
UnitSet UnitsOf(const proto::BlockState& block);
void SetUnits(const UnitSet& units, proto::BlockState* block);

// What all blocks of the shard hold.
UnitSet UnitsOf(const proto::ShardClosed& closed);
void SetUnits(const UnitSet& units, proto::ShardClosed* closed);

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_BLOCK_UNITS_H_
