#!/bin/bash
# The bench runs to its end, checks its floats, and prints the object that it promises.
set -eu
rubato=$1
$rubato bench wire --quick --json --sizes 4096,524288 | python3 -c '
import json, sys
result = json.load(sys.stdin)
assert list(result) == ["yardsticks", "results", "latency_us", "server_memory"], result
assert set(result["yardsticks"]) == {"tcp_sink_gbps", "memcpy_gbps", "triad_gbps"}
assert set(result["yardsticks"]["tcp_sink_gbps"]) == {"4096", "524288"}
rows = {(r["path"], r["op"], r["codec"], r["bytes"]) for r in result["results"]}
assert rows == {(p, o, c, n) for p in ("tcp", "shm") for o in ("push", "pull", "pushpull")
                for c in ("float32", "bf16", "fp16", "int8", "topk") for n in (4096, 524288)
                if o != "pull" or c not in ("int8", "topk")}, rows
assert all(r["gbps"] > 0 and r["cpu_s_per_gb"] > 0 for r in result["results"])
assert {"tcp", "shm"} <= set(result["latency_us"])
assert set(result["server_memory"]) == {"tcp", "shm"}
assert all(r > 1 for r in result["server_memory"].values())
assert all(0 < l["p50"] <= l["p99"] for l in result["latency_us"].values())
'
# What it does meanwhile it says apart from its result.
$rubato bench wire --quick --json --sizes 524288 --path tcp,token,mtls --codec float32 \
    2>"$TEST_TMPDIR/progress" | python3 -c '
import json, sys
result = json.load(sys.stdin)
assert {r["path"] for r in result["results"]} == {"tcp", "token", "mtls"}, result
assert all(r["gbps"] > 0 for r in result["results"])
'
grep -q "^warming up" "$TEST_TMPDIR/progress"
grep -q "^round 1 of 1$" "$TEST_TMPDIR/progress"
grep -q "^the server's memory" "$TEST_TMPDIR/progress"
rm -f "$TEST_TMPDIR/progress"
$rubato bench wire --quick --json --sizes 4096,524288 --path tcp --codec float32,bf16 --workers 1,2,4 \
    --threads 2 | python3 -c '
import json, sys
result = json.load(sys.stdin)
rows = {(r["workers"], r["mode"], r["op"], r["codec"], r["bytes"]) for r in result["results"]}
assert rows == {(w, m, o, c, n) for w in (1, 2, 4) for m in ("async", "sync")
                for o in ("push", "pull", "pushpull") for c in ("float32", "bf16")
                for n in (4096, 524288)
                if m == "async" or (w > 1 and o == "pushpull")}, rows
for r in result["results"]:
    assert r["gbps"] > 0, r
    assert abs(r["worker_cpu_s_per_gb"] + r["server_cpu_s_per_gb"] - r["cpu_s_per_gb"]) < 1e-6, r
    assert r["switches_per_gb"] >= 0, r
'
refused() {
  local code=0
  "$rubato" bench wire "$@" 2>"$TEST_TMPDIR/refused" || code=$?
  [ "$code" = 2 ] && grep -q "expected" "$TEST_TMPDIR/refused"
}
refused --sizes 100
refused --sizes 300000
refused --rounds 0
refused --path carrier-pigeon
refused --codec zip
refused --workers 3
refused --threads 0
rm -f "$TEST_TMPDIR/refused"
