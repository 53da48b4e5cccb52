// The command line of Rubato: one tool with verbs.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/base/process_exit.h"
#include "common/base/version.h"
#include "common/wire/channel.h"
#include "proto/cluster.pb.h"
#include "tools/command/binaries.h"
#include "tools/command/certificates.h"
#include "tools/command/command.h"
#include "tools/command/evaluate.h"
#include "tools/command/export.h"
#include "tools/command/inspect.h"
#include "tools/command/status.h"
#include "tools/command/token.h"
#include "tools/command/train.h"
#include "tools/plot/plot.h"

namespace rubato {
namespace {

struct Invocation {
  std::string program;  // as it was called
  std::string verb;
  std::vector<std::string> arguments;  // after the verb
  SignalWatcher& signals;
};

// A verb is a row in kVerbs. It returns the exit code and understands --help.
struct Verb {
  const char* name;
  const char* summary;
  int (*run)(const Invocation&);
};

int Train(const Invocation& invocation) {
  return TrainMain(invocation.program, invocation.arguments, invocation.signals);
}

int Inspect(const Invocation& invocation) {
  std::string path;
  Flags flags("rubato inspect",
              "Prints the parameters of a run, or of a safetensors file: names, shapes, "
              "statistics, and a digest of\n"
              "the bits that does not depend on how they were sharded.",
              {"rubato inspect runs/latest", "rubato inspect runs/latest/parameters.safetensors"});
  flags.AddPositional(&path, "RUN|FILE", "a run folder or a safetensors file");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  return PrintResult(InspectText(path));
}

int Evaluate(const Invocation& invocation) {
  std::string path, split = "test";
  bool json = false;
  Flags flags("rubato eval", "Tests the parameters of a run, or of a checkpoint, in this process.",
              {"rubato eval runs/latest", "rubato eval runs/latest --split train --json",
               "rubato eval runs/latest/checkpoints/step-00000500"});
  flags.AddPositional(&path, "RUN|CHECKPOINT", "a run folder or a checkpoint in it");
  flags.Add("split", &split, "SPLIT", "train, validation or test");
  flags.Add("json", &json, "", "print one JSON object");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  return PrintResult(EvaluateText(path, split, json));
}

// The job that is meant, and what to do with the answer.
int Ask(const Invocation& invocation, proto::CommandRequest request, absl::Duration timeout,
        Flags flags, const std::string* mode = nullptr, const bool* json = nullptr,
        const std::string* reason = nullptr) {
  std::string run, address;
  flags.AddPositional(&run, "RUN", "a run folder; default: the newest under runs/ that is training",
                      Flags::kOptional);
  flags.Add("address", &address, "HOST:PORT",
            "the coordinator of the job, instead of a run folder");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  SilenceGrpc();
  if (mode != nullptr) {
    absl::StatusOr<proto::CommandRequest> wanted = SwitchRequest(*mode);
    if (!wanted.ok()) return PrintResult(wanted.status());
    request = *std::move(wanted);
  }
  if (reason != nullptr) request.set_reason(*reason);
  const proto::CommandRequest::Kind request_kind = request.kind();
  const absl::StatusOr<proto::CommandReply> reply =
      SendCommand(run, address, std::move(request), timeout);
  if (!reply.ok()) return PrintResult(reply.status());
  if (request_kind != proto::CommandRequest::KIND_STATUS) {
    const bool as_json = json != nullptr && *json;
    return PrintResult((as_json ? AnswerJson(reply->text()) : reply->text()) + "\n");
  }
  if (!reply->has_status()) {
    return PrintResult(absl::Status(absl::StatusCode::kInternal, "the coordinator sent no status"));
  }
  return PrintResult(*json ? StatusJson(reply->status()) : StatusText(reply->status()));
}

proto::CommandRequest Request(proto::CommandRequest::Kind kind) {
  proto::CommandRequest request;
  request.set_kind(kind);
  return request;
}

int Token(const Invocation& invocation) {
  std::string role, from;
  Flags flags(
      "rubato token",
      "Prints a new secret for a job, which its servers get as RUBATO_KEY_FILE or RUBATO_KEY. "
      "With --role, prints the key of that role, made from a secret: all that a worker or an "
      "operator needs.",
      {"(umask 077; rubato token > secret)",
       "(umask 077; rubato token --role worker --from secret > worker-key)"});
  flags.Add("role", &role, "ROLE", "whose key: worker, operator or observer");
  flags.Add("from", &from, "FILE", "the file with the secret, for --role");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  return PrintResult(TokenText(role, from));
}

int Certificates(const Invocation& invocation) {
  std::string out, from;
  int days = 365;
  Flags flags("rubato certificates",
              "Makes an authority for a job and a certificate for each role, in folders that only "
              "their owner may read.\nA process gets the folder of its role as RUBATO_CERTIFICATES "
              "in its environment.",
              {"rubato certificates --out certificates",
               "rubato certificates --from certificates/authority --out certificates"});
  flags.Add("out", &out, "DIR", "where to make authority, server, worker, operator and observer",
            Flags::kRequired);
  flags.Add("days", &days, "N", "how long the certificates are valid");
  flags.Add(
      "from", &from, "AUTHORITY",
      "the folder of an authority, to make new certificates from it in place of those in --out");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  return PrintResult(CertificatesText(out, days, from));
}

int Status(const Invocation& invocation) {
  bool json = false;
  Flags flags(
      "rubato status",
      "Shows the state of a running job: its mode, its workers and how far they are, and who "
      "waits for whom.",
      {"rubato status", "rubato status runs/latest --json",
       "rubato status --address 10.0.0.7:29500"});
  flags.Add("json", &json, "", "print one JSON object");
  return Ask(invocation, Request(proto::CommandRequest::KIND_STATUS), kAnswerTimeout,
             std::move(flags), nullptr, &json);
}

int Switch(const Invocation& invocation) {
  std::string mode;
  Flags flags(
      "rubato switch",
      "Changes the mode of a running job, until the next point of its consistency.schedule. "
      "Needs the run's token: the file in the run's folder, or RUBATO_TOKEN in the "
      "environment.",
      {"rubato switch --mode async", "rubato switch --mode bounded,staleness=3 runs/latest",
       "RUBATO_TOKEN=... rubato switch --mode sync --address 10.0.0.7:29500"});
  bool json = false;
  flags.Add("mode", &mode, "MODE", "sync, async or bounded,staleness=N", Flags::kRequired);
  flags.Add("json", &json, "", "print one JSON object");
  return Ask(invocation, {}, kChangeTimeout, std::move(flags), &mode, &json);
}

int Checkpoint(const Invocation& invocation) {
  return Ask(
      invocation, Request(proto::CommandRequest::KIND_CHECKPOINT), kCheckpointTimeout,
      Flags("rubato checkpoint",
            "Writes a checkpoint of a running job now, and prints its path when it is written. The "
            "number in its name\nis that of the step; in async and bounded, of the contributions "
            "given out.",
            {"rubato checkpoint", "rubato checkpoint runs/latest"}));
}

int Stop(const Invocation& invocation) {
  std::string reason;
  Flags flags("rubato stop",
              "Ends a running job after the step, or in async and bounded the contributions, that "
              "it is computing,\nwith a checkpoint.",
              {"rubato stop", "rubato stop --reason \"the rate is too high\"",
               "rubato stop --address 10.0.0.7:29500"});
  flags.Add("reason", &reason, "TEXT",
            "why, for the summary, `rubato status` and the log: at most 200 bytes");
  return Ask(invocation, Request(proto::CommandRequest::KIND_STOP), kChangeTimeout,
             std::move(flags), nullptr, nullptr, &reason);
}

int Export(const Invocation& invocation) {
  std::string from, to;
  Flags flags(
      "rubato export",
      "Writes the parameters of a run into one new safetensors file, which PyTorch, NumPy "
      "and Hugging Face's\nreaders open, and model.init_from.",
      {"rubato export runs/latest model.safetensors",
       "rubato export --optimizer runs/latest/checkpoints/step-00002532 state.safetensors"});
  bool optimizer = false;
  flags.Add("optimizer", &optimizer, "", "the optimizer's state of a checkpoint instead");
  flags.AddPositional(&from, "RUN|FILE", "a run folder, a checkpoint or a safetensors file");
  flags.AddPositional(&to, "OUT.safetensors", "the new file; none is overwritten");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  const absl::StatusOr<std::string> text = ExportParameters(from, to, optimizer);
  return PrintResult(text.ok() ? absl::StatusOr<std::string>(*text + "\n") : text);
}

int Plot(const Invocation& invocation) { return PlotMain(invocation.arguments); }

// The verbs that training does not need have a program of their own, which becomes this process:
// so neither this one nor a first build has the simulator and the benches in it.
int InTools(const Invocation& invocation) {
  const absl::StatusOr<std::string> program = FindBinary("rubato-tools");
  if (!program.ok()) {
    return PrintFailure(absl::NotFoundError(
        absl::StrCat("rubato ", invocation.verb,
                     " is in rubato-tools, which is not built: run tools/install (or "
                     "bazel build //tools:rubato-tools)")));
  }
  std::vector<std::string> words = {*program, invocation.verb};
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program->c_str(), argv.data());
  return PrintFailure(
      absl::UnavailableError(absl::StrCat("cannot start ", *program, ": ", std::strerror(errno))));
}

int Help(const Invocation& invocation);
int Version(const Invocation& invocation);

constexpr Verb kVerbs[] = {
    {"train", "train a job with servers and workers on this machine", Train},
    {"inspect", "print names, shapes and digest of a run's parameters", Inspect},
    {"eval", "test the parameters of a run or a checkpoint", Evaluate},
    {"status", "show the state of a running job, and who waits for whom", Status},
    {"token", "make the secret of a job, or a role's key from it", Token},
    {"certificates", "make certificates for the roles of a job", Certificates},
    {"switch", "change the mode of a running job", Switch},
    {"checkpoint", "write a checkpoint of a running job", Checkpoint},
    {"stop", "end a running job, with a checkpoint", Stop},
    {"export", "write a run's parameters into one safetensors file", Export},
    {"bench", "measure a step of training, kernels or the wire, or compare modes", InTools},
    {"plot", "draw the curves of runs into one page for a browser", Plot},
    {"render", "print the manifests with which Kubernetes runs a job", InTools},
    {"simulate", "run a job in virtual time, on a cluster that is not there", InTools},
    {"replay", "run the servers of a recorded run again, to the same bits", InTools},
    {"help", "print this, or the help of a verb", Help},
    {"version", "print the version", Version},
};

std::string HelpText() {
  std::string text =
      "usage: rubato VERB ...\n"
      "\n"
      "Rubato is a parameter server: it trains a model across server and worker processes.\n"
      "\n"
      "Verbs:\n";
  for (const Verb& verb : kVerbs)
    absl::StrAppend(&text, absl::StrFormat("  %-14s%s\n", verb.name, verb.summary));
  return absl::StrCat(text,
                      "\n"
                      "`rubato VERB --help` tells more about a verb.\n"
                      "\n"
                      "Examples:\n"
                      "  rubato train configs/quickstart.yaml\n"
                      "  rubato inspect runs/latest\n");
}

const Verb* FindVerb(const std::string& name) {
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return &verb;
  }
  return nullptr;
}

