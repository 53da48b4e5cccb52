// What a reader found: where each key stands, and what is wrong with it. Mistakes are collected, so
// that a user sees all of them at once.
#ifndef RUBATO_COMMON_JOB_REPORT_H_
#define RUBATO_COMMON_JOB_REPORT_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rubato {

// A place in a file, or an override on the command line or in the environment.
struct Place {
  std::string source;  // a file's path, "--set KEY" or a variable's name
  int line = 0;        // from 1; 0 for an override
  int column = 0;
  std::string key = {};  // that `source` itself names, so that a message need not again

  // "job.yaml:3:5", "--set train.until".
  std::string ToString() const;
};

// Keys are full paths: "optimizer.momentum", "model.layers[2].linear". The empty key is the whole
// document.
class Report {
 public:
  // Notes that `key` is given at `place`.
  void Note(const std::string& key, const Place& place) { places_[key] = place; }
  // Whether `key` is given.
  bool Given(const std::string& key) const { return places_.count(key) > 0; }
  // `key`, or else the first key in it, that is given; empty if there is none.
  std::string FirstGiven(absl::string_view key) const;
  // Of `key`, or of the innermost key around it that is given.
  Place PlaceOf(absl::string_view key) const;

  // Adds a mistake at `place`.
  void Add(const Place& place, const std::string& key, const std::string& what);
  // Adds a mistake about `key`, where it stands.
  void Add(const std::string& key, const std::string& what) { Add(PlaceOf(key), key, what); }
  // `key` was meant but misspelt: one mistake is enough.
  void Excuse(const std::string& key) { unsound_.insert(key); }
  // Whether nothing is wrong with `key`, in it or around it.
  bool Sound(absl::string_view key) const;

  // Drops all information about `key` and the keys in it, because another value replaces it.
  void Forget(absl::string_view key);

  // OK, or InvalidArgument with a line for each mistake in `key`, in the order of the file, those
  // of overrides last.
  absl::Status ToStatus(absl::string_view key = "") const;

 private:
  struct Mistake {
    Place place;
    std::string key;
    std::string what;
  };

  std::map<std::string, Place, std::less<>> places_;
  std::vector<Mistake> mistakes_;
  std::set<std::string> unsound_;  // keys of mistakes, and excused ones
};

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_REPORT_H_
