#!/bin/bash
# Where there is no GPU, gpu_check says so and ends with 77; its bundle is what it takes it to be.
set -euo pipefail
bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle"/{tools,server,worker}
cp tools/gpu_check "$bundle/"
for binary in tools/rubato server/rubato-server worker/rubato-worker worker/conformance_test; do
  ln -s "$PWD/$binary" "$bundle/$binary"
done
code=0
out=$(CUDA_VISIBLE_DEVICES="" /usr/bin/python3 "$bundle/gpu_check") || code=$?
[[ $code == 77 ]] || { echo "exit code $code: $out"; exit 1; }
[[ $out == "nothing was checked, for there is no GPU here: error: device.type: found cuda, but "* ]] ||
  { echo "said: $out"; exit 1; }
