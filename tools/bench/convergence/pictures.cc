#include "tools/bench/convergence/pictures.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMilliseconds = 60'000;

// Runs it silently until it ends; kills one that takes too long.
void Run(std::vector<std::string> command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int nothing = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(nothing, fd);
    execv(words[0], words.data());
    _exit(127);
  }
  if (pid < 0) return;
  pollfd ended = {static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
  if (poll(&ended, 1, kPatienceMilliseconds) <= 0) kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ended.fd);
}

}  // namespace

std::string FindBrowser(absl::string_view path) {
  for (const absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const std::string file = absl::StrCat(folder, "/", name);
      if (access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file)) return file;
    }
  }
  return "";
}

std::string FileAddress(absl::string_view file) {
  std::string address = "file://";
  for (const char c : file) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("/-_.~", c)) {
      address.push_back(c);
    } else {
      absl::StrAppendFormat(&address, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return address;
}

void TakePictures(const std::string& browser, const std::string& folder,
                  const std::map<std::string, int>& heights) {
  std::error_code error;
  const std::string place = fs::absolute(folder, error).string();
  std::string profile = (fs::temp_directory_path(error) / "rubato-pictures-XXXXXX").string();
  if (error || mkdtemp(profile.data()) == nullptr) return;
  for (const auto& [name, height] : heights) {
    std::vector<std::string> command = {browser,
                                        "--headless",
                                        "--disable-gpu",
                                        "--disable-dev-shm-usage",
                                        "--hide-scrollbars",
                                        "--run-all-compositor-stages-before-draw",
                                        absl::StrCat("--window-size=900,", height),
                                        "--virtual-time-budget=5000",
                                        "--user-data-dir=" + profile,
                                        absl::StrCat("--screenshot=", place, "/", name, ".png")};
    fs::remove(absl::StrCat(place, "/", name, ".png"), error);
    // Its sandbox is not for root; the page is our own and loads nothing.
    if (geteuid() == 0) command.push_back("--no-sandbox");
    command.push_back(absl::StrCat(FileAddress(place), "/report.html#only=", name));
    Run(std::move(command));
  }
  fs::remove_all(profile, error);
}

}  // namespace rubato
