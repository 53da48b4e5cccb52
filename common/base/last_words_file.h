// Files that `rubato train` gives to its processes: where last words go if standard error does not
// take them, and who knows that the job is done.
#ifndef RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
#define RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_

namespace rubato {

// Names the file. `rubato train` sets it for the processes whose logs it keeps: the disk that they
// are on may be full.
inline constexpr char kLastWordsVariable[] = "RUBATO_LAST_WORDS";

// Names a file of which a byte is written when the process knows that the job is done: it then has
// as long as it takes for what is left to do.
inline constexpr char kKnowsEndVariable[] = "RUBATO_KNOWS_END";

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
