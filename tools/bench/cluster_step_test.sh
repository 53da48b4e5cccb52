#!/bin/bash
# Every model by name can be measured through servers, and the object says what it promises.
set -eu
rubato=$1
check() {
  "$rubato" bench step --servers 1 --json --steps 4 --batch 2 "$@" | python3 -c '
import json, math, sys
step = json.load(sys.stdin)
assert step["workers"] == 2 and step["servers"] == 1 and step["batch"] == 2, step
samples = 2 * step["accumulate"] * 2
assert math.isclose(step["samples_per_second"] * step["milliseconds"], 1e3 * samples), step
assert 0 <= step["communication_hidden"] <= 1 and step["waiting_milliseconds"] >= 0, step
assert step["gflops"] > 0 and step["server_threads"] in (1, 2), step
assert step["device"] == "cpu" and step["flops_share_of_peak"] > 0, step
assert math.isclose(step["gflops"] / step["peak_gflops"], step["flops_share_of_peak"]), step
'
}
for model in mlp cnn lenet resnet20 resnet18 '{preset: char_gpt, blocks: 1, channels: 32, heads: 2}'; do
  check --workers 2 --model "$model"
done
check --workers 2 --model mlp --mode async
check --workers 2 --model mlp --server-threads 2

refused() {
  local code=0
  "$rubato" bench step "$@" 2>"$TEST_TMPDIR/refused" || code=$?
  [ "$code" = 2 ] && grep -q "expected" "$TEST_TMPDIR/refused"
}
refused --steps 4
refused --steps 1 --servers 1
refused --workers 1 --shape 1,5,5
refused --workers 1 --server-threads 0
rm -f "$TEST_TMPDIR/refused"
