#!/usr/bin/python3
"""Makes tests/goldens/{optimizers,learning_rates}.safetensors: what PyTorch computes in float64.

Needs python3-torch. The tests need only the files.

    tools/scripts/make_optimizer_goldens.py [FOLDER]

optimizers.safetensors: `parameters` (values) and `gradient_sums` (steps, values), float32; for each
case the metadata hold the optimizer's settings as a text-format proto, with those keys that PyTorch
was given, and the tensor `CASE` (3, values), float64, holds the parameters after the first, the
second and the last step, and `CASE/SLOT`, for each tensor of PyTorch's state, that state after the
last. A gradient is a sum / `weight`. Cases `groups/...` are with parameter groups, the vector being
the parameters of the layout (a text-format proto) in the metadata `layout`.

learning_rates.safetensors: for each case the settings likewise, and the tensor `CASE` (steps),
float64, holds the rate at each step, counted from 0, of `batch_size` samples.
"""

import fnmatch
import json
import math
import pathlib
import struct
import sys

import torch

STEPS = 50
VALUES = 64
WEIGHT = 48  # no power of two: 1 / 48 is rounded
BATCH_SIZE = 64
SCHEDULE_STEPS = 40

RULES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
# The rule and what its class is given; the rest is PyTorch's default.
OPTIMIZERS = {
    "plain": ("sgd", dict(lr=0.01)),
    "decay": ("sgd", dict(lr=0.01, weight_decay=0.1)),
    "momentum": ("sgd", dict(lr=0.01, momentum=0.9)),
    "momentum_decay": ("sgd", dict(lr=0.01, momentum=0.9, weight_decay=0.1)),
    "dampening": ("sgd", dict(lr=0.01, momentum=0.9, dampening=0.5)),
    "dampening_decay": ("sgd", dict(lr=0.01, momentum=0.8, dampening=0.25, weight_decay=0.1)),
    "nesterov": ("sgd", dict(lr=0.01, momentum=0.9, nesterov=True)),
    "nesterov_decay": ("sgd", dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)),
    "adam": ("adam", dict()),
    "adam_decay": ("adam", dict(lr=0.02, betas=(0.8, 0.95), eps=0.01, weight_decay=0.1)),
    "adam_without_memory": ("adam", dict(lr=0.01, betas=(0.0, 0.3))),
    "adam_amsgrad": ("adam", dict(lr=0.01, betas=(0.9, 0.7), amsgrad=True)),
    "adamw": ("adamw", dict()),
    "adamw_decay": ("adamw", dict(lr=0.02, betas=(0.95, 0.99), eps=1e-4, weight_decay=0.3)),
    "adamw_amsgrad": ("adamw", dict(lr=0.005, betas=(0.5, 0.5), amsgrad=True)),
    "adagrad": ("adagrad", dict()),
    "adagrad_decay": (
        "adagrad",
        dict(lr=0.1, lr_decay=0.05, initial_accumulator_value=0.5, eps=0.01, weight_decay=0.1),
    ),
    "rmsprop": ("rmsprop", dict()),
    "rmsprop_decay": ("rmsprop", dict(lr=0.005, alpha=0.9, eps=0.01, weight_decay=0.1)),
    "rmsprop_momentum": ("rmsprop", dict(lr=0.001, alpha=0.3, momentum=0.9)),
    "rmsprop_centered": ("rmsprop", dict(alpha=0.95, centered=True)),
    "rmsprop_all": (
        "rmsprop",
        dict(lr=0.001, alpha=0.8, eps=1e-3, momentum=0.5, centered=True, weight_decay=0.1),
    ),
}
# Of the whole vector, in order.
LAYOUT = {
    "0.weight": (5, 6),
    "0.bias": (5,),
    "1.weight": (4, 4),
    "1.bias": (4,),
    "2.weight": (3, 3),
}
# Patterns and what they change; the first that matches holds. PyTorch freezes a parameter that no
# optimizer has.
GROUPS = [
    ("*.bias", dict(weight_decay=0)),
    ("1.*", dict(lr=0.003, weight_decay=0.2)),
    ("?.we?ght", dict(lr=0.02)),
]
FROZEN_GROUPS = [("1.bias", dict()), ("*.bias", dict(lr=0)), ("2*", dict(lr=0))]
GROUPED = {
    "groups/sgd": ("sgd", dict(lr=0.01, momentum=0.9, weight_decay=0.1), GROUPS),
    "groups/adam": ("adam", dict(lr=0.01, weight_decay=0.1), GROUPS),
    "groups/adamw": ("adamw", dict(lr=0.01, weight_decay=0.1), GROUPS),
    "groups/adagrad": ("adagrad", dict(lr=0.01, weight_decay=0.1), GROUPS),
    "groups/rmsprop": ("rmsprop", dict(lr=0.001, weight_decay=0.1), GROUPS),
    "groups/sgd_frozen": ("sgd", dict(lr=0.01, momentum=0.9), FROZEN_GROUPS),
    "groups/adamw_frozen": ("adamw", dict(), FROZEN_GROUPS),
}


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


