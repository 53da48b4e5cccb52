// The same for tests that use protocol buffers.
#include "tools/bazel/precompiled_messages.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
