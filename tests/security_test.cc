// Who may talk to a job: real processes, and a stranger who tries.
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/monotonic.h"
#include "common/base/status_matchers.h"
#include "common/base/version.h"
#include "common/job/job.h"
#include "common/wire/certificates.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/hello.h"
#include "common/wire/stream_opening.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "tests/cluster.h"
#include "tests/raw_call.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SecurityTest : public ClusterTest {
 protected:
  using Metadata = std::map<std::string, std::string>;

  // `rubato train` in the folder "run", in the midst of its training.
  void StartRun(const std::string& steps) {
    set_ = {absl::StrCat("train.until={steps: ", steps, "}"), "metrics.every={steps: 10}"};
    fs::create_directory(Path("run"));
    train_ = &StartTrain("run", set_);
    ASSERT_TRUE(AwaitText(Path("run/metrics.jsonl"), "\n", *train_));
    address_ = std::string(absl::StripSuffix(ReadText(Path("run/address")), "\n"));
    metadata_ = {{kJobDigestKey, JobDigest(Job(set_))}, {kTermKey, "1"}};
  }
  JobKey KeyIn(const std::string& file) const {
    const auto key = ReadKeyFile(Path(file));
    RUBATO_EXPECT_OK(key);
    return *key;
  }
  // What shard 0 is shown with a call, by who holds the key.
  std::string Shown(const JobKey& key, const std::string& method) const {
    Caller caller(key);
    RUBATO_EXPECT_OK(
        SayHello(MakeChannel(address_, ConnectionOptions()), absl::Seconds(10), nullptr, &caller));
    return caller.Show(method);
  }
  grpc::StatusCode CodeOf(const std::string& method, const Metadata& metadata,
                          const std::string& message) const {
    return SendAll(address_, method, metadata, {message}).error_code();
  }
  proto::PeerMessage ShardOfTheJob() const {
    proto::PeerMessage message;
    proto::Registration* registration = message.mutable_registration();
    registration->set_version(kVersion);
    registration->set_job_digest(metadata_.at(kJobDigestKey));
    registration->set_shard(0);
    registration->set_address("127.0.0.1:1");
    return message;
  }
  std::string CommandOf(proto::CommandRequest::Kind kind) const {
    proto::CommandRequest request;
    request.set_kind(kind);
    return request.SerializeAsString();
  }
  void ExpectUndisturbedEnd() {
    const Process::Result result = train_->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    Train("undisturbed", set_);
    EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
  }

  Arguments set_;
  Process* train_ = nullptr;
  std::string address_;
  Metadata metadata_;
};

