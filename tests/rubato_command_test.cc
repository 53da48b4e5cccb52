// The command `rubato` as a user meets it: its output, its exit codes, its processes. Servers and
// workers are scripts, so that each way in which they may end can be played.
// Long because every case needs the same scripts and the folder that they play in.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kJob[] = R"(version: 1
name: tiny
cluster: {servers: 2, workers: 2, address: "127.0.0.1:0", start_timeout: 30s}
data: {format: glyphs, train_size: 1000, test_size: 100}
model: {layers: [flatten, linear: {out_features: 10}]}
train: {batch_size: 10, until: {epochs: 1}}
)";

// Of scripts as workers.
constexpr char kScriptJob[] = R"(version: 1
name: tiny
cluster: {workers: 2, address: "127.0.0.1:0"}
script: [/bin/sh, script.sh]
train: {batch_size: 10, until: {epochs: 1}}
)";

// Every script starts with this: what it was called with, as variables, and a note of it in the
// file `calls`.
constexpr char kPrelude[] = R"(#!/bin/sh
echo "$(basename "$0") $*" >> calls
while [ $# -gt 0 ]; do
  case $1 in
    --coordinator) shard=coordinator; shift; continue ;;
    --config) config=$2 ;;
    --shard) shard=$2 ;;
    --run-dir) run=$2 ;;
    --set) set=$2 ;;
  esac
  shift 2
done
)";
// Shard 0 of a run that ends well when both workers have.
constexpr char kGoodServer[] = R"(
if [ $shard = 0 ]; then
  echo '{"kind":"train","step":50,"samples":500,"time":1,"loss":0.5,"samples_per_second":500}' \
      > $run/metrics.jsonl
  printf '{%s,%s}\n' '"test_accuracy":0.975,"test_loss":0.1,"samples_per_second":500' \
      '"seconds":2,"steps":100,"samples":1000' > $run/summary.json
  exec 3<> gate
  echo 127.0.0.1:4711 > $run/address.new && mv $run/address.new $run/address
fi
)";
constexpr char kAwaitWorkers[] = "if [ $shard = 0 ]; then read a <&3; read b <&3; fi\n";
constexpr char kFirstView[] =
    "if [ $shard = 0 ]; then echo '{\"mode\":\"sync\"}' > $run/views.jsonl; fi\n";
constexpr char kGoodWorker[] = "echo done > gate\n";

// A listener that takes nothing, as if it were frozen, stands for a run that is there.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(socket_, 5) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      abort();
    }
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { close(socket_); }
  const std::string& address() const { return address_; }

  // Takes one connection, keeps silent for that long, and is gone, like a frozen process that is
  // killed.
  void EndAfterSilence(absl::Duration silence) const {
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    absl::SleepFor(silence);
    shutdown(socket_, SHUT_RDWR);
    close(connection);
  }

 private:
  const int socket_;
  std::string address_;
};

struct Result {
  int code;  // exit code, or -signal
  std::string out, err;
};

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class RubatoCommandTest : public testing::Test {
 protected:
  RubatoCommandTest() {
    if (mkdtemp(folder_.data()) == nullptr) abort();
    fs::create_directory(Path("bin"));
    Write("job.yaml", kJob);
    SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers), kGoodWorker);
    if (mkfifo(Path("alive").c_str(), 0600) != 0 || mkfifo(Path("gate").c_str(), 0600) != 0)
      abort();
    alive_ = open(Path("alive").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  ~RubatoCommandTest() override { close(alive_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }
  void Write(absl::string_view name, absl::string_view text) { std::ofstream(Path(name)) << text; }

  void SetScripts(absl::string_view server, absl::string_view worker) {
    const std::string fake = fs::absolute("tests/fake_process").string();
    for (const auto& [name, body] :
         {std::pair("rubato-server", server), std::pair("rubato-worker", worker)}) {
      const std::string path = absl::StrCat("bin/", name);
      Write(path, absl::StrCat(kPrelude, "fake=", fake, "\n", body));
      fs::permissions(Path(path), fs::perms::owner_all);
    }
  }

  // Starts rubato in the test's folder.
  pid_t Start(const std::vector<std::string>& arguments) {
    const std::string binary = fs::absolute("tools/rubato").string();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(folder_.c_str()) != 0) _exit(99);
    setenv("RUBATO_BIN_DIR", Path("bin").c_str(), 1);
    dup2(open("out", O_CREAT | O_TRUNC | O_WRONLY, 0600), 1);
    dup2(open("err", O_CREAT | O_TRUNC | O_WRONLY, 0600), 2);
    std::vector<char*> argv = {const_cast<char*>("rubato")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(binary.c_str(), argv.data());
    _exit(99);
  }

  Result Await(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), Read(Path("out")),
            Read(Path("err"))};
  }

  Result Rubato(const std::vector<std::string>& arguments) { return Await(Start(arguments)); }

  // Reads the FIFO until `count` processes have announced themselves.
  void AwaitAnnounced(int count) {
    char byte;
    while (count > 0) {
      if (Byte(&byte) && byte == '\n') --count;
    }
  }
  // Reads it until none of them lives.
  void AwaitAllDead() {
    char byte;
    while (Byte(&byte)) {
    }
  }

  std::vector<std::string> Calls() {
    std::vector<std::string> calls = absl::StrSplit(Read(Path("calls")), '\n', absl::SkipEmpty());
    std::sort(calls.begin(), calls.end());
    return calls;
  }

  std::string folder_ = testing::TempDir() + "/rubato_XXXXXX";
  int alive_;

 private:
  bool Byte(char* byte) {
    pollfd fd = {alive_, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0) {
    }
    return read(alive_, byte, 1) == 1;
  }
};

