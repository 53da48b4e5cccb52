// Where a process's last words go if standard error does not take them.
#ifndef RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
#define RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_

namespace rubato {

// Names the file. `rubato train` sets it for the processes whose logs it keeps: the disk that they
// are on may be full.
inline constexpr char kLastWordsVariable[] = "RUBATO_LAST_WORDS";

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
