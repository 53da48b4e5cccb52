#!/bin/bash
# Where there is no GPU, gpu_check says so and ends with 77; its bundle is what it takes it to be.
set -euo pipefail
bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle"/{tools,server,worker/model,tensor/cuda}
cp tools/gpu_check "$bundle/"
tests=(worker/model/conformance_test worker/model/device_step_test tensor/cuda/device_kernels_test
  tensor/cuda/gpu_kernels_test)
for binary in tools/rubato server/rubato-server worker/rubato-worker "${tests[@]}"; do
  ln -s "$PWD/$binary" "$bundle/$binary"
done

# What it picks of each test is there.
list=$(/usr/bin/python3 "$bundle/gpu_check" --list)
for test in "${tests[@]}"; do
  for line in "$test" "compute-sanitizer .* $test"; do
    command=$(grep -m1 -E "^    $line" <<<"$list")
    filter=$(grep -o -E -- "--gtest_filter=[^']*" <<<"$command")
    [[ -n $("$bundle/$test" "$filter" --gtest_list_tests) ]] || { echo "none of $command"; exit 1; }
  done
done

code=0
out=$(CUDA_VISIBLE_DEVICES="" /usr/bin/python3 "$bundle/gpu_check") || code=$?
[[ $code == 77 ]] || { echo "exit code $code: $out"; exit 1; }
[[ $out == "nothing was checked, for there is no GPU here: error: device.type: found cuda, but "* ]] ||
  { echo "said: $out"; exit 1; }
