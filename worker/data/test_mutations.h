// Small damage to a file, for tests of its reader.
#ifndef RUBATO_WORKER_DATA_TEST_MUTATIONS_H_
#define RUBATO_WORKER_DATA_TEST_MUTATIONS_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/source.h"

namespace rubato {

// `text` with one to four changes: a character replaced by any other or followed by one of
// `delimiters`, a few left out or repeated elsewhere.
inline std::string Mutate(std::string text, absl::string_view delimiters, RandomStream* random) {
  for (uint32_t i = 1 + random->Below(4); i > 0 && !text.empty(); --i) {
    const uint32_t at = random->Below(text.size());
    switch (random->Below(4)) {
      case 0:
        text[at] = static_cast<char>(random->Below(256));
        break;
      case 1:
        text.erase(at, 1 + random->Below(8));
        break;
      case 2:
        text.insert(at, 1, delimiters[random->Below(delimiters.size())]);
        break;
      default:
        text.insert(at, text.substr(random->Below(text.size()), random->Below(12)));
    }
  }
  return text;
}

// Reads a thousand mutations of `text` with `read`: each is a table of finite numbers and labels in
// their range, or an InvalidArgument that names `file`; and there are enough of both.
inline void ExpectSurvivesMutations(
    const std::string& text, absl::string_view delimiters, const std::string& file,
    const std::function<absl::StatusOr<Source>(const std::string& text, bool classification)>&
        read) {
  int count = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(Key(seed, "mutations"));
    const std::string mutated = Mutate(text, delimiters, &random);
    const absl::StatusOr<Source> source = read(mutated, random.Below(2) == 0);
    if (!source.ok()) {
      EXPECT_THAT(source, IsError(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(file)));
      continue;
    }
    ++count;
    const Examples& train = source->train;
    EXPECT_GT(train.size(), 0);
    EXPECT_EQ(static_cast<int64_t>(train.features.size()), train.size() * train.shape.channels);
    for (const float x : train.features) EXPECT_TRUE(std::isfinite(x));
    for (const int32_t label : train.labels) EXPECT_TRUE(0 <= label && label < train.classes);
  }
  EXPECT_GT(count, 30);
  EXPECT_LT(count, 970);
}

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_TEST_MUTATIONS_H_