TEST_F(RubatoCommandTest, HelpHasExamplesAndEndsWithZero) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"-h"},
                                                    {"help"},
                                                    {"train", "--help"},
                                                    {"help", "train"},
                                                    {"inspect", "-h"}}) {
    const Result result = Rubato(arguments);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out,
                AllOf(StartsWith("usage: rubato "), HasSubstr("\nExamples:\n  rubato ")));
    EXPECT_THAT(result.err, IsEmpty());
  }
  EXPECT_THAT(Rubato({"--help"}).out, AllOf(HasSubstr("\n  train "), HasSubstr("\n  inspect ")));
  EXPECT_EQ(Rubato({"--version"}).out, Rubato({"version"}).out);
}

TEST_F(RubatoCommandTest, UnknownVerbsAndFlagsEndWithTwoAndTheNearest) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "error: missing argument VERB (see rubato --help)\n"},
      {{"trian"}, "error: unknown verb trian; did you mean train? (see rubato --help)\n"},
      {{"help", "inspct"},
       "error: unknown verb inspct; did you mean inspect? (see rubato --help)\n"},
      {{"--hepl"}, "error: unknown flag --hepl; did you mean --help? (see rubato --help)\n"},
      {{"train"}, "error: missing argument CONFIG.yaml (see rubato train --help)\n"},
      {{"train", "job.yaml", "--dry"},
       "error: unknown flag --dry; did you mean --dry-run? (see rubato train --help)\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const Result result = Rubato(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err, message);
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(RubatoCommandTest, DryRunStartsNothingAndPrintsAJob) {
  const Result result =
      Rubato({"train", "job.yaml", "--dry_run", "--set", "optimizer.learning_rate=0.25"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("learning_rate: 0.25"));
  EXPECT_THAT(result.out, HasSubstr("1.weight"));
  EXPECT_FALSE(fs::exists(Path("runs")));
  EXPECT_FALSE(fs::exists(Path("calls")));
  EXPECT_THAT(result.out, HasSubstr("learning_rate: 0.25  # from --set\n"));
  // What it prints is a job that resolves to itself, now all from the file.
  Write("resolved.yaml", result.out);
  const Result again = Rubato({"train", "resolved.yaml", "--dry-run"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.out, absl::StrReplaceAll(result.out, {{"  # from --set", ""}}));
}

// 200 MB of parameters in each of 65,536 workers.
TEST_F(RubatoCommandTest, RefusesWhatThisHostCannotHoldAndADryRunWarns) {
  const std::vector<std::string> job = {
      "train",
      "job.yaml",
      "--set",
      "cluster.workers=65536",
      "--set",
      "model={layers: [flatten, linear: {out_features: 65536}, linear: {out_features: 10}]}"};
  const std::string reason =
      "cluster: found 2 servers and 65536 workers(, which take .* MB if all are| to start) on this "
      "host";
  const Result refused = Rubato(job);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, ContainsRegex("^error: " + reason));
  EXPECT_FALSE(fs::exists(Path("runs")));
  EXPECT_FALSE(fs::exists(Path("calls")));
  std::vector<std::string> dry = job;
  dry.push_back("--dry-run");
  const Result told = Rubato(dry);
  EXPECT_EQ(told.code, 0);
  EXPECT_THAT(told.out, ContainsRegex("#  warning: " + reason));
}

TEST_F(RubatoCommandTest, MistakesAreToldOnceBeforeAnythingStarts) {
  for (const std::string mistake :
       {"optimizer.learning_rat=1", "model={layers: [linear: {out_features: 10}]}",
        "cluster.workers=0", "data={format: idx, path: nowhere}", "train.micro_batches=3"}) {
    const Result result = Rubato({"train", "job.yaml", "--set", mistake});
    EXPECT_EQ(result.code, 2) << mistake;
    EXPECT_THAT(result.err, StartsWith("error: ")) << mistake;
    EXPECT_FALSE(fs::exists(Path("runs"))) << mistake;
    EXPECT_FALSE(fs::exists(Path("calls"))) << mistake;
  }
  EXPECT_EQ(Rubato({"train", "missing.yaml"}).code, 2);
}

TEST_F(RubatoCommandTest, TrainStartsServersAndWorkersAndSumsUp) {
  SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers, kFirstView), kGoodWorker);
  const Result result = Rubato({"train", "job.yaml", "--set", "optimizer.momentum=0.5"});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string run = "runs/" + fs::read_symlink(Path("runs/latest")).string();
  EXPECT_THAT(run, StartsWith("runs/tiny-"));
  EXPECT_THAT(Read(Path(run + "/job.yaml")), HasSubstr("momentum: 0.5"));
  const std::string config = absl::StrCat(" --config ", run, "/job.yaml");
  const std::string address = " --set cluster.address=\"127.0.0.1:4711\"";
  EXPECT_THAT(Calls(),
              testing::ElementsAre(  //
                  absl::StrCat("rubato-server", config, " --shard 0 --run-dir ", run),
                  absl::StrCat("rubato-server", config, " --shard 1 --run-dir ", run, address),
                  absl::StrCat("rubato-worker", config, " --rank 0 --local-rank 0", address),
                  absl::StrCat("rubato-worker", config, " --rank 1 --local-rank 1", address)));
  EXPECT_EQ(result.out,
            absl::StrCat(
                "test accuracy  97.50 %  (loss 0.1000)\n"
                "speed          500 samples/s  (1000 samples, 100 steps, 2.0 s)\n"
                "files          ",
                run,
                "\n\nTry next:\n"
                "  rubato inspect ",
                run,
                "\n"
                "  rubato train job.yaml --set optimizer.momentum=0.5 --set consistency=async\n"));
  EXPECT_THAT(
      result.err,
      HasSubstr("Z launcher 0 step=50 epoch=0.5 loss=0.5 samples_per_second=500 seconds_left=1\n"));
}

