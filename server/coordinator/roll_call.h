// Part of the coordinator's core: a question to a set of shards, and which of them have answered. A
// second answer of a shard, and an answer of a shard that was not asked, are ignored.
#ifndef RUBATO_SERVER_COORDINATOR_ROLL_CALL_H_
#define RUBATO_SERVER_COORDINATOR_ROLL_CALL_H_

#include <cstdint>
#include <set>
#include <vector>

namespace rubato {

// A shard: one incarnation of its number.
struct ShardId {
  int number = 0;
  uint32_t incarnation = 0;

  friend bool operator==(const ShardId& a, const ShardId& b) {
    return a.number == b.number && a.incarnation == b.incarnation;
  }
  friend bool operator<(const ShardId& a, const ShardId& b) {
    return a.number != b.number ? a.number < b.number : a.incarnation < b.incarnation;
  }
};

class RollCall {
 public:
  // Asks these, and forgets the question before.
  void Ask(const std::vector<ShardId>& shards);
  // Whether the answer counts.
  bool OnAnswer(const ShardId& shard);

  // Whether all who were asked have answered.
  bool complete() const { return missing_.empty(); }
  const std::set<ShardId>& missing() const { return missing_; }

 private:
  std::set<ShardId> missing_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_ROLL_CALL_H_
