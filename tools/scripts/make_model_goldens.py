#!/usr/bin/python3
"""Makes the goldens of models, in float64 by PyTorch: layers.safetensors, trajectories.safetensors,
optimizer_trajectories.safetensors and clipped_trajectories.safetensors of tests/goldens.

Needs python3-torch. The tests need only the files.

Long because each model is written out in PyTorch's own layers.

    tools/scripts/make_model_goldens.py [FOLDER]

layers.safetensors: each layer and the loss alone. The metadata name the cases. For a layer they
hold its settings as a text-format proto, and the tensors are CASE.x, CASE.y = f(x), the parameters
CASE.weight, CASE.bias, and the gradients of sum(y * CASE.dy): CASE.dx, CASE.dweight, CASE.dbias.
For cross-entropy: CASE.x (logits), CASE.labels, CASE.loss (the sum), CASE.correct and CASE.dx; for
losses of numbers, whose metadata are `regression` and a Loss message, CASE.x (outputs), CASE.values,
CASE.loss (batch size times the mean) and CASE.dx.

trajectories.safetensors: SGD on five small models. `features` (batches, batch, features), `labels`
(batches, batch) for cross-entropy and `values` (batches, batch, outputs) for the squared error are
shared: step t takes batch t modulo their number. MODEL/PARAMETER is where a model begins, exact in
float32; of `batch_norm` each step is two parts, of 11 and 5 samples, each normalised by itself, and
what the two have is averaged by samples into running statistics. For each VARIANT the metadata hold
the optimizer's settings as a text-format proto; MODEL/VARIANT/losses (steps) are the batches' mean
losses, each before its update, and MODEL/VARIANT/PARAMETER is where the model ends.

optimizer_trajectories.safetensors: likewise every optimizer on six models, whose layers the
metadata hold under `model/MODEL` as a text-format proto.

clipped_trajectories.safetensors: two models under clip_grad_norm_, each step on all examples at
once. `features` (examples, features), `labels` and `values` (examples); MODEL/PARAMETER as above.
For each VARIANT the metadata hold `optimizer:` of a job as YAML; MODEL/VARIANT/norms (steps) are
the gradient's norms before clipping, MODEL/VARIANT/losses and MODEL/VARIANT/PARAMETER as above.
"""

import pathlib
import sys

import torch

from make_optimizer_goldens import make_optimizer, settings_text, text_proto, write_safetensors


class File:
    """What goes into one golden file."""

    def __init__(self):
        self.tensors = {}
        self.metadata = {}

    def add(self, name, tensor):
        self.tensors[name] = tensor.detach()

    def write(self, path):
        write_safetensors(path, self.tensors, self.metadata)