def settings_text(rule, settings, groups=()):
    """What make_optimizer is given, as a text-format proto."""

    def fields(settings):
        for key, value in settings.items():
            for entry in value if isinstance(value, tuple) else (value,):
                yield f"{'learning_rate' if key == 'lr' else key}: {str(entry).lower()}"

    parts = [f"name: NAME_{rule.upper()}", *fields(settings)]
    for match, changes in groups:
        parts.append(" ".join(["groups {", f'match: "{match}"', *fields(changes), "}"]))
    return " ".join(parts)


def make_optimizer(named, rule, settings, groups=()):
    """PyTorch's optimizer of the parameters `named`, by name."""
    lists = [dict(changes, params=[]) for _, changes in groups] + [dict(params=[])]
    for name, parameter in named.items():
        matches = (fnmatch.fnmatchcase(name, match) for match, _ in groups)
        lists[next((i for i, found in enumerate(matches) if found), -1)]["params"].append(parameter)
    used = [group for group in lists if group["params"] and group.get("lr") != 0]
    return RULES[rule](used, **settings)


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

    def run(name, shapes, rule, settings, groups=()):
        """Trains the vector as the parameters `shapes`, by name."""
        sizes = [math.prod(shape) for shape in shapes.values()]
        pieces = zip(shapes.items(), parameters.double().split(sizes))
        named = {key: torch.nn.Parameter(piece.view(shape)) for (key, shape), piece in pieces}
        optimizer = make_optimizer(named, rule, settings, groups)
        kept = []
        for step in range(STEPS):
            gradients = (gradient_sums[step].double() / WEIGHT).split(sizes)
            for parameter, gradient in zip(named.values(), gradients):
                parameter.grad = gradient.view(parameter.shape)
            optimizer.step()
            if step in (0, 1, STEPS - 1):
                kept.append(torch.cat([p.detach().flatten() for p in named.values()]))
        tensors[name] = torch.stack(kept)
        metadata[name] = settings_text(rule, settings, groups)
        states = optimizer.state.values()
        slots = {key for s in states for key, value in s.items() if value is not None} - {"step"}
        for slot in sorted(slots):
            # A frozen parameter has none; ours stay 0.
            states = [optimizer.state[p].get(slot, torch.zeros_like(p)) for p in named.values()]
            tensors[f"{name}/{slot}"] = torch.cat([state.detach().flatten() for state in states])

    for name, (rule, settings) in OPTIMIZERS.items():
        run(name, {"w": (VALUES,)}, rule, settings)
    for name, (rule, settings, groups) in GROUPED.items():
        run(name, LAYOUT, rule, settings, groups)
    metadata["layout"] = " ".join(
        f'parameters {{ name: "{name}" ' + " ".join(f"shape: {n}" for n in shape) + " }"
        for name, shape in LAYOUT.items()
    )
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
    here = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests" / "goldens"
    make_optimizers(folder / "optimizers.safetensors")
    make_learning_rates(folder / "learning_rates.safetensors")


if __name__ == "__main__":
    main()
