// What a process prints when it cannot get more memory or threads: one sentence, as for any other
// failure, instead of an abort.
#ifndef RUBATO_COMMON_BASE_LAST_WORDS_H_
#define RUBATO_COMMON_BASE_LAST_WORDS_H_

namespace rubato {

// Says so and ends the process with kExitFailure. Allocates nothing.
[[noreturn]] void EndOutOfMemory();

// Installs handlers that do the same when `new` fails, a thread cannot be started or an exception
// is not caught. Call it first in main.
void InstallLastWords();

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LAST_WORDS_H_