// A package has examples and no documentation.
TEST_F(RubatoCommandTest, TheTutorialIsNamedWhereItIs) {
  SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers, kFirstView), kGoodWorker);
  fs::create_directories(Path("clone/configs"));
  fs::create_directories(Path("clone/docs"));
  Write("clone/configs/quickstart.yaml", Read(Path("job.yaml")));
  const auto out = [this] { return Rubato({"train", "clone/configs/quickstart.yaml"}).out; };
  EXPECT_THAT(out(), AllOf(HasSubstr("Try next:\n  rubato inspect "), Not(HasSubstr("tutorial"))));
  Write("clone/docs/tutorial.md", "");
  EXPECT_THAT(out(),
              EndsWith("\n  clone/docs/tutorial.md: your own data and model, in 20 minutes\n"));
}

TEST_F(RubatoCommandTest, TheEnvironmentReachesTheProcessesThroughTheJobAlone) {
  SetScripts(absl::StrCat("env >> environments\n", kGoodServer, kAwaitWorkers),
             absl::StrCat("env >> environments\n", kGoodWorker));
  setenv("RUBATO__SEED", "77", 1);
  setenv("RUBATO__OPTIMIZER__MOMENTUM", "0.25", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "1", 1);
  setenv("RUBATO_PORT", "tcp://10.96.0.7:80", 1);
  const Result result =
      Rubato({"train", "job.yaml", "--run-dir", "run", "--set", "optimizer.momentum=0.5"});
  setenv("RUBATO__OPTIMIZER__MOMENTU", "1", 1);
  const Result unknown = Rubato({"train", "job.yaml", "--dry-run"});
  for (const char* name : {"RUBATO__SEED", "RUBATO__OPTIMIZER__MOMENTUM", "WORLD_SIZE", "RANK",
                           "RUBATO_PORT", "RUBATO__OPTIMIZER__MOMENTU"}) {
    unsetenv(name);
  }
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string job = Read(Path("run/job.yaml"));
  EXPECT_THAT(job, HasSubstr("seed: 77  # from RUBATO__SEED\n"));
  EXPECT_THAT(job, HasSubstr("momentum: 0.5  # from --set\n"));
  EXPECT_THAT(job, HasSubstr("# start from WORLD_SIZE\n"));
  const std::string environments = Read(Path("environments"));
  EXPECT_THAT(environments, Not(HasSubstr("RUBATO__")));
  EXPECT_THAT(environments, Not(HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(environments, Not(HasSubstr("\nRANK=")));
  EXPECT_THAT(environments, HasSubstr("RUBATO_PORT=tcp://10.96.0.7:80\n"));

  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "error: RUBATO__OPTIMIZER__MOMENTU: found an unknown key; did you mean "
            "RUBATO__OPTIMIZER__MOMENTUM?\n");
}

// Of two processors each of two workers has its own, and servers have both.
TEST_F(RubatoCommandTest, WorkersThatNeedAllProcessorsShareThemOut) {
  cpu_set_t own, two;
  CPU_ZERO(&own);
  CPU_ZERO(&two);
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  std::vector<std::string> numbers;
  for (int i = 0; i < CPU_SETSIZE && numbers.size() < 2; ++i) {
    if (!CPU_ISSET(i, &own)) continue;
    CPU_SET(i, &two);
    numbers.push_back(absl::StrCat(i));
  }
  if (numbers.size() < 2) GTEST_SKIP() << "this machine has one processor";
  const auto tell = [](absl::string_view file) {
    return absl::StrCat("awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status >> ", file, "\n");
  };
  SetScripts(absl::StrCat(tell("servers-$shard"), kGoodServer, kAwaitWorkers),
             absl::StrCat(tell("workers"), kGoodWorker));
  ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  const Result bound = Rubato({"train", "job.yaml", "--run-dir", "run"});
  const std::string workers = Read(Path("workers"));
  const Result unbound =
      Rubato({"train", "job.yaml", "--run-dir", "run2", "--set", "cluster.bind_workers=false"});
  Write("script.job.yaml", kScriptJob);
  Write("script.sh", absl::StrCat(tell("scripts"), kGoodWorker));
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  const Result scripts = Rubato({"train", "script.job.yaml", "--run-dir", "run3"});
  ASSERT_EQ(sched_setaffinity(0, sizeof own, &own), 0);
  EXPECT_EQ(scripts.code, 0) << scripts.err;
  EXPECT_EQ(bound.code, 0) << bound.err;
  EXPECT_EQ(unbound.code, 0) << unbound.err;
  EXPECT_THAT(absl::StrSplit(workers, '\n', absl::SkipEmpty()),
              UnorderedElementsAre(numbers[0], numbers[1]));
  const std::string both = std::stoi(numbers[1]) == std::stoi(numbers[0]) + 1
                               ? absl::StrCat(numbers[0], "-", numbers[1])
                               : absl::StrCat(numbers[0], ",", numbers[1]);
  EXPECT_EQ(Read(Path("workers")), absl::StrCat(workers, both, "\n", both, "\n"));
  EXPECT_EQ(Read(Path("servers-0")), absl::StrCat(both, "\n", both, "\n"));
  EXPECT_EQ(Read(Path("scripts")), absl::StrCat(both, "\n", both, "\n"));
}

TEST_F(RubatoCommandTest, ExportAndPlotTellWhatIsWrong) {
  const Result exported = Rubato({"export", "nothing", "out.safetensors"});
  EXPECT_EQ(exported.code, 2);
  EXPECT_EQ(exported.err,
            "error: found no nothing, expected a run's folder or a safetensors file\n");
  const Result plotted = Rubato({"plot", "nothing"});
  EXPECT_EQ(plotted.code, 2);
  EXPECT_EQ(plotted.err, "error: found no nothing, expected a run's folder\n");
  // Of several, those that have not begun are left out.
  fs::create_directories(Path("runs/refused/logs"));
  const std::string refused = "found no metrics.jsonl in runs/refused, expected a run's folder\n";
  EXPECT_EQ(Rubato({"plot", "runs/refused"}).err, "error: " + refused);
  EXPECT_FALSE(fs::exists(Path("plot.html")));
  fs::create_directories(Path("runs/one"));
  Write("runs/one/metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":2.0}\n");
  fs::create_directory_symlink("one", Path("runs/latest"));
  const Result several = Rubato({"plot", "runs/refused", "runs/one", "runs/latest"});
  EXPECT_EQ(several.code, 0) << several.err;
  EXPECT_EQ(several.err, "left out: " + refused);
  EXPECT_EQ(Rubato({"plot", "runs/one"}).code, 0) << "the page is drawn again";
  const std::string metrics = Read(Path("runs/one/metrics.jsonl"));
  const Result other = Rubato({"plot", "runs/one", "--output", "runs/one/metrics.jsonl"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, StartsWith("error: runs/one/metrics.jsonl exists and is no page of "));
  EXPECT_EQ(Read(Path("runs/one/metrics.jsonl")), metrics);
  Write("model.yaml", absl::StrCat(kJob, "loss: cross_entropy\n"));
  const Result init =
      Rubato({"train", "model.yaml", "--set", "model.init_from=nothing.safetensors", "--dry-run"});
  EXPECT_EQ(init.code, 2);
  EXPECT_THAT(init.err, AllOf(StartsWith("error: model.init_from: "),
                              HasSubstr("nothing.safetensors: No such file")));
}

TEST_F(RubatoCommandTest, RunFolderIsTheGivenOneAndNeverOverwritten) {
  EXPECT_EQ(Rubato({"train", "job.yaml", "--run-dir", "mine"}).code, 0);
  EXPECT_TRUE(fs::exists(Path("mine/job.yaml")));
  EXPECT_FALSE(fs::exists(Path("runs")));
  const Result again = Rubato({"train", "job.yaml", "--run-dir", "mine"});
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(again.err,
            "error: run folder mine is not empty; an existing run is never overwritten\n");
}

TEST_F(RubatoCommandTest, FirstServersFailureIsShownAtOnceAndNoOtherStarts) {
  SetScripts("echo 'error: cannot listen on 127.0.0.1:1: Address already in use' >&2; exit 1", "");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              EndsWith("error: server 0: cannot listen on 127.0.0.1:1: Address already in use\n"
                       "log: run/logs/server-0.log\n"));
  EXPECT_EQ(Calls().size(), 1u);
}

TEST_F(RubatoCommandTest, FirstFailureEndsAllAndGivesCodeAndReason) {
  SetScripts(absl::StrCat(kGoodServer, "exec $fake announce alive pause"),
             "echo 'error: two lines' >&2; echo 'error: of reason' >&2; exit 2");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  AwaitAllDead();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(": two lines\nerror: worker "));
  EXPECT_THAT(result.err, HasSubstr("log: run/logs/worker-"));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(RubatoCommandTest, EndBeforeItsTimeIsAnError) {
  SetScripts("", "");
  const Result early = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(early.code, 1);
  EXPECT_THAT(early.err, HasSubstr("error: server 0 has ended before it listened"));

  SetScripts(absl::StrCat(kGoodServer, "rm -f $run/summary.json\n", kAwaitWorkers), kGoodWorker);
  const Result unfinished = Rubato({"train", "job.yaml", "--run-dir", "run2"});
  EXPECT_EQ(unfinished.code, 1);
  EXPECT_THAT(
      unfinished.err,
      HasSubstr("error: server 0 has ended without a summary: cannot open run2/summary.json"));
}

TEST_F(RubatoCommandTest, ACoordinatorOfItsOwnIsNamed) {
  const std::vector<std::string> train = {"train", "job.yaml", "--set",
                                          "cluster.dedicated_coordinator=true", "--run-dir"};
  const auto run = [&](const std::string& folder) {
    std::vector<std::string> arguments = train;
    arguments.push_back(folder);
    return Rubato(arguments).err;
  };
  SetScripts("", "");
  EXPECT_THAT(run("run"), HasSubstr("error: coordinator has ended before it listened; see "
                                    "run/logs/coordinator-0.log"));

  const std::string server =
      absl::StrReplaceAll(absl::StrCat(kGoodServer, "rm -f $run/summary.json\n", kAwaitWorkers),
                          {{"$shard = 0", "$shard = coordinator"}});
  SetScripts(server, kGoodWorker);
  EXPECT_THAT(
      run("run2"),
      HasSubstr("error: coordinator has ended without a summary: cannot open run2/summary.json"));
}

TEST_F(RubatoCommandTest, AWorkerThatDiesIsStartedAgain) {
  SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers),
             absl::StrCat("if mkdir died 2> /dev/null; then kill -9 $$; fi\n", kGoodWorker));
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr(" ended: killed by signal 9 (SIGKILL); started again (1 of 3)\n"));
  EXPECT_EQ(Calls().size(), 5u);
}

