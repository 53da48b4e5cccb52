// The full names of the methods of proto::Coordination. A caller's credential is valid for one of
// them.
#ifndef RUBATO_COMMON_WIRE_CONTROL_METHODS_H_
#define RUBATO_COMMON_WIRE_CONTROL_METHODS_H_

namespace rubato {

constexpr char kJoinMethod[] = "/rubato.proto.Coordination/Join";
constexpr char kHeartbeatMethod[] = "/rubato.proto.Coordination/Heartbeat";
constexpr char kCommandMethod[] = "/rubato.proto.Coordination/Command";

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONTROL_METHODS_H_
