#!/usr/bin/python3
"""Makes tests/goldens/{optimizers,learning_rates}.safetensors: what PyTorch computes in float64.

Needs python3-torch. The tests need only the files.

    tools/make_optimizer_goldens.py [FOLDER]

optimizers.safetensors: `parameters` (values) and `gradient_sums` (steps, values), float32; for each
case the metadata hold the optimizer's settings as a text-format proto, and the tensor `CASE` (3,
values), float64, holds the parameters after the first, the second and the last step, and
`CASE/momentum`, where there is momentum, the buffer after the last. A gradient is a sum / `weight`.

learning_rates.safetensors: for each case the settings likewise, and the tensor `CASE` (steps),
float64, holds the rate at each step, counted from 0, of `batch_size` samples.
"""

import json
import pathlib
import struct
import sys

import torch

STEPS = 50
VALUES = 64
WEIGHT = 48  # no power of two: 1 / 48 is rounded
BATCH_SIZE = 64
SCHEDULE_STEPS = 40

OPTIMIZERS = {
    "plain": dict(),
    "decay": dict(weight_decay=0.1),
    "momentum": dict(momentum=0.9),
    "momentum_decay": dict(momentum=0.9, weight_decay=0.1),
    "dampening": dict(momentum=0.9, dampening=0.5),
    "dampening_decay": dict(momentum=0.8, dampening=0.25, weight_decay=0.1),
    "nesterov": dict(momentum=0.9, nesterov=True),
    "nesterov_decay": dict(momentum=0.9, nesterov=True, weight_decay=0.1),
}
LEARNING_RATE = 0.01


def write_safetensors(path, tensors, metadata):
    """Writes the format's bytes by hand, so that our own writer is not its own judge."""
    header = {"__metadata__": metadata}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.float64: "F64"}[tensor.dtype]
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def text_proto(learning_rate, settings):
    fields = dict(learning_rate=learning_rate, **settings)
    return " ".join(f"{key}: {str(value).lower()}" for key, value in fields.items())


def make_optimizers(path):
    generator = torch.Generator().manual_seed(1)

    def uniform(shape, low, high):
        unit = torch.rand(shape, generator=generator, dtype=torch.float64)
        return (low + (high - low) * unit).float()

    signs = torch.where(uniform((VALUES,), -1, 1) < 0, -1.0, 1.0)
    # Well conditioned, so that a relative error per element means something: parameters far from 0,
    # gradients of a steady sign that push them further away.
    parameters = signs * uniform((VALUES,), 1, 3)
    gradient_sums = -signs * uniform((STEPS, VALUES), 0.2, 1.8) * WEIGHT
    tensors = {"parameters": parameters, "gradient_sums": gradient_sums}
    metadata = {"weight": str(WEIGHT)}
    for name, settings in OPTIMIZERS.items():
        w = torch.nn.Parameter(parameters.double())
        optimizer = torch.optim.SGD([w], lr=LEARNING_RATE, **settings)
        kept = []
        for step in range(STEPS):
            w.grad = gradient_sums[step].double() / WEIGHT
            optimizer.step()
            if step in (0, 1, STEPS - 1):
                kept.append(w.detach().clone())
        tensors[name] = torch.stack(kept)
        if "momentum" in settings:
            tensors[name + "/momentum"] = optimizer.state[w]["momentum_buffer"]
        metadata[name] = text_proto(LEARNING_RATE, settings)
    write_safetensors(path, tensors, metadata)


def make_learning_rates(path):
    lr_scheduler = torch.optim.lr_scheduler

    def rates(make, base=0.1):
        parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.SGD([parameter], lr=base)
        scheduler = make(optimizer)
        out = []
        for _ in range(SCHEDULE_STEPS):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return torch.tensor(out, dtype=torch.float64)

    constant = rates(lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0))
    step = rates(lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.3))
    # 39 steps after the first: PyTorch's cosine is at its end, not beyond.
    cosine = rates(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=39, eta_min=0.05 * 0.1))
    warmup = rates(lambda o: lr_scheduler.LambdaLR(o, lambda t: min(1.0, t / 9)), base=1.0)
    cases = {
        "constant": (constant, ""),
        "step": (step, "name: NAME_STEP every { steps: 7 } gamma: 0.3"),
        "cosine": (cosine, "name: NAME_COSINE until { steps: 39 } final_ratio: 0.05"),
        "warmup": (constant * warmup, "warmup { steps: 9 }"),
        "warmup_step": (
            step * warmup,
            "name: NAME_STEP every { steps: 7 } gamma: 0.3 warmup { steps: 9 }",
        ),
        "warmup_cosine": (
            cosine * warmup,
            "name: NAME_COSINE until { steps: 39 } final_ratio: 0.05 warmup { steps: 9 }",
        ),
    }
    metadata = {"batch_size": str(BATCH_SIZE)}
    tensors = {}
    for name, (values, schedule) in cases.items():
        metadata[name] = text_proto(0.1, {}) + (f" schedule {{ {schedule} }}" if schedule else "")
        tensors[name] = values
    write_safetensors(path, tensors, metadata)


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests" / "goldens"
    make_optimizers(folder / "optimizers.safetensors")
    make_learning_rates(folder / "learning_rates.safetensors")


if __name__ == "__main__":
    main()