TEST_F(RubatoCommandTest, WhatAScriptLogsIsPassedOnToItsLastWord) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  Write("job.yaml", kScriptJob);
  Write("script.sh", R"(
echo '{"level": "warning", "message": "low"}'
echo '{"role": "worker", "level": "info"}'
printf 'the last word'
echo done > gate
)");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("\n{\"level\": \"warning\", \"message\": \"low\"}\n"
                                    "{\"role\": \"worker\", \"level\": \"info\"}\n"));
  EXPECT_THAT(result.err, HasSubstr("\nthe last word\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("warning: ")));
}

TEST_F(RubatoCommandTest, OfManyWarningsSomeAreRepeatedAndTheRestPointedTo) {
  SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers),
             absl::StrCat("for i in $(seq 60); do\n"
                          "  echo \"2026-11-22T00:00:00.000Z worker 4 warning: is odd why=$i\"\n"
                          "done\n",
                          kGoodWorker));
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: worker 4: is odd why=50\n"),
                                HasSubstr("warning: more warnings are in run/logs\n"),
                                Not(HasSubstr("why=51"))));
}

TEST_F(RubatoCommandTest, AWorkerIsCalledByTheRankThatItHas) {
  SetScripts(absl::StrCat(kGoodServer, kAwaitWorkers),
             absl::StrCat("if mkdir died 2> /dev/null; then\n"
                          "  echo '2026-11-22T00:00:00.000Z worker 4 takes part view=3'\n"
                          "  echo '2026-11-22T00:00:00.000Z worker 4 warning: is odd why=x'\n"
                          "  kill -9 $$\nfi\n",
                          kGoodWorker));
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: worker 4: is odd why=x\n"));
  EXPECT_THAT(result.err, testing::ContainsRegex(
                              "worker 4 \\(run/logs/worker-[01].log\\) ended: killed by signal 9"));
}

