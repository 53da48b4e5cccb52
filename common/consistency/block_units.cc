#include "common/consistency/block_units.h"

#include <cstdint>

namespace rubato {
namespace {

template <typename Message>
UnitSet Read(const Message& message) {
  UnitSet units(message.units_below());
  for (const proto::UnitRun& run : message.unit_runs()) units.Insert(run.begin(), run.end());
  return units;
}

template <typename Message>
void Write(const UnitSet& units, Message* message) {
  message->set_units_below(units.below());
  message->clear_unit_runs();
  for (const auto& [begin, end] : units.runs()) {
    proto::UnitRun* run = message->add_unit_runs();
    run->set_begin(begin);
    run->set_end(end);
  }
}

}  // namespace

UnitSet UnitsOf(const proto::BlockState& block) {
  UnitSet units = Read(block);
  for (const int64_t unit : block.units_above()) units.Insert(unit);
  return units;
}

void SetUnits(const UnitSet& units, proto::BlockState* block) {
  block->clear_units_above();
  Write(units, block);
}

UnitSet UnitsOf(const proto::ShardClosed& closed) { return Read(closed); }

void SetUnits(const UnitSet& units, proto::ShardClosed* closed) { Write(units, closed); }

}  // namespace rubato
