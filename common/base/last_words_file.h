// Files that `rubato train` gives to its processes: where last words go if standard error does not
// take them, and how far a script has come.
#ifndef RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
#define RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_

namespace rubato {

// Names the file. `rubato train` sets it for the processes whose logs it keeps: the disk that they
// are on may be full.
inline constexpr char kLastWordsVariable[] = "RUBATO_LAST_WORDS";

// Names a file whose first byte, if there is one, is the ScriptStage of a script.
inline constexpr char kStageVariable[] = "RUBATO_STAGE";

enum class ScriptStage : unsigned char {
  kOutside,   // takes no part in the job: not yet, or its connection has broken
  kTraining,  // or is told that the job is done, and has not heard it
  kFinal,     // has the final parameters
  kKnowsEnd,  // that the job is done: it has as long as it takes for what is left to do
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LAST_WORDS_FILE_H_
