"""cc_library, cc_binary and cc_test of which each source begins with a precompiled header.

It is precompiled.h, or precompiled_messages.h where protocol buffers are among the deps. Headers may
bring them too: then `messages = True` spares parsing them. Tests have the same with GoogleTest, by
package.
"""

load("@compiler//:options.bzl", "PRECOMPILED_COPTS")

# Tests are compiled without optimisation (.bazelrc).
TEST_COPTS = [
    "-O0",
    "-U_FORTIFY_SOURCE",
]

# Their tests know of no protocol buffers, or few do.
_WITHOUT_MESSAGES = ["common/base", "common/frames", "common/wire", "tensor"]

# A header that does not fit a source's options is an error, by -Werror: GCC would parse all of it anew.
def _options(header):
    return select({
        "//tools/bazel:plain_headers": [],
        "//conditions:default": PRECOMPILED_COPTS + [
            "-Winvalid-pch",
            "-include",
            "$(BINDIR)/tools/bazel/%s.h" % header,
        ],
    })

def _deps(header):
    return select({
        "//tools/bazel:plain_headers": [],
        "//conditions:default": ["//tools/bazel:" + header],
    })

def _header(deps, messages):
    return "precompiled_messages" if messages or "//proto:" in str(deps) else "precompiled"

def cc_library(srcs = [], copts = [], deps = [], messages = False, **more):
    """As native.cc_library."""
    if srcs:
        header = _header(deps, messages)
        copts = _options(header) + copts
        deps = deps + _deps(header)
    native.cc_library(srcs = srcs, copts = copts, deps = deps, **more)

def cc_binary(copts = [], deps = [], messages = False, **more):
    """As native.cc_binary."""
    header = _header(deps, messages)
    native.cc_binary(copts = _options(header) + copts, deps = deps + _deps(header), **more)

def cc_test(copts = [], deps = [], **more):
    """As native.cc_test."""
    package = native.package_name()
    has_messages = not any([package.startswith(other) for other in _WITHOUT_MESSAGES])
    header = "precompiled_messages_tests" if has_messages else "precompiled_tests"
    native.cc_test(copts = _options(header) + copts, deps = deps + _deps(header), **more)
