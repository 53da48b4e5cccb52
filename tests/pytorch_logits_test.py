"""A model trained here gives the same logits in PyTorch.

Trains a small job on IDX files that the test writes, loads parameters.safetensors into the equivalent
torch.nn.Sequential with strict=True, and compares PyTorch's loss and accuracy on the test split, in float64, with
those that Rubato measured.

Usage: pytorch_logits_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import safetensors_file
from skipped import skip

try:
    import torch
except ImportError:
    skip("PyTorchLogitsTest", "SameLogits", "python3-torch is not installed")


def write_split(folder, prefix, count, rng):
    """Noisy images whose class is the row that is brightest."""
    pixels, labels = bytearray(), bytearray()
    for _ in range(count):
        label = rng.randrange(4)
        labels.append(label)
        for row in range(4):
            for _ in range(6):
                pixels.append(rng.randrange(80, 256) if row == label else rng.randrange(160))
    with gzip.open(f"{folder}/{prefix}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 4, 6) + bytes(pixels))
    with open(f"{folder}/{prefix}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(labels))
    return (torch.tensor(list(pixels), dtype=torch.float64).reshape(count, 1, 4, 6) / 255,
            torch.tensor(list(labels)))


def read_tensors(path):
    return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in safetensors_file.read(path).items()}


def main():
    rubato = sys.argv[1]
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    rng = random.Random(1)
    write_split(folder, "train", 400, rng)
    images, labels = write_split(folder, "t10k", 300, rng)
    job = f"""
version: 1
name: logits
seed: 4
cluster: {{servers: 2, workers: 2, address: "127.0.0.1:0"}}
data: {{format: idx, path: {folder}, normalize: {{mean: [0.4], std: [0.3]}}}}
model:
  layers: [flatten, {{linear: {{out_features: 12}}}}, gelu, {{dropout: 0.1}},
           {{linear: {{out_features: 4, bias: false}}}}]
optimizer: {{learning_rate: 0.1, momentum: 0.9}}
train: {{batch_size: 20, micro_batches: 4, until: {{epochs: 5}}}}
"""
    with open(f"{folder}/job.yaml", "w") as file:
        file.write(job)
    run = f"{folder}/run"
    subprocess.run([rubato, "train", f"{folder}/job.yaml", "--run-dir", run], check=True)
    with open(f"{run}/summary.json") as file:
        summary = json.load(file)

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 12), torch.nn.GELU(),
                                torch.nn.Dropout(0.1), torch.nn.Linear(12, 4, bias=False)).eval()
    model.load_state_dict(read_tensors(f"{run}/parameters.safetensors"), strict=True)
    exported = f"{folder}/exported.safetensors"
    subprocess.run([rubato, "export", run, exported], check=True)
    again = read_tensors(exported)
    assert set(again) == set(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(again[name], tensor), name
    model.double()
    with torch.no_grad():
        logits = model((images - 0.4) / 0.3)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    print("PyTorch:", loss, accuracy, "Rubato:", summary["test_loss"], summary["test_accuracy"])
    assert abs(loss - summary["test_loss"]) <= 1e-5 * loss
    assert accuracy == summary["test_accuracy"]
    assert accuracy > 0.5, "it has not learned"


main()
