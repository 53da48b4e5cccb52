#include "common/job/mixed_splits.h"

#include "absl/strings/str_cat.h"
#include "common/job/job.h"

namespace rubato {
namespace {

bool HasSameTest(const proto::Data& a, const proto::Data& b) {
  return a.test_fraction() == b.test_fraction() &&
         (a.seed() == b.seed() || a.format() == proto::Data::FORMAT_TEXT);  // the end of a text
}

std::string Sentence(const char* split, const char* keys) {
  return absl::StrCat("examples that the checkpoint was trained on may be in the ", split,
                      " split now: ", keys,
                      " are not as they were, so figures of that split may look too good");
}

}  // namespace

std::vector<std::string> MixedSplits(const proto::Job& before, const proto::Job& job) {
  std::vector<std::string> sentences;
  const proto::Data &old = before.data(), &now = job.data();
  const bool has_same_test = !now.has_test_fraction() || HasSameTest(old, now);
  if (!has_same_test) sentences.push_back(Sentence("test", "data.test_fraction or data.seed"));
  const bool has_same_validation = has_same_test && before.seed() == job.seed() &&
                                   old.validation().fraction() == now.validation().fraction();
  if (now.has_validation() && !has_same_validation) {
    sentences.push_back(
        Sentence("validation", "data.validation, seed, data.test_fraction or data.seed"));
  }
  return sentences;
}

std::vector<std::string> MixedSplits(const std::string& job_file, const proto::Job& job) {
  const absl::StatusOr<proto::Job> before = LoadJob(job_file, {}, /*environment=*/{});
  if (!before.ok()) return {};
  return MixedSplits(*before, job);
}

}  // namespace rubato
