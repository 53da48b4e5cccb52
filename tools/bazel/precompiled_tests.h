// The same for tests.
#include "tools/bazel/precompiled.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
