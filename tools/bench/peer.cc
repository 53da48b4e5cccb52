#include "tools/bench/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

extern char** environ;

namespace rubato {
namespace {

double Seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What stands behind `name` in a file of /proc, without its unit; 0 if nothing does.
int64_t StatusNumber(const std::string& file, absl::string_view name) {
  std::ifstream status(file);
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view rest = line;
    int64_t number = 0;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    absl::ConsumeSuffix(&rest, "kB");
    return absl::SimpleAtoi(rest, &number) ? number : 0;
  }
  return 0;
}

// Of the threads that there are.
int64_t SwitchesOf(const std::string& process) {
  int64_t switches = 0;
  std::error_code error;
  const std::string threads = absl::StrCat("/proc/", process, "/task");
  for (const auto& thread : std::filesystem::directory_iterator(threads, error)) {
    switches += StatusNumber(thread.path() / "status", "voluntary_ctxt_switches:");
  }
  return switches;
}

// The first line that `fd` brings.
std::string ReadLine(int fd) {
  std::string line;
  char c;
  while (read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Peer>> Peer::Start(const std::vector<std::string>& arguments) {
  int input[2], output[2];
  RUBATO_CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "/proc/self/exe");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  pid_t pid;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  std::string address = error == 0 ? ReadLine(output[0]) : "";
  close(output[0]);
  if (error != 0) {
    close(input[1]);
    return absl::InternalError(absl::StrCat("cannot start a second process: error ", error));
  }
  std::unique_ptr<Peer> peer(new Peer(pid, input[1], std::move(address)));
  if (peer->address().empty()) return absl::InternalError("the second process does not serve");
  return peer;
}

Peer::~Peer() {
  close(input_);
  waitpid(pid_, nullptr, 0);
}

double Peer::CpuSeconds() const {
  clockid_t clock;
  return clock_getcpuclockid(pid_, &clock) == 0 ? Seconds(clock) : 0;
}

int64_t Peer::Switches() const { return SwitchesOf(absl::StrCat(pid_)); }

int64_t Peer::ResidentBytes() const {
  return 1024 * StatusNumber(absl::StrCat("/proc/", pid_, "/status"), "VmRSS:");
}

void ServeUntilTold(const std::string& address) {
  std::printf("%s\n", address.c_str());
  std::fflush(stdout);
  char c;
  while (read(STDIN_FILENO, &c, 1) > 0) {
  }
}

int64_t OwnSwitches() { return SwitchesOf("self"); }

double OwnCpuSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace rubato
