"""A training script as a person would write it, for tests: with Rubato, or --plain, as it was before.

Data are drawn from a fixed seed. Prints lines of JSON: of each epoch, and at the end of all values. Model and batches
are on the device that TEST_DEVICE names (cpu where it is not set).
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

DEVICE = os.environ.get("TEST_DEVICE", "cpu")


class NoGpu:
    """In torch.cuda's place: a GPU that does at once what it is told, whose tensors are the CPU's."""

    Stream = current_stream = lambda self, device: self
    cudart = lambda self: self
    cudaHostRegister = cudaHostUnregister = lambda self, *region: 0
    stream = device = lambda self, of: contextlib.nullcontext()
    wait_stream = synchronize = lambda self, *stream: None
    record_event = lambda self: self
    query = lambda self: True


class Odd(nn.Module):
    """What models may have beside layers: shared, frozen, unused, empty and single values, a buffer, other strides."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.unused = nn.Linear(3, 2)
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)  # norm would leave its bias nothing but noise
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Linear(4 * 8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = nn.Parameter(self.second.weight.detach().clone())
        self.head = nn.Linear(8, 3)
        self.head.bias = None
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.second.weight
        self.register_buffer("offset", torch.full((1,), 0.25))
        self.conv = self.conv.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = self.frozen(x) + self.offset
        x = F.relu(self.norm(self.conv(x.view(-1, 1, 2, 4)))).flatten(1)
        x = torch.tanh(self.tied(torch.tanh(self.second(self.first(x)))))
        return self.head(x) * self.scale


def make_model(name):
    if name == "odd":
        return Odd()
    layers = [nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)]
    if name == "noisy":
        layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)]
    return nn.Sequential(*layers)


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)),
    "sgd_plain": (torch.optim.SGD, dict(lr=0.01)),
    "adam": (torch.optim.Adam, dict(lr=0.01, amsgrad=True, weight_decay=1e-3)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.99), eps=1e-6)),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.05, lr_decay=0.01, initial_accumulator_value=0.1)),
    "rmsprop": (torch.optim.RMSprop, dict(lr=0.01, momentum=0.5, eps=1e-4)),
}


def make_optimizer(name, model):
    kind, settings = OPTIMIZERS[name]
    biases = [p for n, p in model.named_parameters() if n.endswith("bias") and p.requires_grad]
    others = [p for n, p in model.named_parameters() if not n.endswith("bias") and p.requires_grad]
    return kind([{"params": others}, {"params": biases, "lr": settings["lr"] / 2, "weight_decay": 0}], **settings)


