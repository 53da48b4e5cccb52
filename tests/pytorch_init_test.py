"""A state_dict of PyTorch's is where a job begins, and the job goes on as PyTorch does.

Writes state_dicts as safetensors, trains one step from each by `model.init_from`, makes the same step in PyTorch, and
compares the losses before and after it, and what of the parameters has become. The models: a Sequential by PyTorch's
names, one by names of its own, and resnet20 by torchvision's names, with num_batches_tracked and running statistics
that are not those of the beginning. Once more a class is ignored, and two workers share the step, each with another
number of targets that count.

Usage: pytorch_init_test.py RUBATO   (the binary). Needs Debian's python3-torch; skipped without it.
"""

import gzip
import json
import os
import pathlib
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
    skip("PyTorchInitTest", "GoesOnAsPyTorch", "python3-torch is not installed")

sys.path.insert(0, "tools/scripts")
from make_layer_goldens import cnn, resnet

nn = torch.nn
SIDE, CLASSES, TRAIN, TEST, RATE = 12, 4, 40, 60, 0.05


def write_split(folder, prefix, count, rng):
    """Noisy images whose class is the quarter that is brightest."""
    pixels, labels = bytearray(), bytearray()
    for _ in range(count):
        label = rng.randrange(CLASSES)
        labels.append(label)
        for row in range(SIDE):
            for _ in range(SIDE):
                bright = row * CLASSES // SIDE == label
                pixels.append(rng.randrange(80, 256) if bright else rng.randrange(160))
    with gzip.open(f"{folder}/{prefix}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + bytes(pixels))
    with open(f"{folder}/{prefix}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(labels))
    return (torch.tensor(list(pixels), dtype=torch.float64).reshape(count, 1, SIDE, SIDE) / 255,
            torch.tensor(list(labels)))


def write_safetensors(path, tensors):
    """The format in ten lines, so that the test needs no package of it, and our writer no trust."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in safetensors_file.read(path).items()}


def named(**modules):
    model = nn.Sequential()
    for name, module in modules.items():
        model.add_module(name, module)
    return model


def models():
    yield "cnn", "{preset: cnn, ", cnn(SIDE, CLASSES)
    yield ("own_names",
           "{names: [stem, act, squeeze, flat, head], layers: [{conv2d: {out_channels: 6, kernel_size: 3, groups: 1}}, "
           "gelu, {adaptive_avg_pool2d: {output_size: 3}}, flatten, {linear: {out_features: 4}}], ",
           named(stem=nn.Conv2d(1, 6, 3), act=nn.GELU(), squeeze=nn.AdaptiveAvgPool2d(3),
                 flat=nn.Flatten(), head=nn.Linear(54, CLASSES)))
    model = resnet(20, CLASSES)
    model.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # so that values do not fade where running statistics normalise
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.8, 1.2)
            module.weight.data.uniform_(0.8, 1.2)
            module.bias.data.normal_(std=0.1)
    yield "resnet20", "{preset: resnet20, ", model


def near(found, expected, tolerance, what):
    print(what, "Rubato:", found, "PyTorch:", expected)
    assert abs(found - expected) <= tolerance * abs(expected), what


def check(rubato, folder, name, text, model, train, test, ignored=None):
    """`ignored`: a class that costs nothing; then two workers compute the step, in parts."""
    write_safetensors(f"{folder}/{name}.safetensors", model.state_dict())
    job = f"""
version: 1
name: {name}
cluster: {{servers: 2, workers: {1 if ignored is None else 2}, address: "127.0.0.1:0"}}
data: {{format: idx, path: {folder}, normalize: {{mean: [0.4], std: [0.3]}}}}
model: {text}init_from: {name}.safetensors}}
loss: {{name: cross_entropy{"" if ignored is None else f", ignore_index: {ignored}"}}}
optimizer: {{learning_rate: {RATE}}}
train: {{batch_size: {TRAIN}, micro_batches: {1 if ignored is None else 4}, until: {{steps: 1}}}}
metrics: {{every: {{steps: 1}}}}
"""
    path = f"{folder}/{name}.yaml"
    pathlib.Path(path).write_text(job)
    run = f"{folder}/run_{name}"
    subprocess.run([rubato, "train", path, "--run-dir", run], check=True)
    summary = json.loads(pathlib.Path(run, "summary.json").read_text())
    lines = [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]
    first = [line for line in lines if line["kind"] == "train"][0]

    model.double().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    mean = nn.CrossEntropyLoss(ignore_index=-100 if ignored is None else ignored)
    loss = mean(model(train[0]), train[1])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(test[0])
        after = mean(logits, test[1]).item()
    near(first["loss"], loss.item(), 1e-5, f"{name}, before")
    assert logits.std() > 0.05, "too uniform to show anything"
    near(summary["test_loss"], after, 1e-4, f"{name}, after")
    found = read_tensors(f"{run}/parameters.safetensors")
    for key, value in model.state_dict().items():
        if key.endswith("num_batches_tracked"):
            continue
        # A relu's input may pass 0 by less than float32 can tell.
        difference = (found.pop(key).double() - value).norm().item()
        assert difference <= 1e-4 * value.norm().item(), (name, key, difference)
    assert not found, found


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    rng = random.Random(1)
    splits = [write_split(folder, prefix, count, rng) for prefix, count in (("train", TRAIN), ("t10k", TEST))]
    train, test = [((images - 0.4) / 0.3, labels) for images, labels in splits]
    for name, text, model in models():
        check(sys.argv[1], folder, name, text, model, train, test)
    torch.manual_seed(4)
    check(sys.argv[1], folder, "ignoring", "{preset: cnn, ", cnn(SIDE, CLASSES), train, test, ignored=2)


main()
