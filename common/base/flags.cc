#include "common/base/flags.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/base/status.h"
#include "common/base/version.h"

namespace rubato {
namespace {

constexpr char kHelpHelp[] = "print this and exit";
constexpr char kVersionHelp[] = "print the version and exit";

std::string Hyphened(absl::string_view name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }

// What the help shows as default; nothing for what is empty anyway, nor for a negative number,
// which stands for none.
struct DefaultText {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const bool* value) const { return *value ? "true" : ""; }
  std::string operator()(const int* value) const { return *value < 0 ? "" : absl::StrCat(*value); }
  std::string operator()(const int64_t* value) const {
    return *value < 0 ? "" : absl::StrCat(*value);
  }
  std::string operator()(const std::vector<std::string>* value) const {
    return absl::StrJoin(*value, " ");
  }
};

// Stores a value. Returns what was expected if it is malformed, else "".
struct Store {
  absl::string_view text;

  std::string operator()(std::string* target) const {
    *target = std::string(text);
    return "";
  }
  std::string operator()(bool* target) const {
    return absl::SimpleAtob(text, target) ? "" : "true or false";
  }
  std::string operator()(int* target) const {
    return absl::SimpleAtoi(text, target) ? "" : "an integer";
  }
  std::string operator()(int64_t* target) const {
    return absl::SimpleAtoi(text, target) ? "" : "an integer";
  }
  std::string operator()(std::vector<std::string>* target) const {
    target->emplace_back(text);
    return "";
  }
};

// Appends words to the last line of `text`, and begins a new one where it would be too long.
void AppendWrapped(const std::vector<std::string>& words, size_t indent, std::string* text) {
  constexpr size_t kWidth = 100;
  size_t column = text->size() - (text->rfind('\n') + 1);  // npos + 1 is 0
  bool fresh = column <= indent;                           // no word stands on the line
  for (const std::string& word : words) {
    if (!fresh && column + 1 + word.size() > kWidth) {
      absl::StrAppend(text, "\n", std::string(indent, ' '));
      column = indent;
      fresh = true;
    }
    absl::StrAppend(text, fresh ? "" : " ", word);
    column += (fresh ? 0 : 1) + word.size();
    fresh = false;
  }
  text->push_back('\n');
}

// Paragraphs, and lines of a list, which begin with a space.
void AppendDescription(absl::string_view description, std::string* text) {
  std::vector<std::string> words;
  for (const absl::string_view line : absl::StrSplit(description, '\n')) {
    if (absl::StartsWith(line, " ")) {
      if (!words.empty()) AppendWrapped(words, 0, text);
      words.clear();
      absl::StrAppend(text, line, "\n");
    } else {
      for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty()))
        words.emplace_back(word);
    }
  }
  if (!words.empty()) AppendWrapped(words, 0, text);
}

// One row of the help's table: left column, then help.
std::string Row(absl::string_view left, absl::string_view help) {
  constexpr size_t kColumn = 24;
  std::string row = absl::StrCat("  ", left);
  const size_t used = row.size();
  if (used < kColumn) {
    row.append(kColumn - used, ' ');
  } else {  // the help begins below it
    row.append("\n").append(kColumn, ' ');
  }
  AppendWrapped(absl::StrSplit(help, ' '), kColumn, &row);
  return row;
}

}  // namespace

Flags::Flags(std::string program, std::string description, std::vector<std::string> examples)
    : program_(std::move(program)),
      description_(std::move(description)),
      examples_(std::move(examples)) {}

void Flags::Add(absl::string_view name, Target target, absl::string_view value_name,
                absl::string_view help, Need need) {
  flags_.push_back({Hyphened(name), target, std::string(value_name), std::string(help), need,
                    std::visit(DefaultText(), target)});
}

void Flags::AddPositional(std::string* target, absl::string_view value_name, absl::string_view help,
                          Need need) {
  positionals_.push_back({target, std::string(value_name), std::string(help), need});
}

void Flags::AddPositional(std::vector<std::string>* target, absl::string_view value_name,
                          absl::string_view help, Need need) {
  positionals_.push_back({target, absl::StrCat(value_name, "..."), std::string(help), need});
}

absl::Status Flags::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(message, " (see ", program_, " --help)"));
}

