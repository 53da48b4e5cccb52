// The folder of one run and the names of what lies in it. The launcher creates it; server 0 writes
// into it.
//
//   runs/quickstart-20261121T075901Z-3fa9/
//     job.yaml                the resolved job: `rubato train` takes it to train the same again
//     metrics.jsonl           the figures of training (every metrics.every), evaluations and test,
//                             a JSON object a line
//     events.out.tfevents.*   the same for TensorBoard; not with metrics.tensorboard: false
//     summary.json            at the end: accuracy, speed, digest, updates and staleness of every
//                             block; why, if the job diverged
//     parameters.safetensors  at the end: the final parameters
//     data.json               what to use the parameters needs to know of the data: means, names,
//                             classes (proto/data_description.proto); not of a script's job
//     checkpoints/            what --resume goes on from: of the end, and of every checkpoint.every
//     views.jsonl             each change of mode or of workers: when, why, who; a JSON object a
//                             line
//     logs/                   what each process of `rubato train` printed, as server-0.log
//     record/                 with --record: all that entered the servers' cores, which `rubato
//                             replay` runs again to the same bits
//     address                 HOST:PORT of the coordinator, once it listens
//     token                   the operator's key, which commands show; only its owner can read it
//     worker-key              the key of a worker that joins, likewise
//     certificates/           those of each role, where the run has made its own (security: mtls)
//     state.json              what outlives the job's servers: how often they were lost, a mode or
//                             a stop that was asked for (proto/run_state.proto)
//     term.json               what that was when the servers began, or began again, and soon after
//                             the training did: for the case that the machine loses power: it is
//                             flushed, unlike state.json
//     .state.json             space for what state.json holds next, so that it is replaced on a
//                             full disk, too
//     .term.json              the same for term.json
//     initial.safetensors     the values that a script's model began with
#ifndef RUBATO_COMMON_FILES_RUN_FOLDER_H_
#define RUBATO_COMMON_FILES_RUN_FOLDER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/files/atomic_file.h"

namespace rubato {

// Who may read a run's folder, as far as the owner's umask allows. Numbered as
// proto::Security::Readers.
enum class Readers { kOwner, kGroup, kAll };

// When a run began, in UTC, as its folder's name has it: 20261121T075901Z.
std::string RunTime(absl::Time time);

class RunFolder {
 public:
  // Creates `run_dir`, or if that is empty runs/<name>-<UTC yyyymmddThhmmssZ>-<4 hex>/ under the
  // current directory, and logs/ in it. An existing run is never overwritten: AlreadyExists if
  // `run_dir` is a file, or holds more than the logs of a run that never began (see Abandon). A new
  // folder is readable by these `readers` alone. PermissionDenied, ResourceExhausted, … where the
  // system refuses.
  static absl::StatusOr<RunFolder> Create(absl::string_view name, absl::string_view run_dir,
                                          absl::Time now, Readers readers = Readers::kOwner);

  // For a run that ends before it trains: removes its files except the logs, which do not prevent
  // Create from using the folder again. Removes the folder too if there are no logs.
  void Abandon() const;
  // What is in the folder now is not this process's: Abandon keeps it, and the folder.
  void KeepWhatIsThere();
  // Removes what files of the folder were to become whose writers were killed.
  void RemoveUnfinished() const;

  // Points runs/latest to this run, once it has begun to train. Does nothing if Create was given
  // the folder.
  absl::Status BecomeLatest() const;

  // A folder that another process has created. Nothing is checked.
  explicit RunFolder(std::string path);

  const std::string& path() const { return path_; }
  // Whether somebody has removed the folder since it was there. Not if that cannot be told.
  bool IsRemoved() const;
  std::string JobFile() const;
  std::string AddressFile() const;
  std::string TokenFile() const;
  std::string WorkerKeyFile() const;
  // Of each role, where the run has its own (`rubato certificates`).
  std::string CertificatesFolder() const;
  std::string StateFile() const;
  // What it was when the term began, or soon after its first view held.
  std::string TermFile() const;
  // The values that a script's model began with.
  std::string InitialFile() const;
  std::string MetricsFile() const;
  std::string ViewsFile() const;
  std::string ParametersFile() const;
  std::string DataFile() const;
  std::string SummaryFile() const;
  std::string CheckpointFolder() const;
  std::string RecordFolder() const;
  std::string LogFile(absl::string_view role, int rank) const;

 private:
  std::string path_;
  std::string leaf_;  // in runs/, if Create has named it
  bool is_anothers_ = false;
  std::set<std::string> kept_;  // names
};

// Bytes that the owner may still write to the disk of the file or folder; nullopt if the system
// does not tell.
std::optional<int64_t> FreeBytes(const std::string& path);

// The whole of a small file at once, which only its owner may read. Errors as WriteFileAtomically.
absl::Status WritePrivateFile(const std::string& path, absl::string_view contents);

// The token of a run that is resumed, or a new random one in a file that only its owner may read.
absl::StatusOr<std::string> OpenToken(const std::string& path);

// The whole of a small file at once (see AtomicFile, which also says the codes of errors).
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents,
                                 Flush flush = Flush::kName);

// The whole file. NotFound, PermissionDenied, … naming the file.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// Calls `read_line` with each line of a file of any size, without the newline, which the last may
// lack. Errors as ReadSmallFile.
absl::Status ForEachLine(const std::string& path,
                         absl::FunctionRef<void(absl::string_view line)> read_line);

// PermissionDenied, or what else hinders, if one cannot tell which files are in `folder`: they seem
// to be missing then. OK if there is no such folder.
absl::Status CheckAccess(const std::string& folder);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_RUN_FOLDER_H_
