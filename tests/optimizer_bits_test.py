"""With every optimizer and parameter groups, sync gives the same bits on any cluster.

Runs real processes: shards, workers and blocks differ from run to run, and blocks end inside parameters.

Usage: optimizer_bits_test.py RUBATO   (the binary)
"""

import json
import os
import subprocess
import sys
import tempfile

JOB = """
version: 1
name: bits
seed: 5
cluster: {address: "127.0.0.1:0"}
data: {format: glyphs, train_size: 200, test_size: 20}
model: {layers: [flatten, linear: {out_features: 16}, relu, linear: {out_features: 10}]}
train: {batch_size: 32, micro_batches: 4, until: {epochs: 2}}
"""
GROUPS = """groups: [{match: "*.bias", weight_decay: 0}, {match: "3.*", learning_rate: 0.003}]"""
OPTIMIZERS = [
    "name: sgd, momentum: 0.9, weight_decay: 0.1",
    "name: sgd, momentum: 0.9, weight_decay: 0.1, clip_grad_norm: 0.5",
    "name: adam, amsgrad: true, weight_decay: 0.1",
    "name: adamw, schedule: {name: cosine, warmup: {steps: 3}}",
    "name: adagrad, lr_decay: 0.1, initial_accumulator_value: 0.1",
    "name: rmsprop, centered: true, momentum: 0.5",
]
# Shards, workers, bytes of a block. 3136 bytes is one row of the first layer; 1024 is less.
CLUSTERS = [(1, 1, 262144), (2, 3, 1024), (3, 2, 12800)]


def digest(rubato, folder, optimizer, servers, workers, chunk):
    run = os.path.join(folder, f"run-{servers}-{workers}-{chunk}-{OPTIMIZERS.index(optimizer)}")
    command = [rubato, "train", os.path.join(folder, "job.yaml"), "--run-dir", run]
    for key, value in {
        "optimizer": f"{{{optimizer}, {GROUPS}}}",
        "cluster.servers": servers,
        "cluster.workers": workers,
        "wire.chunk": chunk,
    }.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    with open(os.path.join(run, "summary.json")) as file:
        return json.load(file)["digest"]


def main():
    rubato = os.path.abspath(sys.argv[1])
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.yaml"), "w") as file:
            file.write(JOB)
        for optimizer in OPTIMIZERS:
            digests = {cluster: digest(rubato, folder, optimizer, *cluster) for cluster in CLUSTERS}
            if len(set(digests.values())) != 1:
                sys.exit(f"{optimizer}: the bits depend on (shards, workers, chunk): {digests}")
            seen.update(digests.values())
    if len(seen) != len(OPTIMIZERS):
        sys.exit("optimizers do not differ in their results")
    print(f"{len(OPTIMIZERS)} optimizers on {len(CLUSTERS)} clusters each: equal bits")


if __name__ == "__main__":
    main()
