"""cc_library and cc_binary of which each source begins with the precompiled header (precompiled.h)."""

# A header that does not fit a source's options is an error, by -Werror: GCC would parse all of it anew.
_OPTIONS = select({
    "//tools/bazel:plain_headers": [],
    "//conditions:default": ["-Winvalid-pch", "-include", "$(BINDIR)/tools/bazel/precompiled.h"],
})

_DEPS = select({
    "//tools/bazel:plain_headers": [],
    "//conditions:default": ["//tools/bazel:precompiled"],
})

def cc_library(srcs = [], copts = [], deps = [], **more):
    """As native.cc_library."""
    if srcs:
        copts = _OPTIONS + copts
        deps = deps + _DEPS
    native.cc_library(srcs = srcs, copts = copts, deps = deps, **more)

def cc_binary(copts = [], deps = [], **more):
    """As native.cc_binary."""
    native.cc_binary(copts = _OPTIONS + copts, deps = deps + _DEPS, **more)
