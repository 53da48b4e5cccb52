// What a process says that the system gives no more memory, or no more threads: one sentence, as of
// any other failure, instead of an abort.
#ifndef RUBATO_COMMON_BASE_LAST_WORDS_H_
#define RUBATO_COMMON_BASE_LAST_WORDS_H_

namespace rubato {

// Says so and ends the process with kExitFailure. Allocates nothing.
[[noreturn]] void EndOutOfMemory();

// From now on the same happens where `new` fails, and the like where a thread cannot be started or
// an exception is not caught. Call it first in main.
void InstallLastWords();

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LAST_WORDS_H_
