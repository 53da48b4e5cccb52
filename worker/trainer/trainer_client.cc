#include "worker/trainer/trainer_client.h"

#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/trainer/https_post.h"

namespace rubato {
namespace {

constexpr int kPatience = 5;  // seconds of a request

}  // namespace

std::optional<TrainerServer> FindTrainerServer(
    const std::function<const char*(const char* name)>& get_variable) {
  const auto find = [&](const char* name) {
    const char* const value = get_variable(name);
    return std::string(value != nullptr ? value : "");
  };
  TrainerServer server{find("KUBEFLOW_TRAINER_SERVER_URL"), find("KUBEFLOW_TRAINER_SERVER_CA_CERT"),
                       find("KUBEFLOW_TRAINER_SERVER_TOKEN")};
  if (server.url.empty()) return std::nullopt;
  return server;
}

TrainerClient::TrainerClient(const TrainerServer& server, const Log& log)
    : server_(server), log_(log), thread_([this] { Run(); }) {}

TrainerClient::~TrainerClient() {
  {
    MonotonicLock lock(&mutex_);
    is_ended_ = true;
  }
  thread_.join();
}

void TrainerClient::Report(const TrainingFigures& figures) {
  MonotonicLock lock(&mutex_);
  reports_.OnFigures(figures, MonotonicNow());
}

void TrainerClient::Finish() {
  MonotonicLock lock(&mutex_);
  reports_.OnDone();
  const auto is_said = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !is_busy_ && reports_.due() == absl::InfiniteFuture();
  };
  // A name may be looked up for longer than anything else takes.
  mutex_.AwaitFor(absl::Condition(&is_said), 2 * ProgressReports::kInterval);
}

void TrainerClient::Run() {
  bool has_complained = false;
  MonotonicLock lock(&mutex_);
  while (!is_ended_) {
    const std::optional<std::string> body = reports_.Next(MonotonicNow(), absl::Now());
    if (!body.has_value()) {
      // Until it is due; what is new meanwhile changes what will be said, and not when.
      const auto is_due_earlier = [this, due = reports_.due()]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                      mutex_) { return is_ended_ || reports_.due() < due; };
      mutex_.AwaitUntil(absl::Condition(&is_due_earlier), reports_.due());
      continue;
    }
    is_busy_ = true;
    mutex_.Unlock();
    const absl::Status status = Post(*body);
    if (!status.ok() && !has_complained) {
      has_complained = true;
      log_.Warning("cannot tell the trainer how far the training is; this is said once",
                   {{"reason", status.message()}});
    }
    mutex_.Lock();
    is_busy_ = false;
  }
}

absl::Status TrainerClient::Post(const std::string& body) const {
  std::ifstream file(server_.token_file);
  const std::string token(std::istreambuf_iterator<char>(file), {});
  if (absl::StripAsciiWhitespace(token).empty()) {
    return absl::UnavailableError(
        absl::StrCat(server_.token_file, ": found nothing, expected the token of this pod"));
  }
  return HttpsPost(server_.url, server_.ca_file, std::string(absl::StripAsciiWhitespace(token)),
                   body, kPatience);
}

}  // namespace rubato
