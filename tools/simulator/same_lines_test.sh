#!/bin/bash
# A file has these lines, in any order, and no others:
#
#     same_lines_test.sh FILE LINE...
set -euo pipefail

diff <(sort "$1") <(printf '%s\n' "${@:2}" | sort)