def normal(generator, *shape):
    """Float64, exact in float32."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).float().double()


def add_layer(file, name, module, x, generator):
    for parameter in module.parameters():
        parameter.data = normal(generator, *parameter.shape)
    x.requires_grad_(True)
    y = module(x)
    dy = normal(generator, *y.shape)
    (y * dy).sum().backward()
    for key, value in {"x": x, "y": y, "dy": dy, "dx": x.grad}.items():
        file.add(f"{name}.{key}", value)
    for key, parameter in module.named_parameters():
        file.add(f"{name}.{key}", parameter)
        file.add(f"{name}.d{key}", parameter.grad)


def add_loss(file, name, logits, labels):
    logits.requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    file.add(f"{name}.x", logits)
    file.add(f"{name}.labels", labels.float())
    file.add(f"{name}.loss", loss)
    file.add(f"{name}.correct", (logits.argmax(dim=1) == labels).sum().float())
    file.add(f"{name}.dx", logits.grad)


def add_regression(file, name, module, outputs, values):
    outputs.requires_grad_(True)
    loss = len(outputs) * module(outputs, values)
    loss.backward()
    file.add(f"{name}.x", outputs)
    file.add(f"{name}.values", values.float())
    file.add(f"{name}.loss", loss)
    file.add(f"{name}.dx", outputs.grad)


def layers():
    generator = torch.Generator().manual_seed(1)
    file = File()
    for name, batch, inputs, outputs, bias in [
        ("linear", 5, 33, 17, True),
        ("linear_batch_1", 1, 13, 7, True),
        ("linear_one_by_one", 3, 1, 1, True),
        ("linear_no_bias", 4, 7, 19, False),
    ]:
        module = torch.nn.Linear(inputs, outputs, bias=bias)
        add_layer(file, name, module, normal(generator, batch, inputs), generator)
        settings = f"out_features: {outputs} bias: {str(bias).lower()}"
        file.metadata[name] = f"linear {{ {settings} }}"
    for name, shape in [("relu", (3, 5, 7)), ("relu_batch_1", (1, 37))]:
        x = normal(generator, *shape)
        x[..., 0] = 0.0
        x[..., 1] = -0.0
        add_layer(file, name, torch.nn.ReLU(), x, generator)
        file.metadata[name] = "relu {}"
    for name, shape in [("flatten", (3, 2, 3, 5)), ("flatten_batch_1", (1, 3, 5))]:
        add_layer(file, name, torch.nn.Flatten(), normal(generator, *shape), generator)
        file.metadata[name] = "flatten {}"
    for name, batch, classes, scale in [
        ("cross_entropy", 7, 10, 1.0),
        ("cross_entropy_batch_1", 1, 33, 3.0),
        ("cross_entropy_one_class", 3, 1, 1.0),
        ("cross_entropy_two_classes", 9, 2, 1.0),
        ("cross_entropy_17_classes", 5, 17, 2.0),
        ("cross_entropy_far_apart", 6, 16, 60.0),
        ("cross_entropy_large_values", 4, 10, 10000.0),
    ]:
        logits = (scale * normal(generator, batch, classes)).float().double()
        labels = torch.randint(classes, (batch,), generator=generator, dtype=torch.int64)
        add_loss(file, name, logits, labels)
        file.metadata[name] = "loss"
    # Two equal greatest logits: the prediction is the first.
    add_loss(file, "cross_entropy_tie", torch.tensor([[1.0, 2, 2, 0], [1, 2, 2, 0]]).double(),
             torch.tensor([1, 2], dtype=torch.int64))
    file.metadata["cross_entropy_tie"] = "loss"
    generator = torch.Generator().manual_seed(3)
    for kind, module, settings in [
        ("gelu", torch.nn.GELU(), "gelu {}"),
        ("gelu_tanh", torch.nn.GELU(approximate="tanh"), "gelu { approximate: APPROXIMATE_TANH }"),
        ("tanh", torch.nn.Tanh(), "tanh {}"),
        ("sigmoid", torch.nn.Sigmoid(), "sigmoid {}"),
    ]:
        for name, shape in [(kind, (3, 5, 7)), (f"{kind}_batch_1", (1, 37))]:
            x = (3 * normal(generator, *shape)).float().double()
            for i, value in enumerate([0.0, -0.0, 30.0, -30.0, 2.0**-40]):
                x[..., i] = value
            add_layer(file, name, module, x, generator)
            file.metadata[name] = settings
    for name, batch, outputs in [("mse", 7, 3), ("mse_batch_1", 1, 5), ("mse_one_output", 9, 1),
                                 ("mse_17_outputs", 4, 17)]:
        add_regression(file, name, torch.nn.MSELoss(), normal(generator, batch, outputs),
                       normal(generator, batch, outputs))
        file.metadata[name] = "regression name: NAME_MSE"
    for kind, module, settings in [
        ("l1", torch.nn.L1Loss(), "NAME_L1"),
        ("huber", torch.nn.HuberLoss(), "NAME_HUBER"),
        ("huber_near", torch.nn.HuberLoss(delta=0.25), "NAME_HUBER delta: 0.25"),
    ]:
        for name, batch, outputs in [(kind, 7, 3), (f"{kind}_one_output", 19, 1),
                                     (f"{kind}_17_outputs", 4, 17)]:
            x, values = normal(generator, batch, outputs), normal(generator, batch, outputs)
            x[0] = values[0]  # where the derivative of |x| is 0
            x[1] = values[1] + 0.25  # where Huber's two parts meet
            add_regression(file, name, module, x, values)
            file.metadata[name] = f"regression name: {settings}"
    return file


STEPS, BATCHES, BATCH, FEATURES, CLASSES, HIDDEN, OUTPUTS = 20, 5, 16, 20, 10, 24, 3
BATCH_NORM_CUT = 11
VARIANTS = {
    "plain": (0.5, dict()),
    "momentum": (0.2, dict(momentum=0.9)),
    "nesterov_decay": (0.2, dict(momentum=0.9, nesterov=True, weight_decay=0.01)),
    "dampening_decay": (0.4, dict(momentum=0.8, dampening=0.5, weight_decay=0.05)),
}


def make_model(kind):
    nn = torch.nn
    layers = {
        "linear": [nn.Linear(FEATURES, CLASSES)],
        "mlp": [nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)],
        "gelu": [nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES)],
        "tanh_mse": [nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS)],
        "deep_mse": [nn.Linear(FEATURES, HIDDEN), nn.GELU(approximate="tanh"),
                     nn.Linear(HIDDEN, HIDDEN), nn.Sigmoid(), nn.Linear(HIDDEN, OUTPUTS)],
    }
    return nn.Sequential(*layers[kind]).double()


def trajectories():
    generator = torch.Generator().manual_seed(2)
    file = File()
    features = normal(generator, BATCHES, BATCH, FEATURES)
    # Something to learn: the labels follow a linear rule, with noise.
    rule = normal(generator, FEATURES, CLASSES)
    noisy = features @ rule + normal(generator, BATCHES, BATCH, CLASSES)
    labels = noisy.argmax(dim=2)
    file.add("features", features.float())
    file.add("labels", labels.float())
    more = torch.Generator().manual_seed(4)
    rule = normal(more, FEATURES, OUTPUTS) / FEATURES**0.5
    values = (torch.tanh(features @ rule) + 0.1 * normal(more, BATCHES, BATCH, OUTPUTS)).float()
    file.add("values", values)
    for kind in ("linear", "mlp", "gelu", "tanh_mse", "deep_mse"):
        initial = {}
        for name, parameter in make_model(kind).named_parameters():
            bound = (FEATURES if name.startswith("0.") else HIDDEN) ** -0.5
            unit = torch.rand(*parameter.shape, generator=generator, dtype=torch.float64)
            initial[name] = ((2 * unit - 1) * bound).float()
            file.add(f"{kind}/{name}", initial[name])
        for variant, (rate, settings) in VARIANTS.items():
            model = make_model(kind)
            model.load_state_dict({k: v.double() for k, v in initial.items()}, strict=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=rate, **settings)
            losses = []
            for step in range(STEPS):
                optimizer.zero_grad()
                outputs = model(features[step % BATCHES])
                if kind.endswith("_mse"):
                    loss = torch.nn.MSELoss()(outputs, values[step % BATCHES].double())
                else:
                    loss = torch.nn.functional.cross_entropy(outputs, labels[step % BATCHES])
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
            file.add(f"{kind}/{variant}/losses", torch.tensor(losses, dtype=torch.float64))
            for name, parameter in model.named_parameters():
                file.add(f"{kind}/{variant}/{name}", parameter)
    batch_norm_trajectory(file, features, labels)
    for variant, (rate, settings) in VARIANTS.items():
        file.metadata[variant] = text_proto(rate, settings)
    return file


def batch_norm_trajectory(file, features, labels):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN, momentum=1), nn.Tanh(),
                          nn.Linear(HIDDEN, CLASSES)).double()
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        parameter.data = (normal(generator, *parameter.shape) / 4).float().double()
        file.add(f"batch_norm/{name}", parameter.float().clone())
    norm = model[1]
    running = {"running_mean": norm.running_mean.clone(), "running_var": norm.running_var.clone()}
    for name, value in running.items():
        file.add(f"batch_norm/1.{name}", value.float())
    rate, settings = VARIANTS["momentum"]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, **settings)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        measured = {name: 0 for name in running}
        total = 0
        for part in (slice(0, BATCH_NORM_CUT), slice(BATCH_NORM_CUT, BATCH)):
            x, y = features[step % BATCHES][part], labels[step % BATCHES][part]
            loss = nn.functional.cross_entropy(model(x), y) * (len(x) / BATCH)
            loss.backward()
            total += loss.item()
            for name in running:  # with momentum 1 what this part has
                measured[name] += getattr(norm, name) * (len(x) / BATCH)
        for name in running:
            running[name] = torch.lerp(running[name], measured[name], 0.1)
        losses.append(total)
        optimizer.step()
    file.add("batch_norm/momentum/losses", torch.tensor(losses, dtype=torch.float64))
    for name, value in [*model.named_parameters(), *((f"1.{k}", v) for k, v in running.items())]:
        file.add(f"batch_norm/momentum/{name}", value)


# Widths, and whether there are biases; relus between. Well conditioned: PyTorch in float32 stays
# within 4e-7 of float64. Not every model does: where a unit's only gradient so far is a rest of
# 6e-8, RMSProp makes a step of ten learning rates of it, and float32 is 4e-6 off, PyTorch's too.
MODELS = {
    "linear": ((FEATURES, CLASSES), True),
    "linear_no_bias": ((FEATURES, CLASSES), False),
    "mlp": ((FEATURES, 16, CLASSES), True),
    "deep": ((FEATURES, 14, 12, 12, CLASSES), True),
    "narrow": ((FEATURES, 4, CLASSES), False),
    # Under the squared error.
    "mlp_mse": ((FEATURES, 16, OUTPUTS), True),
}
OPTIMIZER_VARIANTS = {
    "sgd": ("sgd", dict(lr=0.2, momentum=0.9)),
    "adam": ("adam", dict(lr=0.01)),
    "adam_amsgrad_decay": (
        "adam",
        dict(lr=0.02, betas=(0.8, 0.9), amsgrad=True, weight_decay=0.01),
    ),
    "adamw": ("adamw", dict(lr=0.01)),
    "adagrad": ("adagrad", dict(lr=0.05)),
    "adagrad_decay": (
        "adagrad",
        dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.01, weight_decay=0.01),
    ),
    "rmsprop": ("rmsprop", dict(lr=0.002)),
    "rmsprop_centered_momentum": (
        "rmsprop",
        dict(lr=0.001, alpha=0.9, eps=1e-4, momentum=0.8, centered=True),
    ),
    "adamw_groups": (
        "adamw",
        dict(lr=0.01, weight_decay=0.1),
        [("0.bias", dict(lr=0)), ("*.bias", dict(weight_decay=0)), ("2.*", dict(lr=0.003))],
    ),
}


def make_chain(widths, bias):
    modules = []
    for inputs, outputs in zip(widths, widths[1:]):
        modules += [torch.nn.Linear(inputs, outputs, bias=bias), torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1]).double()


def chain_text(widths, bias):
    linear = "layers {{ linear {{ out_features: {} bias: {} }} }}"
    layers = [linear.format(outputs, str(bias).lower()) for outputs in widths[1:]]
    return " layers { relu {} } ".join(layers)


def optimizer_trajectories():
    generator = torch.Generator().manual_seed(3)
    file = File()
    features = normal(generator, BATCHES, BATCH, FEATURES)
    rule = normal(generator, FEATURES, CLASSES)
    labels = (features @ rule + normal(generator, BATCHES, BATCH, CLASSES)).argmax(dim=2)
    file.add("features", features.float())
    file.add("labels", labels.float())
    more = torch.Generator().manual_seed(6)
    rule = normal(more, FEATURES, OUTPUTS) / FEATURES**0.5
    values = (torch.tanh(features @ rule) + 0.1 * normal(more, BATCHES, BATCH, OUTPUTS)).float()
    file.add("values", values)
    for kind, (widths, bias) in MODELS.items():
        file.metadata[f"model/{kind}"] = chain_text(widths, bias)
        initial = {}
        for name, parameter in make_chain(widths, bias).named_parameters():
            bound = widths[int(name.split(".")[0]) // 2] ** -0.5
            unit = torch.rand(*parameter.shape, generator=generator, dtype=torch.float64)
            initial[name] = ((2 * unit - 1) * bound).float()
            file.add(f"{kind}/{name}", initial[name])
        for variant, settings in OPTIMIZER_VARIANTS.items():
            model = make_chain(widths, bias)
            model.load_state_dict({k: v.double() for k, v in initial.items()}, strict=True)
            optimizer = make_optimizer(dict(model.named_parameters()), *settings)
            losses = []
            for step in range(STEPS):
                model.zero_grad()
                outputs = model(features[step % BATCHES])
                if kind.endswith("_mse"):
                    loss = torch.nn.MSELoss()(outputs, values[step % BATCHES].double())
                else:
                    loss = torch.nn.functional.cross_entropy(outputs, labels[step % BATCHES])
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
            file.add(f"{kind}/{variant}/losses", torch.tensor(losses, dtype=torch.float64))
            for name, parameter in model.named_parameters():
                file.add(f"{kind}/{variant}/{name}", parameter)
    for variant, settings in OPTIMIZER_VARIANTS.items():
        file.metadata[variant] = settings_text(*settings)
    return file


CLIPPED_VARIANTS = {
    "sgd": ("{{name: sgd, learning_rate: 0.1, momentum: 0.9, clip_grad_norm: {}}}",
            lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)),
    "adam": ("{{name: adam, learning_rate: 0.02, clip_grad_norm: {}}}",
             lambda parameters: torch.optim.Adam(parameters, lr=0.02)),
}
# Some steps are longer, some shorter; see the assertion.
CLIP_NORMS = {"classes/sgd": 0.4, "classes/adam": 0.35, "values/sgd": 0.5, "values/adam": 0.2}


def clipped_trajectories():
    generator = torch.Generator().manual_seed(5)
    file = File()
    examples = 96
    features = normal(generator, examples, FEATURES)
    noise = normal(generator, examples, CLASSES)
    labels = (features @ normal(generator, FEATURES, CLASSES) + noise).argmax(dim=1)
    assert len(labels.unique()) == CLASSES
    values = torch.tanh(features @ normal(generator, FEATURES, 1) / FEATURES**0.5).float()
    file.add("features", features.float())
    file.add("labels", labels.float())
    file.add("values", values)
    for kind, outputs in ("classes", CLASSES), ("values", 1):
        make = lambda: torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(),
                                           torch.nn.Linear(HIDDEN, outputs)).double()
        initial = {}
        for name, parameter in make().named_parameters():
            bound = (FEATURES if name.startswith("0.") else HIDDEN) ** -0.5
            unit = torch.rand(*parameter.shape, generator=generator, dtype=torch.float64)
            initial[name] = ((2 * unit - 1) * bound).float()
            file.add(f"{kind}/{name}", initial[name])
        for variant, (settings, make_optimizer) in CLIPPED_VARIANTS.items():
            key = f"{kind}/{variant}"
            model = make()
            model.load_state_dict({k: v.double() for k, v in initial.items()}, strict=True)
            optimizer = make_optimizer(model.parameters())
            losses, norms = [], []
            for _ in range(STEPS):
                optimizer.zero_grad()
                result = model(features)
                if kind == "classes":
                    loss = torch.nn.functional.cross_entropy(result, labels)
                else:
                    loss = torch.nn.MSELoss()(result, values.double())
                losses.append(loss.item())
                loss.backward()
                norms.append(
                    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORMS[key]).item())
                optimizer.step()
            clipped = sum(norm > CLIP_NORMS[key] for norm in norms)
            assert 4 <= clipped <= STEPS - 4, (key, norms)
            file.add(f"{key}/losses", torch.tensor(losses, dtype=torch.float64))
            file.add(f"{key}/norms", torch.tensor(norms, dtype=torch.float64))
            for name, parameter in model.named_parameters():
                file.add(f"{key}/{name}", parameter)
            file.metadata[key] = settings.format(CLIP_NORMS[key])
    return file


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests" / "goldens"
    torch.set_num_threads(1)
    layers().write(folder / "layers.safetensors")
    trajectories().write(folder / "trajectories.safetensors")
    optimizer_trajectories().write(folder / "optimizer_trajectories.safetensors")
    clipped_trajectories().write(folder / "clipped_trajectories.safetensors")


if __name__ == "__main__":
    main()