int UnknownVerb(const std::string& name) {
  std::vector<std::string> known;
  for (const Verb& verb : kVerbs) known.emplace_back(verb.name);
  const std::string nearest = NearestWord(name, known);
  return PrintFailure(absl::InvalidArgumentError(absl::StrCat(
      "unknown verb ", name, nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
      " (see rubato --help)")));
}

int Help(const Invocation& invocation) {
  std::vector<std::string> words;
  Flags flags("rubato help", "Prints what the verbs are, or the help of one.",
              {"rubato help train", "rubato help bench wire"});
  flags.AddPositional(&words, "VERB", "the verb, and what it measures or renders",
                      Flags::kOptional);
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  if (words.empty()) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  const Verb* verb = FindVerb(words[0]);
  if (verb == nullptr) return UnknownVerb(words[0]);
  std::vector<std::string> rest = {"--help"};
  if (words.size() > 1 && !absl::StartsWith(words[1], "-")) rest.insert(rest.begin(), words[1]);
  return verb->run({invocation.program, verb->name, rest, invocation.signals});
}

int Version(const Invocation& invocation) {
  Flags flags("rubato version", "Prints the version.");
  if (const std::optional<int> code = flags.Handle(invocation.arguments)) return *code;
  std::printf("rubato %s\n", kVersion);
  return 0;
}

int Main(int argc, char** argv) {
  SignalWatcher signals;
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  const std::string first = words.empty() ? "" : words[0];
  // What stands before a verb are flags of the tool itself: --help, --version, none else.
  if (first.empty() || absl::StartsWith(first, "-")) {
    std::string verb;
    Flags flags("rubato", "");
    flags.AddPositional(&verb, "VERB", "what to do");
    const absl::StatusOr<Flags::Request> request = flags.Parse(words);
    if (request.ok() && *request == Flags::Request::kHelp)
      return Help({argv[0], "help", {}, signals});
    if (request.ok() && *request == Flags::Request::kVersion)
      return Version({argv[0], "version", {}, signals});
    return PrintFailure(request.ok()
                            ? absl::InvalidArgumentError("missing verb (see rubato --help)")
                            : request.status());
  }
  const Verb* verb = FindVerb(first);
  if (verb == nullptr) return UnknownVerb(first);
  return verb->run(
      {argv[0], first, std::vector<std::string>(words.begin() + 1, words.end()), signals});
}

}  // namespace
}  // namespace rubato

int main(int argc, char** argv) { return rubato::Main(argc, argv); }