TEST_F(RubatoCommandTest, WhatTheFirstScriptPrintsIsPassedOn) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  Write("job.yaml", kScriptJob);
  Write("script.sh", R"(
echo '2026-11-22T00:00:00.000Z worker 0 takes part view=3'
printf 'epoch of %s\tloss 0.5\r\n \033[31mred\033[0m\n\n' $RUBATO_RANK
printf '\r10%%|#\r20%%|##\r100%%|###\n'
echo '{"loss": 0.25}'
echo 'stopped: server 0 has ended'
if [ $RUBATO_RANK = 0 ]; then yes many | head -n 100000; fi
echo done > gate
)");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("\nepoch of 0    loss 0.5\n \\x1b[31mred\\x1b[0m\n100%|###\n"
                                    "{\"loss\": 0.25}\nmany\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("of 1")));
  EXPECT_THAT(result.err, Not(HasSubstr("takes part")));
  EXPECT_THAT(result.err, Not(HasSubstr("stopped: ")));
  EXPECT_THAT(result.err, testing::ContainsRegex(
                              "\nworker 0 printed [0-9]+ lines more: run/logs/worker-0.log\n"));
  EXPECT_LT(result.err.size(), 200000u);
  EXPECT_THAT(result.out, Not(HasSubstr("loss 0.5")));
}

// A log is emptied behind 16 MiB, which is more than is read of it in one go.
TEST_F(RubatoCommandTest, OfWhatAScriptPrintsFasterThanItIsReadNothingIsLost) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  Write("job.yaml", kScriptJob);
  Write("script.sh", R"(
if [ $RUBATO_RANK = 0 ]; then
  yes many | head -n 4000000
  echo '2026-11-22T00:00:00.000Z worker 0 warning: is odd why=x'
  while ! test -e run/logs/worker-0.log.1; do sleep 0.05; done
fi
echo done > gate
)");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  int64_t lines = 0;
  for (const absl::string_view line : absl::StrSplit(result.err, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t more = line == "many" ? 1 : 0;
    if (absl::StartsWith(line, "worker 0 printed ")) {
      ASSERT_TRUE(absl::SimpleAtoi(words[3], &more)) << line;
    }
    lines += more;
  }
  EXPECT_EQ(lines, 4000000);
  EXPECT_THAT(result.err, HasSubstr("warning: worker 0: is odd why=x\n"));
}

TEST_F(RubatoCommandTest, AScriptThatPrintsWithoutEndHoldsNothingUp) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, "rm -f $run/summary.json\necho $$ > server\n",
                          "exec $fake on-term 143 announce alive pause"),
             "");
  Write("job.yaml", kScriptJob);
  // Until the server is gone; and announced when there is much to read.
  Write("script.sh",
        absl::StrCat("yes '' | head -n 5000000\n", fs::absolute("tests/fake_process").string(),
                     " announce alive pause &\n",
                     "while ! test -s server; do sleep 0.01; done\nread server < server\n",
                     "while kill -0 $server; do yes '' | head -n 500000; done\n"));
  const pid_t pid = Start({"train", "job.yaml", "--run-dir", "run", "--set", "cluster.workers=1"});
  AwaitAnnounced(2);
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Result result = Await(pid);
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, HasSubstr("interrupted: ending all processes"));
}

