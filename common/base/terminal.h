// What a file descriptor can show.
#ifndef RUBATO_COMMON_BASE_TERMINAL_H_
#define RUBATO_COMMON_BASE_TERMINAL_H_

namespace rubato {

// Whether `fd` is a terminal that can redraw a line.
bool IsTerminal(int fd);

// Whether text on `fd` may be coloured or bold: on a terminal that can redraw a line, unless the
// variable NO_COLOR is set and not empty (no-color.org).
bool UsesColor(int fd);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_TERMINAL_H_
