#!/bin/sh
# Writes docs/reference anew, in the clone from which `bazel run` was called.
exec /usr/bin/python3 -B tools/reference/make_reference.py . "$1" \
  "$BUILD_WORKSPACE_DIRECTORY/docs/reference"
