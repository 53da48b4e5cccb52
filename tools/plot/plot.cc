#include "tools/plot/plot.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "tools/plot/curves.h"
#include "tools/plot/page.h"

namespace rubato {
namespace {

// A page is drawn again at any time; what was named by mistake may not be.
absl::Status CheckOutput(const std::string& output) {
  constexpr absl::string_view kBegin = "<!DOCTYPE html>\n<!-- Made by `rubato plot`";
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(output, error);
  if (found.type() == std::filesystem::file_type::not_found) return absl::OkStatus();
  if (std::filesystem::is_regular_file(found)) {
    std::string begin(kBegin.size(), '\0');
    std::ifstream file(output, std::ios::binary);
    const bool is_open = file.is_open();
    file.read(begin.data(), begin.size());
    if (is_open && (file.gcount() == 0 || begin == kBegin)) return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(output,
                   " exists and is no page of `rubato plot`; expected the name of a new "
                   "file, or of such a page, which is replaced"));
}

absl::Status Plot(const std::vector<std::string>& paths, const std::string& output) {
  RUBATO_RETURN_IF_ERROR(CheckOutput(output));
  std::vector<RunCurves> runs;
  std::map<std::string, int> named;
  std::vector<std::string> drawn;
  std::set<std::string> places;
  absl::Status left_out;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::string place = std::filesystem::canonical(path, error);
    if (!error && !places.insert(place).second) continue;  // runs/latest is a link to another
    absl::StatusOr<RunCurves> run = ReadCurves(path);
    // Of runs/* some may not have begun.
    if (!run.ok() && paths.size() > 1 && std::filesystem::is_directory(path, error)) {
      std::fprintf(stderr, "left out: %s\n", std::string(run.status().message()).c_str());
      left_out = run.status();
      continue;
    }
    RUBATO_RETURN_IF_ERROR(run.status());
    if (run->skipped > 0) {
      std::fprintf(stderr, "%s: %lld lines that are no metrics are left out\n", path.c_str(),
                   static_cast<long long>(run->skipped));
    }
    ++named[run->name];
    runs.push_back(*std::move(run));
    drawn.push_back(path);
  }
  if (runs.empty()) return left_out;
  // Folders of one name in different places are told apart as they were typed.
  for (size_t i = 0; i < runs.size(); ++i) {
    if (named[runs[i].name] > 1) runs[i].name = drawn[i];
  }
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(output, PlotPage(runs)));
  std::printf("%s\n", output.c_str());
  return absl::OkStatus();
}

}  // namespace

int PlotMain(const std::vector<std::string>& arguments) {
  std::vector<std::string> runs;
  std::string output = "plot.html";
  Flags flags("rubato plot",
              "Draws the curves of one or several runs, which may still be training, into one page "
              "for a browser.\nThe page needs no other file and no network.",
              {"rubato plot runs/latest", "rubato plot runs/* --output compare.html"});
  flags.AddPositional(&runs, "RUN", "run folders");
  flags.Add("output", &output, "FILE.html", "the page; an older page is replaced, no other file");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  const absl::Status status = Plot(runs, output);
  return status.ok() ? 0 : PrintFailure(status);
}

}  // namespace rubato
