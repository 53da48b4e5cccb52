#include "server/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rubato {

using Json = nlohmann::ordered_json;

absl::StatusOr<MetricsFile> MetricsFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return MetricsFile(path, fd);
}

MetricsFile::MetricsFile(MetricsFile&& other)
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MetricsFile::Append(const MetricsLine& line) {
  const std::string text = ToJson(line) + "\n";
  const off_t end = lseek(fd_, 0, SEEK_END);
  const ssize_t written = write(fd_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0 && end >= 0 && ftruncate(fd_, end) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot repair ", path_));
  }
  return absl::ErrnoToStatus(error,
                             absl::StrCat("a line of metrics is lost: cannot write ", path_));
}

std::string ToJson(const MetricsLine& line) {
  Json json;
  json["kind"] = line.is_test ? "test" : "train";
  json["step"] = line.step;
  json["epoch"] = line.epoch;
  json["samples"] = line.samples;
  json["time"] = line.time;
  json["loss"] = line.loss;
  json["accuracy"] = line.accuracy;
  if (!line.is_test) {
    json["learning_rate"] = line.learning_rate;
    json["samples_per_second"] = line.samples_per_second;
    json["staleness"] = line.staleness;
  }
  return json.dump();  // which writes null for what is not finite
}

std::string ToJson(const Summary& summary, const std::string& digest) {
  Json json;
  json["test_accuracy"] = summary.test_accuracy;
  json["test_loss"] = summary.test_loss;
  json["samples_per_second"] = summary.samples_per_second;
  json["seconds"] = summary.seconds;
  json["steps"] = summary.steps;
  json["samples"] = summary.samples;
  json["duplicates"] = summary.duplicates;
  json["skipped"] = summary.skipped;
  json["digest"] = digest;
  Json blocks = Json::array();
  for (const proto::ShardReport::Block& block : summary.blocks) {
    blocks.push_back({{"block", block.block()},
                      {"updates", block.version()},
                      {"samples", block.samples()},
                      {"staleness_sum", block.staleness_sum()},
                      {"staleness_max", block.staleness_max()}});
  }
  json["blocks"] = std::move(blocks);
  return json.dump(2) + "\n";
}

}  // namespace rubato
