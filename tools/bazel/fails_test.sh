#!/bin/bash
# A test of GoogleTest must fail, by what it asserts, when it is linked with code that has a bug:
#
#     fails_test.sh BINARY TEST
set -uo pipefail

# Its report is not this test's: whoever counts tests would count a failure.
output=$(env -u XML_OUTPUT_FILE "$1" --gtest_filter="$2" 2>&1)
status=$?
printf '%s\n' "$output" | tail -n 20
# 1: the test has failed. An abort, or a filter that finds nothing, would end otherwise.
if [[ $status != 1 || $output != *"[  FAILED  ] $2"* ]]; then
  echo "expected $2 to fail; the exit code is $status"
  exit 1
fi
