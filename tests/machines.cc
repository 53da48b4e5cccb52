#include "tests/machines.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace rubato {

bool MachinesTest::MakeMachines() {
  setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
  for (const char* tool : {"unshare", "nsenter", "ip"}) {
    if (Start({"/bin/sh", "-c", absl::StrCat("command -v ", tool)}).Wait().code != 0) return false;
  }
  here_ = Machine({"/usr/bin/unshare", "-Ur"});
  if (here_ == nullptr) return false;
  there_ = Machine(On(*here_, {"/usr/bin/unshare"}));
  if (there_ == nullptr) return false;
  for (const Process* machine : {here_, there_}) {
    Configure(*machine, {"ip", "link", "set", "lo", "up"});
  }
  return true;
}

void MachinesTest::Connect(int number) {
  const std::string cable = absl::StrCat("cable", number);
  Configure(*here_, {"ip", "link", "add", cable, "type", "veth", "peer", "name", cable, "netns",
                     absl::StrCat(there_->pid())});
  Configure(*here_, {"ip", "address", "add", Here(number) + "/24", "dev", cable});
  Configure(*there_,
            {"ip", "address", "add", absl::StrCat("10.7", number, ".0.2/24"), "dev", cable});
  for (const Process* machine : {here_, there_}) {
    Configure(*machine, {"ip", "link", "set", cable, "up"});
  }
}

std::string MachinesTest::Here(int number) const { return absl::StrCat("10.7", number, ".0.1"); }

Process& MachinesTest::StartOn(const Process& machine, const Arguments& command) {
  return Start(On(machine, command));
}

Process::Result MachinesTest::RunOn(const Process& machine, const Arguments& command) {
  return StartOn(machine, command).Wait();
}

std::string MachinesTest::Configure(const Process& machine, const Arguments& command) {
  Arguments all = {"/usr/bin/env"};
  all.insert(all.end(), command.begin(), command.end());
  const Process::Result result = RunOn(machine, all);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

MachinesTest::Arguments MachinesTest::On(const Process& machine, const Arguments& command) const {
  Arguments arguments = {"/usr/bin/nsenter",       "-t", absl::StrCat(machine.pid()), "-U",
                         "--preserve-credentials", "-n"};
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

Process* MachinesTest::Machine(const Arguments& enter) {
  Arguments arguments = enter;
  arguments.insert(arguments.end(), {"-n", "/bin/sh", "-c", "echo ready; exec sleep 1000"});
  Process& holder = Start(arguments);
  // Until it has said something, or has ended.
  while (holder.out().empty() && !holder.handle().AwaitEnd(absl::Milliseconds(5))) {
  }
  return holder.out() == "ready\n" ? &holder : nullptr;
}

}  // namespace rubato