// Of the traceback of one that is ended with the others it is not the cause.
TEST_F(RubatoCommandTest, WhatAScriptPrintsWhenItIsEndedIsInItsLogAlone) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, "rm -f $run/summary.json\n",
                          "exec $fake on-term 143 announce alive pause"),
             "");
  Write("job.yaml", kScriptJob);
  Write("script.sh",
        absl::StrCat("trap 'echo afterwards; exit 1' TERM\necho before\n",
                     fs::absolute("tests/fake_process").string(), " announce alive pause\n"));
  const pid_t pid = Start({"train", "job.yaml", "--run-dir", "run", "--set", "cluster.workers=1"});
  AwaitAnnounced(2);
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Result result = Await(pid);
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, AllOf(HasSubstr("before\n"), Not(HasSubstr("afterwards"))));
  EXPECT_THAT(Read(Path("run/logs/worker-0.log")), EndsWith("afterwards\n"));
}

TEST_F(RubatoCommandTest, WhatAScriptPrintsIsJsonWhereTheLogIs) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  Write("job.yaml", R"(version: 1
name: tiny
cluster: {workers: 2, address: "127.0.0.1:0"}
script: [/bin/sh, -c, "echo epoch 1; echo done > gate"]
train: {batch_size: 10, until: {epochs: 1}}
log: {format: json}
)");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr(R"("level":"info","message":"worker 0: epoch 1","fields":{}})"));
  for (const absl::string_view line : absl::StrSplit(result.err, '\n', absl::SkipEmpty())) {
    EXPECT_THAT(std::string(line), StartsWith("{"));
  }
}

