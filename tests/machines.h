// Several machines, which are network namespaces with cables between them.
#ifndef RUBATO_TESTS_MACHINES_H_
#define RUBATO_TESTS_MACHINES_H_

#include <string>

#include "tests/cluster.h"

namespace rubato {

class MachinesTest : public ClusterTest {
 protected:
  // Makes two machines, `here()` and `there()`; false where the kernel permits no namespaces, or a
  // tool is missing: the test is to be skipped then.
  bool MakeMachines();
  // Cable `number` between them is 10.7N.0.1 here and 10.7N.0.2 there.
  void Connect(int number);
  std::string Here(int number) const;

  Process& here() { return *here_; }
  Process& there() { return *there_; }

  // Processes on a machine.
  Process& StartOn(const Process& machine, const Arguments& command);
  Process::Result RunOn(const Process& machine, const Arguments& command);
  // Of a system tool, which must end well; what it says.
  std::string Configure(const Process& machine, const Arguments& command);

 private:
  Arguments On(const Process& machine, const Arguments& command) const;
  // A process that holds a machine; of a user who may set up its network. Null if there is none.
  Process* Machine(const Arguments& enter);

  Process* here_ = nullptr;
  Process* there_ = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_MACHINES_H_