class Augmented(Dataset):
    """Draws from all three generators."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = torch.randn(8) + float(numpy.random.randn()) + random.random()
        return self.x[index] + 0.1 * noise, self.y[index]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--persistent", action="store_true", help="loader processes, beyond an epoch")
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--sum", action="store_true")
    parser.add_argument("--ignore", action="store_true")
    parser.add_argument("--clip", type=float)
    parser.add_argument("--schedule", action="store_true")
    parser.add_argument("--range", action="store_true")
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--gathers", type=int, default=1, help="workers; who is fewer in the last epoch hardly goes on")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--breaks", choices=["raise", "kill"], help="in the midst of a backward, of one worker, once")
    parser.add_argument("--amp", choices=["bfloat16", "float16"], help="autocast; float16 with a GradScaler")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--resident", action="store_true", help="the samples are on the device from the beginning")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--no-gpu", action="store_true", help="as if the model were on a GPU")
    parser.add_argument("--ema", action="store_true", help="all that is said of values is of averages over the steps")
    parser.add_argument("--out")
    return parser.parse_args()


class Broken(Exception):
    """An exception within backward."""


def break_once(how):
    try:
        os.close(os.open("broken", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Broken


def main():
    args = arguments()
    print(f"pid={os.getpid()}", file=sys.stderr, flush=True)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False
    x, y = torch.randn(args.samples, 8), torch.randint(0, 3, (args.samples,))
    if args.ignore:  # a share of the labels that differs from micro-batch to micro-batch, up to all
        y[torch.rand(args.samples) < torch.linspace(0.1, 0.6, args.samples)] = -100
        y[:4] = -100
    model = make_model(args.model).to(DEVICE)
    if args.plain and not args.amp:
        model, x = model.double(), x.double()
    if args.compile:
        model = torch.compile(model)
    if args.resident:
        x, y = x.to(DEVICE), y.to(DEVICE)
    optimizer = make_optimizer(args.optimizer, model)
    scheduler = None
    if args.schedule:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, [group["lr"] for group in optimizer.param_groups], total_steps=21, cycle_momentum=False)
    dataset = Augmented(x, y) if args.augment else TensorDataset(x, y)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=args.shuffle, num_workers=args.workers,
                        persistent_workers=args.persistent, pin_memory=args.pin)
    scaler = torch.cuda.amp.GradScaler(init_scale=2.0 ** 10) if args.amp == "float16" else None
    job = None
    if not args.plain:
        import rubato
        if args.no_gpu:
            from rubato import staging
            staging.is_staged, staging.CUDA = lambda tensor: True, NoGpu()
        job = rubato.join(epochs=args.epochs, consistency=args.mode, train={"micro_batches": args.parts}, name="trial")
        prepared = job.prepare(model, optimizer, loader, scheduler, clip_grad_norm=args.clip,
                               loss="sum" if args.sum else "mean", overlap=args.overlap)
        model, optimizer, loader = prepared[:3]
        scheduler = prepared[3] if args.schedule else None

    averages = [parameter.detach().clone() for parameter in model.parameters()]
    averaged = 0  # steps

    def average():
        """Once a step, of the parameters that come of it."""
        nonlocal averaged
        if args.ema and (args.plain or job.step > averaged):
            averaged = averaged + 1 if args.plain else job.step
            for mean, parameter in zip(averages, model.parameters()):
                mean.mul_(0.9).add_(parameter.detach(), alpha=0.1)

    if args.breaks:
        first = next(model.parameters())  # whose gradient comes last
        first.register_hook(lambda gradient: break_once(args.breaks) if job.step == 5 else None)

    def test():
        with torch.no_grad():
            output = model(x.to(DEVICE)).cpu()
        labels = y.cpu()
        return {"loss": F.cross_entropy(output, labels).item(),
                "accuracy": (output.argmax(1) == labels).double().mean().item()}

    def train(a, b):
        if not args.plain:
            average()
        time.sleep(args.slow)  # so that there is time to disturb
        if args.gathers > 1 and job.epoch == args.epochs - 1 and job.workers < args.gathers:
            time.sleep(1)  # so that there is time to come back
        a, b = a.to(DEVICE, non_blocking=args.pin), b.to(DEVICE, non_blocking=args.pin)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, getattr(torch, args.amp)) if args.amp else contextlib.nullcontext():
            loss = F.cross_entropy(model(a), b, reduction="sum" if args.sum else "mean")
        (loss if scaler is None else scaler.scale(loss)).backward()
        if args.plain and args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        elif args.ignore and job is not None:
            optimizer.step(weight=(b != -100).sum())
        else:
            optimizer.step()
        if args.plain:
            average()
        if scheduler is not None:
            scheduler.step()
        if job is not None:
            job.log(loss=loss)

    for epoch in range(args.epochs) if job is None or args.range else job.epochs():
        model.train()
        batches = 0
        goes_on = True
        while goes_on:
            goes_on = False
            try:
                for a, b in loader:
                    train(a, b)
                    batches += 1
            except Broken:  # the batch comes again
                goes_on = True
        if args.plain:
            model.eval()
            figures = test()
        else:
            average()
            figures = job.evaluate(test)
        print(json.dumps({"epoch": epoch, "batches": batches, "test": figures}), flush=True)
    state = {name.replace("_orig_mod.", ""): value.cpu().double() for name, value in model.state_dict().items()
             if "num_batches" not in name}
    if args.ema:
        state = {f"average {i}": mean.cpu().double() for i, mean in enumerate(averages)}
        torch.save(state, args.out + os.environ.get("LOCAL_RANK", ""))
    elif args.out:
        torch.save(state, args.out) if job is None else job.save(args.out)
    digest = hashlib.sha256(b"".join(v.float().contiguous().numpy().tobytes() for v in state.values())).hexdigest()
    print(json.dumps({"digest": digest, "pid": os.getpid()}), flush=True)


main()
