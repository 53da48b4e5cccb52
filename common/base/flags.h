// The flags of a program, declared once: parsing, errors and help text follow from the
// declarations.
//
//   Flags flags("rubato-server", "Serves one shard of a job.", {"rubato-server --config job.yaml
//   --shard 0"}); flags.Add("config", &config, "FILE", "the job", Flags::kRequired);
//   flags.Add("shard", &shard, "K", "which shard this is");
//   if (std::optional<int> code = flags.Handle(argc, argv)) return *code;
//
// Accepted: --name=value, --name value, --boolean, --boolean=false, repeated flags where the target
// is a list; hyphens and underscores are equal in names; `--` ends the flags. --help (-h) and
// --version are built in.
#ifndef RUBATO_COMMON_BASE_FLAGS_H_
#define RUBATO_COMMON_BASE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

class Flags {
 public:
  enum Need { kOptional, kRequired };
  // What the command line asks for: to go on, or only to print.
  enum class Request { kRun, kHelp, kVersion };
  // Where a value is stored. Its value when the flag is declared is the default that the help
  // shows.
  using Target = std::variant<std::string*, bool*, int*, int64_t*, std::vector<std::string>*>;

  // `program` opens the usage line: "rubato-server", "rubato train". Examples are whole command
  // lines.
  Flags(std::string program, std::string description, std::vector<std::string> examples = {});

  // `value_name` stands for the value in the help ("FILE"); unused for bool. Targets must outlive
  // Parse.
  void Add(absl::string_view name, Target target, absl::string_view value_name,
           absl::string_view help, Need need = kOptional);
  // Positional arguments fill their targets in the order of declaration; optional ones last.
  void AddPositional(std::string* target, absl::string_view value_name, absl::string_view help,
                     Need need = kRequired);
  // The last positional argument, which takes any number of values; at least one if it is required.
  void AddPositional(std::vector<std::string>* target, absl::string_view value_name,
                     absl::string_view help, Need need = kRequired);

  // Fills the targets. `arguments` are without the program's name. InvalidArgument, naming the flag
  // and the nearest known one, for an unknown flag, a missing or malformed value, a missing
  // required flag, a surplus argument. With kHelp and kVersion, what follows is not looked at and
  // nothing is required.
  absl::StatusOr<Request> Parse(const std::vector<std::string>& arguments) const;

  // Usage, description, flags with their defaults, examples. Ends in a newline.
  std::string Help() const;

  // Parses, then does what main would do with the result: prints the help or version (returns 0) or
  // the error (returns 2). Returns nullopt if the program is to run. argv[0] is skipped.
  std::optional<int> Handle(int argc, char** argv) const;
  std::optional<int> Handle(const std::vector<std::string>& arguments) const;

 private:
  struct Flag {
    std::string name;  // with hyphens
    Target target;
    std::string value_name;
    std::string help;
    Need need;
    std::string default_text;  // empty: none worth showing
  };
  struct Positional {
    std::variant<std::string*, std::vector<std::string>*> target;
    std::string value_name;
    std::string help;
    Need need;
  };

  absl::StatusOr<const Flag*> Find(absl::string_view name) const;
  absl::Status StorePositionals(const std::vector<std::string>& words) const;
  absl::Status Error(absl::string_view message) const;
  std::string Usage() const;

  const std::string program_;
  const std::string description_;
  const std::vector<std::string> examples_;
  std::vector<Flag> flags_;
  std::vector<Positional> positionals_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_FLAGS_H_
