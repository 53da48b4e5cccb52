#include "common/files/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/hmac.h"
#include "common/base/status.h"
#include "common/files/atomic_file.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// "cannot create /x/y: Permission denied", with the code that decides the exit code.
absl::Status SystemError(int error, absl::string_view what, absl::string_view path) {
  const std::string message = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  switch (error) {
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::Status(absl::ErrnoToStatusCode(error), message);
  }
}

std::string FourHex() {
  uint16_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
  }
  return absl::StrFormat("%04x", bits);
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return SystemError(error.value(), "create the folder", path);
  return absl::OkStatus();
}

// A new one in a folder that exists. AlreadyExists if it is there.
absl::Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(absl::StrCat("run folder ", path, " is there already"));
  }
  return SystemError(errno, "create the folder", path);
}

// Whether LogFile has given that name, or it is of one that was begun anew.
bool IsLog(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".1");
  if (name == "simulation.log") return true;
  for (const absl::string_view role : {"coordinator-", "server-", "worker-"}) {
    absl::string_view rank = name;
    int number;
    if (absl::ConsumePrefix(&rank, role) && absl::ConsumeSuffix(&rank, ".log") &&
        absl::SimpleAtoi(rank, &number)) {
      return true;
    }
  }
  return false;
}

// Removes the logs of a run that never began (see Abandon), if `path` holds nothing else. A run
// that has just begun has an empty folder for them.
void RemoveOldLogs(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> logs;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != "logs") return;
    logs.push_back(it->path());  // behind what is in it
    for (fs::directory_iterator log(it->path(), error); !error && log != end;
         log.increment(error)) {
      if (!IsLog(log->path().filename().string())) return;
      logs.insert(logs.begin(), log->path());
    }
  }
  if (logs.size() < 2) return;
  for (const fs::path& log : logs) fs::remove(log, error);
}

// Takes `path` for a run: creates it, or finds it empty.
absl::Status Claim(const std::string& path, mode_t mode) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return absl::AlreadyExistsError(
          absl::StrCat("run folder ", path, " is a file; expected a new or empty folder"));
    }
    std::error_code error;
    RemoveOldLogs(path);
    const bool empty = fs::is_empty(path, error);
    if (error) return SystemError(error.value(), "read the run folder", path);
    if (!empty) {
      return absl::AlreadyExistsError(
          absl::StrCat("run folder ", path, " is not empty; an existing run is never overwritten"));
    }
    return absl::OkStatus();
  }
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);  // an error shows below
  return MakeFolder(path, mode);
}

// Points runs/latest to `target`. Best taken over by renaming: a reader always finds a link.
absl::Status PointLatestTo(const std::string& target) {
  const std::string temporary = absl::StrCat("runs/.latest-", target);
  if (symlink(target.c_str(), temporary.c_str()) != 0)
    return SystemError(errno, "create the link", temporary);
  if (rename(temporary.c_str(), "runs/latest") != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return SystemError(error, "replace the link", "runs/latest");
  }
  return absl::OkStatus();
}

}  // namespace

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

std::string RunTime(absl::Time time) {
  return absl::FormatTime("%E4Y%m%dT%H%M%SZ", time, absl::UTCTimeZone());
}

absl::StatusOr<RunFolder> RunFolder::Create(absl::string_view name, absl::string_view run_dir,
                                            absl::Time now, Readers readers) {
  constexpr mode_t kModes[] = {0700, 0770, 0777};
  const mode_t mode = kModes[static_cast<size_t>(readers)];
  if (!run_dir.empty()) {
    RunFolder folder{std::string(run_dir)};
    RUBATO_RETURN_IF_ERROR(Claim(folder.path(), mode));
    RUBATO_RETURN_IF_ERROR(MakeFolders(folder.path() + "/logs"));
    return folder;
  }
  RUBATO_RETURN_IF_ERROR(MakeFolders("runs"));
  const std::string time = RunTime(now);
  while (true) {
    const std::string leaf = absl::StrCat(name, "-", time, "-", FourHex());
    RunFolder folder("runs/" + leaf);
    const absl::Status made = MakeFolder(folder.path(), mode);
    if (absl::IsAlreadyExists(made)) continue;  // another run of this second: draw again
    RUBATO_RETURN_IF_ERROR(made);
    RUBATO_RETURN_IF_ERROR(MakeFolders(folder.path() + "/logs"));
    folder.leaf_ = leaf;
    return folder;
  }
}

void RunFolder::Abandon() const {
  RemoveUnfinished();
  std::error_code error;
  std::vector<fs::path> entries = {JobFile(),
                                   AddressFile(),
                                   TokenFile(),
                                   WorkerKeyFile(),
                                   CertificatesFolder(),
                                   StateFile(),
                                   TermFile(),
                                   MetricsFile(),
                                   ViewsFile(),
                                   RecordFolder(),
                                   InitialFile(),
                                   DataFile(),
                                   SecondFile(StateFile()),
                                   SecondFile(TermFile())};
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), "events.out.")) {
      entries.push_back(it->path());
    }
  }
  for (const fs::path& entry : entries) {
    if (kept_.count(entry.filename().string()) == 0) fs::remove_all(entry, error);
  }
  if (is_anothers_) return;
  rmdir((path_ + "/logs").c_str());  // where they are empty
  rmdir(path_.c_str());
}