TEST_F(SecurityTest, AStrangerIsToldNothingAndChangesNothing) {
  StartRun("4000");
  const std::string stop = CommandOf(proto::CommandRequest::KIND_STOP);
  const std::string status = CommandOf(proto::CommandRequest::KIND_STATUS);
  const std::string shard = ShardOfTheJob().SerializeAsString();
  Metadata nonsense = metadata_;
  nonsense[kCallerKey] = std::string(145, 'x');
  for (const Metadata& metadata : {Metadata(), metadata_, nonsense}) {
    EXPECT_EQ(CodeOf(kDataMethod, metadata, ""), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(CodeOf(kJoinMethod, metadata, shard), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(CodeOf(kHeartbeatMethod, metadata, ""), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(CodeOf(kCommandMethod, metadata, stop), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(CodeOf(kCommandMethod, metadata, status), grpc::StatusCode::UNAUTHENTICATED);
  }
  // By another job's key it finds out that the server is not its own, and the server nothing.
  Caller other(*JobKey::DrawSecret().Of(Role::kWorker));
  EXPECT_THAT(
      SayHello(MakeChannel(address_, ConnectionOptions()), absl::Seconds(10), nullptr, &other),
      IsError(absl::StatusCode::kUnauthenticated, HasSubstr("does not hold")));
  ExpectUndisturbedEnd();
}

TEST_F(SecurityTest, AKeyOpensWhatItsRoleMayDo) {
  StartRun("4000");
  const JobKey worker = KeyIn("run/worker-key"), operators = KeyIn("run/token");
  EXPECT_EQ(worker.role(), Role::kWorker);
  EXPECT_EQ(operators.role(), Role::kOperator);
  const auto shows = [&](const JobKey& key, const std::string& method) {
    Metadata metadata = metadata_;
    metadata[kCallerKey] = Shown(key, method);
    return metadata;
  };
  const std::string stop = CommandOf(proto::CommandRequest::KIND_STOP);
  EXPECT_EQ(CodeOf(kCommandMethod, shows(worker, kCommandMethod), stop),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(kJoinMethod, shows(operators, kJoinMethod), ""),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(kDataMethod, shows(operators, kDataMethod), ""),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(kHeartbeatMethod, shows(operators, kHeartbeatMethod), ""),
            grpc::StatusCode::PERMISSION_DENIED);
  // What was shown for one method, or before.
  EXPECT_EQ(CodeOf(kJoinMethod, shows(worker, kDataMethod), ""), grpc::StatusCode::UNAUTHENTICATED);
  const Metadata once = shows(operators, kCommandMethod);
  const std::string status = CommandOf(proto::CommandRequest::KIND_STATUS);
  EXPECT_EQ(CodeOf(kCommandMethod, once, status), grpc::StatusCode::OK);
  EXPECT_EQ(CodeOf(kCommandMethod, once, status), grpc::StatusCode::UNAUTHENTICATED);
  // A worker takes part as no server.
  RawCall join(address_, kJoinMethod, shows(worker, kJoinMethod));
  EXPECT_TRUE(join.Write(ShardOfTheJob().SerializeAsString()));
  std::string bytes;
  ASSERT_TRUE(join.Read(&bytes));
  proto::CoordinatorMessage answer;
  ASSERT_TRUE(answer.ParseFromString(bytes));
  EXPECT_THAT(answer.stop().reason(), HasSubstr("takes part as no server"));
  ExpectUndisturbedEnd();
}

// Who asks is told what it lacks, or has and should not.
TEST_F(SecurityTest, WhoAsksWithAnotherPassIsToldWhatIsWanted) {
  StartRun("1000000");
  const auto ask = [&](const Arguments& environment) {
    Arguments all = {"/usr/bin/env", "-u", "RUBATO_KEY"};
    all.insert(all.end(), environment.begin(), environment.end());
    all.insert(all.end(), {fs::absolute("tools/rubato"), "status", "--address", address_});
    return Start(all).Wait();
  };
  Process::Result result = ask({});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err,
            absl::StrCat("error: the coordinator at ", address_,
                         " asks for a key, and this process has none: give it the run's token "
                         "(RUBATO_TOKEN) or the job's key (RUBATO_KEY or RUBATO_KEY_FILE)\n"));
  result = ask({"RUBATO_TOKEN=abc"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, absl::StrCat("error: RUBATO_TOKEN: not a key, and the coordinator at ",
                                     address_, " asks for one\n"));
  const auto in_a_year = [] { return DateText(absl::Now() + 365 * absl::Hours(24)); };
  const std::string least = in_a_year();
  result = Start({"tools/rubato", "certificates", "--out", "certificates"}).Wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AnyOf(HasSubstr("valid until " + least + ":\n"),
                                HasSubstr("valid until " + in_a_year() + ":\n")));
  result = ask({"RUBATO_CERTIFICATES=certificates/operator"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(": the server asks for no certificate, and this process has"));
}

// The address of a run that was killed is another's by now.
TEST_F(SecurityTest, ARunAtWhoseAddressAnotherAnswersIsNotTheNewestThatRuns) {
  for (const char* mode : {"token", "none"}) {
    const std::string run = absl::StrCat(mode, "/runs/new"), dead = absl::StrCat(mode, "/runs/old");
    fs::create_directories(Path(run));
    Process& train = StartTrain(run, {kForever, absl::StrCat("security.mode=", mode)});
    ASSERT_TRUE(AwaitTraining(run, train));
    const std::string address = AwaitAddress(run, train);
    fs::create_directory(Path(dead));
    Write(absl::StrCat(dead, "/address"), address);
    const auto ask = [&](const Arguments& arguments) {
      Arguments all = {"/usr/bin/env", "-C", mode, fs::absolute("tools/rubato")};
      all.insert(all.end(), arguments.begin(), arguments.end());
      return Start(all).Wait();
    };
    // Of a job with a key, and of an open one.
    for (const std::string& token :
         {JobKey::DrawSecret().Of(Role::kOperator)->ToText(), std::string(32, 'a')}) {
      Write(absl::StrCat(dead, "/token"), token);
      fs::remove(Path(absl::StrCat(mode, "/runs/latest")));
      fs::create_symlink("old", Path(absl::StrCat(mode, "/runs/latest")));
      const Process::Result named = ask({"checkpoint", "runs/old"});
      EXPECT_EQ(named.code, 2) << named.err;
      const Process::Result checkpoint = ask({"checkpoint"});
      EXPECT_EQ(checkpoint.code, 0) << checkpoint.err;
      EXPECT_EQ(ask({"status"}).code, 0);
    }
    const Process::Result stop = ask({"stop"});
    EXPECT_EQ(stop.code, 0) << stop.err;
    EXPECT_EQ(train.Wait().code, 0);
  }
}

TEST_F(SecurityTest, OnlyTheOwnerMayReadTheKeysAndNoLogHasThem) {
  StartRun("400");
  for (const char* file : {"run/token", "run/worker-key"}) {
    struct stat about = {};
    ASSERT_EQ(stat(Path(file).c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u) << file;
  }
  const std::string worker = KeyIn("run/worker-key").ToText();
  EXPECT_EQ(train_->Wait().code, 0);
  int files = 0;
  for (const auto& file : fs::recursive_directory_iterator(Path("run"))) {
    if (!file.is_regular_file() || file.path().filename() == "worker-key") continue;
    EXPECT_THAT(ReadText(file.path()), Not(HasSubstr(worker.substr(worker.find('-') + 1))))
        << file.path();
    ++files;
  }
  EXPECT_GT(files, 5);
}

// The launcher makes the run's certificates.
TEST_F(ClusterTest, ByMtlsAJobHasTheSameBitsAndStrangersNoWord) {
  const Arguments set = {"security=mtls", kForever};
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", set);
  ASSERT_TRUE(AwaitTraining("run", train));
  const std::string address = AwaitAddress("run", train);
  Process::Result status = Start({"tools/rubato", "status", "run"}).Wait();
  EXPECT_EQ(status.code, 0) << status.err;
  const auto ask = [&](const std::string& certificates) {
    return Start({"/usr/bin/env", "-u", "RUBATO_KEY", "RUBATO_CERTIFICATES=" + certificates,
                  fs::absolute("tools/rubato"), "stop", "--address", address})
        .Wait();
  };
  status = ask("");
  EXPECT_EQ(status.code, 1);
  const std::string closes =
      absl::StrCat("error: the coordinator at ", address,
                   ": the server closes the connection as it begins: it is ending, or wants a "
                   "certificate other than this process has (RUBATO_CERTIFICATES)\n");
  EXPECT_EQ(status.err, closes);
  EXPECT_EQ(Start({"/usr/bin/env", absl::StrCat("RUBATO_TOKEN=", kTestSecret),
                   fs::absolute("tools/rubato"), "status", "--address", address})
                .Wait()
                .err,
            closes);
  status = ask("run/certificates/worker");
  EXPECT_EQ(status.code, 2) << status.err;
  EXPECT_THAT(status.err, HasSubstr("needs the operator's key or certificate"));
  for (const char* secret : {"token", "worker-key"}) {
    EXPECT_FALSE(fs::exists(Path(absl::StrCat("run/", secret)))) << secret;
  }
  EXPECT_EQ(ask("run/certificates/operator").code, 0);
  EXPECT_EQ(train.Wait().code, 0) << train.err();
  Train("mtls", {"security=mtls", "cluster.servers=2", "cluster.workers=2"});
  Train("keys");
  EXPECT_EQ(Summary("mtls")["digest"], Summary("keys")["digest"]);
}

TEST_F(ClusterTest, ByMtlsWhoDiesComesBack) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {"security=mtls", "cluster.servers=2",
                                      "checkpoint.every={steps: 10}", "train.until={steps: 400}"});
  ASSERT_TRUE(AwaitTraining("run", train));
  ASSERT_TRUE(AwaitText(Path("run/logs/server-0.log"), " checkpoint ", train));
  const auto kill = [&train](absl::string_view which) {
    for (const RunningChild& child : ChildrenOf(train.pid())) {
      if (absl::StrContains(child.command, which)) child.process.Signal(SIGKILL);
    }
  };
  kill("--shard 1");
  ASSERT_TRUE(AwaitText(Path("run/logs/server-0.log"), "training goes on", train));
  kill("rubato-worker");
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  Train("undisturbed", {"train.until={steps: 400}"});
  EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
}

// By hand, with the keys in files that `rubato token` has made.
class KeysByHandTest : public ClusterTest {
 protected:
  // `rubato token` with these arguments, into a file.
  void Token(const std::string& file, const Arguments& arguments) {
    Arguments all = {"tools/rubato", "token"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Process::Result result = Start(all).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    Write(file, result.out);
    chmod(Path(file).c_str(), 0600);
  }
  Process& StartWith(const std::string& key_file, const Arguments& arguments) {
    Arguments all = {"/usr/bin/env", "-u", "RUBATO_KEY", "RUBATO_KEY_FILE=" + key_file};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Start(all);
  }
  Process& StartServerWith(const std::string& key_file) {
    fs::create_directory(Path("run"));
    return StartWith(key_file, {fs::absolute("server/rubato-server"), "--config", "job.yaml",
                                "--shard", "0", "--run-dir", "run", "--listen", "127.0.0.1:0"});
  }
  Arguments Worker(const std::string& address) const {
    return {fs::absolute("worker/rubato-worker"), "--config", "job.yaml", "--set",
            "cluster.address=" + address};
  }
};

TEST_F(KeysByHandTest, AJobTakesWhoHoldsItsKeysAndTellsTheOthersWhy) {
  Token("secret", {});
  Token("worker-key", {"--role", "worker", "--from", Path("secret")});
  Token("operator-key", {"--role", "operator", "--from", Path("secret")});
  Token("another", {});
  Process& server = StartServerWith("secret");
  const std::string address = AwaitAddress("run", server);
  const struct {
    const char* key_file;
    const char* says;
  } kRefused[] = {
      {"another", "the server does not hold this job's key"},
      {"operator-key", "this key is the operator's; the worker's, or the secret, is needed"},
      {"job.yaml", "RUBATO_KEY_FILE: job.yaml: others may read this key: chmod 600"},
      {"missing", "RUBATO_KEY_FILE: missing: No such file or directory"},
  };
  for (const auto& refused : kRefused) {
    const Process::Result result = StartWith(refused.key_file, Worker(address)).Wait();
    EXPECT_NE(result.code, 0) << refused.key_file;
    EXPECT_THAT(result.err, HasSubstr(refused.says)) << refused.key_file;
  }
  const Process::Result without = StartWith("", Worker(address)).Wait();
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("neither RUBATO_KEY_FILE nor RUBATO_KEY is set: a worker"));
  Arguments open = Worker(address);
  open.insert(open.end(), {"--set", "security.mode=none"});
  const Process::Result stranger = Start(open).Wait();
  EXPECT_EQ(stranger.code, 2);
  EXPECT_THAT(stranger.err, HasSubstr("the caller has shown no key: give this process the job's"));
  const Process::Result worker = StartWith("worker-key", Worker(address)).Wait();
  EXPECT_EQ(worker.code, 0) << worker.err;
  const Process::Result ended = server.Wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("asks nobody for a key")));
  Train("undisturbed");
  EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
}

TEST_F(KeysByHandTest, AServerNeedsTheSecretAndAsksNobodyOnlyIfToldTo) {
  Token("secret", {});
  Token("worker-key", {"--role", "worker", "--from", Path("secret")});
  const Process::Result result = StartServerWith("worker-key").Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("a server needs the job's secret; found the key of the role worker"));
  const Process::Result none =
      StartWith("", {fs::absolute("server/rubato-server"), "--config", "job.yaml", "--shard", "0"})
          .Wait();
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("neither RUBATO_KEY_FILE nor RUBATO_KEY is set: a server needs"));
  // One that asks nobody, and a worker with a key, who trusts no such server.
  Process& open = StartServer(0, {"security.mode=none"}, {"--run-dir", "run"});
  const std::string address = AwaitAddress("run", open);
  const Process::Result worker = StartWith("worker-key", Worker(address)).Wait();
  EXPECT_EQ(worker.code, 2);
  EXPECT_THAT(worker.err, HasSubstr("the server asks for no key, and this process has one"));
  EXPECT_EQ(StartWorker({"security.mode=none", "cluster.address=" + address}).Wait().code, 0);
  const Process::Result ended = open.Wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("asks nobody for a key (security.mode: none): whoever reaches"));
}

TEST_F(KeysByHandTest, TokenSaysWhatItNeeds) {
  for (const auto& [arguments, says] : std::vector<std::pair<Arguments, std::string>>{
           {{"--role", "worker"}, "--role and --from belong together"},
           {{"--from", "x"}, "--role and --from belong together"},
           {{"--role", "boss", "--from", "x"}, "--role: found boss, expected worker, operator"},
           {{"--role", "worker", "--from", "x"}, "x: No such file or directory"}}) {
    Arguments all = {"tools/rubato", "token"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Process::Result result = Start(all).Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(says));
  }
}

}  // namespace
}  // namespace rubato
