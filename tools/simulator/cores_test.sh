#!/bin/bash
# What is simulated is what runs: by the build's own graph, the simulator and the processes depend on
# the same targets for what decides, and no other target compiles those sources.
#
#     cores_test.sh SERVER_CORES WORKER_CORES COMPILERS    # lists of labels, from genquery
set -euo pipefail

expect() { # FILE LABEL...
  local found expected
  found=$(sort "$1")
  expected=$(printf '%s\n' "${@:2}" | sort)
  if [[ $found != "$expected" ]]; then
    printf 'found:\n%s\nexpected:\n%s\n' "$found" "$expected"
    exit 1
  fi
}

policy=//common/consistency:policy
servers=(//server/coordinator:coordinator //server/shard:shard //server/shard:shard_protocol)
workers=(//worker/session:worker_loop //worker/session:worker_session //worker/session:pulled_blocks)
expect "$1" $policy "${servers[@]}"
expect "$2" $policy "${workers[@]}"
expect "$3" $policy "${servers[@]}" "${workers[@]}"
