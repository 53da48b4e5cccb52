// RUBATO_CHECK states an invariant of our own code; a user's or a peer's input never meets it (that
// is what absl::Status is for). Shaped like Abseil's CHECK, which the packaged Abseil does not have
// yet.
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