absl::StatusOr<const Flags::Flag*> Flags::Find(absl::string_view name) const {
  const std::string wanted = Hyphened(name);
  std::vector<std::string> known = {"help", "version"};
  for (const Flag& flag : flags_) {
    if (flag.name == wanted) return &flag;
    known.push_back(flag.name);
  }
  const std::string nearest = NearestWord(wanted, known);
  return Error(
      absl::StrCat("unknown flag --", name,
                   nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?")));
}

absl::StatusOr<Flags::Request> Flags::Parse(const std::vector<std::string>& arguments) const {
  std::vector<bool> given(flags_.size(), false);
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view argument = arguments[i];
    if (argument == "--") {
      rest.insert(rest.end(), arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (argument == "-h" || argument == "--help") return Request::kHelp;
    if (argument == "--version") return Request::kVersion;
    if (argument.size() < 2 || argument[0] != '-') {
      rest.emplace_back(argument);
      continue;
    }
    if (argument[1] != '-') {
      return Error(absl::StrCat("unknown flag ", argument, "; flags begin with --"));
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(argument.substr(2), absl::MaxSplits('=', 1));
    RUBATO_ASSIGN_OR_RETURN(const Flag* flag, Find(parts.first));
    const bool has_value = absl::StrContains(argument, '=');
    absl::string_view value = parts.second;
    if (!has_value && std::holds_alternative<bool*>(flag->target)) {
      value = "true";
    } else if (!has_value) {
      // A value that begins with "--" must be given as --name=value: it is far more often a
      // forgotten value.
      if (i + 1 == arguments.size() || absl::StartsWith(arguments[i + 1], "--")) {
        return Error(absl::StrCat("flag --", flag->name, " needs a value: --", flag->name, " ",
                                  flag->value_name));
      }
      value = arguments[++i];
    }
    const std::string expected = std::visit(Store{value}, flag->target);
    if (!expected.empty()) {
      return Error(
          absl::StrCat("flag --", flag->name, ": found '", value, "', expected ", expected));
    }
    given[flag - flags_.data()] = true;
  }

  for (size_t i = 0; i < flags_.size(); ++i) {
    if (flags_[i].need == kRequired && !given[i]) {
      return Error(absl::StrCat("missing flag --", flags_[i].name, " ", flags_[i].value_name));
    }
  }
  RUBATO_RETURN_IF_ERROR(StorePositionals(rest));
  return Request::kRun;
}

absl::Status Flags::StorePositionals(const std::vector<std::string>& words) const {
  for (size_t i = 0; i < positionals_.size(); ++i) {
    if (i < words.size()) {
      if (auto* const* list = std::get_if<std::vector<std::string>*>(&positionals_[i].target)) {
        (*list)->assign(words.begin() + i, words.end());
        return absl::OkStatus();
      }
      *std::get<std::string*>(positionals_[i].target) = words[i];
    } else if (positionals_[i].need == kRequired) {
      return Error(absl::StrCat("missing argument ", positionals_[i].value_name));
    }
  }
  if (words.size() > positionals_.size()) {
    return Error(absl::StrCat("unexpected argument '", words[positionals_.size()], "'"));
  }
  return absl::OkStatus();
}

std::string Flags::Usage() const {
  std::vector<std::string> words;
  for (const Positional& positional : positionals_) {
    words.push_back(positional.need == kRequired ? positional.value_name
                                                 : absl::StrCat("[", positional.value_name, "]"));
  }
  for (const Flag& flag : flags_) {
    const bool repeated = std::holds_alternative<std::vector<std::string>*>(flag.target);
    const std::string text = absl::StrCat("--", flag.name, flag.value_name.empty() ? "" : " ",
                                          flag.value_name, repeated ? " ..." : "");
    words.push_back(flag.need == kRequired ? text : absl::StrCat("[", text, "]"));
  }
  std::string usage = absl::StrCat("usage: ", program_);
  AppendWrapped(words, 7, &usage);
  return usage;
}

std::string Flags::Help() const {
  std::string help = absl::StrCat(Usage(), "\n");
  AppendDescription(description_, &help);
  if (!positionals_.empty()) absl::StrAppend(&help, "\nArguments:\n");
  for (const Positional& positional : positionals_) {
    absl::StrAppend(&help, Row(positional.value_name, positional.help));
  }
  absl::StrAppend(&help, "\nFlags:\n");
  for (const Flag& flag : flags_) {
    absl::StrAppend(
        &help,
        Row(absl::StrCat("--", flag.name, flag.value_name.empty() ? "" : " ", flag.value_name),
            absl::StrCat(flag.help, flag.need == kRequired ? " (required)" : "",
                         flag.need == kRequired || flag.default_text.empty()
                             ? ""
                             : absl::StrCat(" (default ", flag.default_text, ")"))));
  }
  absl::StrAppend(&help, Row("--help, -h", kHelpHelp), Row("--version", kVersionHelp));
  if (!examples_.empty()) {
    absl::StrAppend(&help, "\nExamples:\n  ", absl::StrJoin(examples_, "\n  "), "\n");
  }
  return help;
}

std::optional<int> Flags::Handle(const std::vector<std::string>& arguments) const {
  const absl::StatusOr<Request> request = Parse(arguments);
  if (!request.ok()) return PrintFailure(request.status());
  switch (*request) {
    case Request::kRun:
      return std::nullopt;
    case Request::kHelp:
      std::fputs(Help().c_str(), stdout);
      return 0;
    case Request::kVersion:
      std::printf("%s %s\n", program_.c_str(), kVersion);
      return 0;
  }
  return kExitUsage;
}

std::optional<int> Flags::Handle(int argc, char** argv) const {
  return Handle(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

}  // namespace rubato