void RunFolder::KeepWhatIsThere() {
  is_anothers_ = true;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    kept_.insert(it->path().filename().string());
  }
}

void RunFolder::RemoveUnfinished() const {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const std::string& file :
         {JobFile(), AddressFile(), TokenFile(), WorkerKeyFile(), StateFile(), TermFile(),
          InitialFile(), ParametersFile(), DataFile(), SummaryFile()}) {
      if (IsUnfinished(name, fs::path(file).filename().string())) unfinished.push_back(it->path());
    }
  }
  for (const fs::path& path : unfinished) fs::remove(path, error);
}

absl::Status RunFolder::BecomeLatest() const {
  return leaf_.empty() ? absl::OkStatus() : PointLatestTo(leaf_);
}

bool RunFolder::IsRemoved() const { return access(path_.c_str(), F_OK) != 0 && errno == ENOENT; }

std::string RunFolder::JobFile() const { return path_ + "/job.yaml"; }
std::string RunFolder::AddressFile() const { return path_ + "/address"; }
std::string RunFolder::TokenFile() const { return absl::StrCat(path_, "/token"); }
std::string RunFolder::WorkerKeyFile() const { return absl::StrCat(path_, "/worker-key"); }
std::string RunFolder::CertificatesFolder() const { return absl::StrCat(path_, "/certificates"); }
std::string RunFolder::InitialFile() const { return path_ + "/initial.safetensors"; }
std::string RunFolder::StateFile() const { return absl::StrCat(path_, "/state.json"); }
std::string RunFolder::TermFile() const { return absl::StrCat(path_, "/term.json"); }

std::string RunFolder::ViewsFile() const { return absl::StrCat(path_, "/views.jsonl"); }

std::string RunFolder::MetricsFile() const { return path_ + "/metrics.jsonl"; }
std::string RunFolder::ParametersFile() const { return path_ + "/parameters.safetensors"; }
std::string RunFolder::DataFile() const { return path_ + "/data.json"; }
std::string RunFolder::SummaryFile() const { return path_ + "/summary.json"; }
std::string RunFolder::CheckpointFolder() const { return path_ + "/checkpoints"; }
std::string RunFolder::RecordFolder() const { return path_ + "/record"; }
std::string RunFolder::LogFile(absl::string_view role, int rank) const {
  return absl::StrCat(path_, "/logs/", role, "-", rank, ".log");
}

std::optional<int64_t> FreeBytes(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0 || disk.f_blocks == 0) return std::nullopt;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view contents) {
  RUBATO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, 0600));
  RUBATO_RETURN_IF_ERROR(file.Append(contents));
  return file.Commit(Flush::kName);
}

absl::StatusOr<std::string> OpenToken(const std::string& path) {
  absl::StatusOr<std::string> token = ReadSmallFile(path);
  if (absl::IsNotFound(token.status())) {
    token = absl::BytesToHexString(RandomBytes(16));
    RUBATO_RETURN_IF_ERROR(WritePrivateFile(path, *token + "\n"));
    return token;
  }
  if (!token.ok()) return token.status();
  absl::StripAsciiWhitespace(&*token);
  if (token->empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return token;
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents, Flush flush) {
  RUBATO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RUBATO_RETURN_IF_ERROR(file.Append(contents));
  return file.Commit(flush);
}

namespace {

// Calls `read` with the file's bytes, piece by piece.
absl::Status ForEachPiece(const std::string& path,
                          absl::FunctionRef<void(absl::string_view piece)> read_piece) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "open", path);
  auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  char buffer[1 << 14];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(errno, "read", path);
    if (got == 0) return absl::OkStatus();
    read_piece(absl::string_view(buffer, static_cast<size_t>(got)));
  }
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::string contents;
  RUBATO_RETURN_IF_ERROR(ForEachPiece(
      path, [&](absl::string_view piece) { contents.append(piece.data(), piece.size()); }));
  return contents;
}

absl::Status ForEachLine(const std::string& path,
                         absl::FunctionRef<void(absl::string_view line)> read_line) {
  std::string begun;  // the line that the pieces before have begun
  RUBATO_RETURN_IF_ERROR(ForEachPiece(path, [&](absl::string_view piece) {
    for (size_t end; (end = piece.find('\n')) != piece.npos; piece.remove_prefix(end + 1)) {
      absl::StrAppend(&begun, piece.substr(0, end));
      read_line(begun);
      begun.clear();
    }
    absl::StrAppend(&begun, piece);
  }));
  if (!begun.empty()) read_line(begun);
  return absl::OkStatus();
}

absl::Status CheckAccess(const std::string& folder) {
  struct stat about;
  if (stat((folder + "/.").c_str(), &about) == 0) return absl::OkStatus();
  if (errno == ENOENT || errno == ENOTDIR) return absl::OkStatus();
  return SystemError(errno, "open", folder);
}

}  // namespace rubato