// After ten seconds it is said. To RUBATO_STAGE a script's rubato-worker writes that it knows of
// the end.
TEST_F(RubatoCommandTest, ScriptsThatOutliveTheJobAreWaitedForAndNamed) {
  SetScripts(absl::StrCat(kFirstView, kGoodServer, kAwaitWorkers), "");
  Write("job.yaml", kScriptJob);
  Write("script.sh", R"(
printf '\003' > $RUBATO_STAGE
echo done > gate
until [ $RUBATO_RANK = 0 ] || grep -q 'waiting for its scripts' err; do sleep 0.1; done
)");
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the job is done; waiting for its scripts to end: worker 1 "
                                    "(Ctrl-C ends them)\n"));
}

TEST_F(RubatoCommandTest, AWorkerThatAlwaysDiesEndsARunThatHasNotBegun) {
  SetScripts(absl::StrCat(kGoodServer, "exec $fake announce alive pause"), "kill -9 $$");
  const Result result =
      Rubato({"train", "job.yaml", "--run-dir", "run", "--set", "cluster.max_restarts=1"});
  AwaitAllDead();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("started again (1 of 1)\n"), HasSubstr("\nerror: worker "),
                    HasSubstr(": killed by signal 9 (")));
}

TEST_F(RubatoCommandTest, ARunThatHasBegunGoesOnWithoutAWorkerThatCannotWork) {
  SetScripts(
      absl::StrCat("if [ $shard = 0 ]; then echo '{\"mode\":\"sync\"}' > $run/views.jsonl; fi\n",
                   kGoodServer, "if [ $shard = 0 ]; then read a <&3; fi\n"),
      absl::StrCat("if mkdir died 2> /dev/null; then echo 'error: no such data' >&2; exit 2; fi\n",
                   "until grep -q 'not started again' err; do :; done\n", kGoodWorker));
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" ended: no such data; not started again, which would not "
                                    "help; log: run/logs/worker-"));
  EXPECT_EQ(Calls().size(), 4u);
}

