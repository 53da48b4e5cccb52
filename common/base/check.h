// RUBATO_CHECK states an invariant of our own code. Input from a user or a peer is never checked
// with it, but with absl::Status. Shaped like Abseil's CHECK, which the packaged Abseil does not
// have yet.
#ifndef RUBATO_COMMON_BASE_CHECK_H_
#define RUBATO_COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define RUBATO_CHECK(condition)                                                              \
  do {                                                                                       \
    if (__builtin_expect(!(condition), 0)) {                                                 \
      std::fprintf(stderr, "error: internal: %s:%d: %s does not hold\n", __FILE__, __LINE__, \
                   #condition);                                                              \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#endif  // RUBATO_COMMON_BASE_CHECK_H_
