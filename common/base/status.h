// Short forms for passing errors up.
#ifndef RUBATO_COMMON_BASE_STATUS_H_
#define RUBATO_COMMON_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status from the enclosing function unless it is OK.
#define RUBATO_RETURN_IF_ERROR(expression)         \
  do {                                             \
    absl::Status rubato_status = (expression);     \
    if (!rubato_status.ok()) return rubato_status; \
  } while (false)

#define RUBATO_CONCAT_INNER(a, b) a##b
#define RUBATO_CONCAT(a, b) RUBATO_CONCAT_INNER(a, b)

// RUBATO_ASSIGN_OR_RETURN(auto x, MakeX()): x is the value, or the status is returned.
#define RUBATO_ASSIGN_OR_RETURN(declaration, expression) \
  RUBATO_ASSIGN_OR_RETURN_IMPL(RUBATO_CONCAT(rubato_or_, __LINE__), declaration, expression)
#define RUBATO_ASSIGN_OR_RETURN_IMPL(holder, declaration, expression) \
  auto holder = (expression);                                         \
  if (!holder.ok()) return std::move(holder).status();                \
  declaration = *std::move(holder)

#endif  // RUBATO_COMMON_BASE_STATUS_H_