TEST_F(RubatoCommandTest, AWorkerThatLeavesIsNotStartedAgain) {
  SetScripts(absl::StrCat(kGoodServer, "if [ $shard = 0 ]; then read a <&3; fi\n"),
             absl::StrCat("if mkdir died 2> /dev/null; then exit 143; fi\n",
                          "until grep -q 'has left' err; do :; done\n", kGoodWorker));
  const Result result = Rubato({"train", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Calls().size(), 4u);
}

TEST_F(RubatoCommandTest, QuestionsToARunThatIsOverOrNotThereAreAnswered) {
  EXPECT_EQ(Rubato({"train", "job.yaml", "--run-dir", "run"}).code, 0);
  const Result over = Rubato({"status", "run"});
  EXPECT_EQ(over.code, 1);
  EXPECT_EQ(over.err, "error: the run run is over\n");
  fs::remove(Path("run/summary.json"));
  Write("run/address", "127.0.0.1:1\n");
  const Result killed = Rubato({"switch", "--mode", "async", "run"});
  EXPECT_EQ(killed.code, 1);
  EXPECT_EQ(killed.err,
            "error: nobody answers at 127.0.0.1:1: the run run is over, or was killed\n");
  const Listener listener;
  Write("run/address", listener.address());
  const Result frozen = Rubato({"status", "run"});
  EXPECT_EQ(frozen.code, 1);
  EXPECT_THAT(frozen.err, EndsWith(" has not answered within 900ms: it is frozen, or cannot be "
                                   "reached from here\n"));
  const Result nonsense = Rubato({"status", "--address", "here"});
  EXPECT_EQ(nonsense.code, 2);
  EXPECT_THAT(nonsense.err, StartsWith("error: --address: found \"here\", expected HOST:PORT"));
  const Result nowhere = Rubato({"status"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_EQ(nowhere.err,
            absl::StrCat("error: found no run below ", fs::canonical(Path(".")).string(),
                         ": go to the folder where `rubato train` was started, or name the run's "
                         "folder\n"));
  const Result empty = Rubato({"switch", "--mode", "", "run"});
  EXPECT_EQ(empty.code, 2);
  EXPECT_EQ(empty.err, "error: --mode: found nothing, expected sync, async or bounded\n");
  const Result unknown = Rubato({"switch", "--mode", "fast", "run"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err, "error: --mode: found fast, expected sync, async or bounded\n");
}

TEST_F(RubatoCommandTest, WithoutARunTheNewestThatRunsIsMeant) {
  const Listener listener;
  const std::string there = absl::StrCat("error: the coordinator at ", listener.address(),
                                         " has not answered within 900ms: it is frozen, or cannot "
                                         "be reached from here\n");
  for (const char* run : {"over", "killed", "begins", "first"}) {
    fs::create_directories(Path(absl::StrCat("runs/", run)));
  }
  Write("runs/over/address", "127.0.0.1:1\n");
  Write("runs/over/summary.json", "{}");
  fs::create_symlink("over", Path("runs/latest"));
  EXPECT_EQ(Rubato({"status"}).err,
            "error: the run runs/over is over; a run with --run-dir has to be named\n");
  Write("runs/first/address", listener.address());
  Write("runs/killed/address", "127.0.0.1:1\n");  // newer
  EXPECT_EQ(Rubato({"status"}).err, there);
  // Who names a run means that one.
  EXPECT_EQ(Rubato({"status", "runs/latest"}).err, "error: the run runs/latest is over\n");
  fs::remove(Path("runs/over/summary.json"));
  EXPECT_EQ(Rubato({"status"}).err, there);
  fs::remove(Path("runs/over/address"));
  EXPECT_EQ(Rubato({"status"}).err, there);
  Write("runs/first/summary.json", "{}");
  EXPECT_THAT(Rubato({"status"}).err,
              StartsWith("error: the run runs/over has no address (yet?): "));
  EXPECT_EQ(Rubato({"status"}).code, 2);
}

// Whichever has the time to wait for its end, as status has not.
TEST_F(RubatoCommandTest, ARunThatWasFrozenAndIsKilledMeanwhileIsStillTheOneThatIsMeant) {
  const Listener frozen, older;
  for (const char* run : {"over", "frozen", "older"}) {
    fs::create_directories(Path(absl::StrCat("runs/", run)));
  }
  Write("runs/over/summary.json", "{}");
  fs::create_symlink("over", Path("runs/latest"));
  Write("runs/older/address", older.address());
  Write("runs/frozen/address", frozen.address());
  fs::last_write_time(Path("runs/older/address"),
                      fs::last_write_time(Path("runs/frozen/address")) - std::chrono::hours(1));
  std::thread end([&frozen] { frozen.EndAfterSilence(absl::Seconds(1)); });
  const Result result = Rubato({"switch", "--mode", "async"});
  end.join();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              StartsWith(absl::StrCat("error: the coordinator at ", frozen.address(),
                                      ": the server closes the connection as it begins")));
}

TEST_F(RubatoCommandTest, ATrainThatFailsAtItsStartIsNotTheNewestRun) {
  SetScripts(absl::StrCat(kGoodServer, "rm $run/summary.json; exit 2\n"), kGoodWorker);
  EXPECT_EQ(Rubato({"train", "job.yaml"}).code, 2);
  EXPECT_TRUE(fs::is_directory(Path("runs")));
  EXPECT_FALSE(fs::is_symlink(Path("runs/latest")));
}

TEST_F(RubatoCommandTest, SignalsEndAllAndGiveTheirCode) {
  // Shard 0 ends, and the others do not heed it.
  SetScripts(
      absl::StrCat(kGoodServer,
                   "rm -f $run/summary.json\n"  // it does not come to its end
                   "if [ $shard = 0 ]; then exec $fake on-term 143 announce alive pause; fi\n"
                   "exec $fake ignore-term announce alive pause"),
      "exec $fake announce alive pause");
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t pid = Start({"train", "job.yaml", "--run-dir", absl::StrCat("run", number)});
    AwaitAnnounced(4);
    ASSERT_EQ(kill(pid, number), 0);
    const Result result = Await(pid);
    AwaitAllDead();
    EXPECT_EQ(result.code, 128 + number);
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("files: run", number, "\n")));
  }
}

TEST_F(RubatoCommandTest, NothingIsLeftWhenItIsKilled) {
  SetScripts(absl::StrCat(kGoodServer, "exec $fake ignore-term announce alive pause"),
             "exec $fake ignore-term announce alive pause");
  const pid_t pid = Start({"train", "job.yaml", "--run-dir", "run"});
  AwaitAnnounced(4);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(Await(pid).code, -SIGKILL);
  AwaitAllDead();
}

TEST_F(RubatoCommandTest, MissingProgramsAreNamed) {
  fs::remove(Path("bin/rubato-worker"));
  const Result result = Rubato({"train", "job.yaml"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("error: found no program rubato-worker; looked for "));
  EXPECT_FALSE(fs::exists(Path("runs")));
}

TEST_F(RubatoCommandTest, InspectTellsWhatIsWrongWithAFile) {
  EXPECT_EQ(Rubato({"inspect", "nothing"}).code, 2);
  Write("broken.safetensors", "nonsense");
  const Result result = Rubato({"inspect", "broken.safetensors"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr("broken.safetensors")));
}

}  // namespace
}  // namespace rubato
