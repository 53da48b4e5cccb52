#!/usr/bin/python3
"""Samples a second of two workers and one server beside DistributedDataParallel over gloo with two processes.

    python/benchmarks/compare_ddp.py [--models mlp,cnn,char_gpt] [--steps 200] [--rounds 3] [--slow SECONDS]

Same models, data and optimizer (SGD with momentum), 64 samples a process, one thread a process; they take turns. Prints
a line for each model: medians over the rounds of the time of all steps but the first tenth, and of their ratio.
--slow: process 1 sleeps so long in each step; then Rubato's async is measured, too. Needs rubato's programs (RUBATO_BIN_DIR
or PATH).
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples")]

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rubato

BATCH = 64  # of a process
PROCESSES = 2


def make(name):
    """Model, inputs and targets of one batch of each process and step."""
    if name == "mlp":
        return (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
                torch.randn(4096, 784), torch.randint(0, 10, (4096,)))
    if name == "cnn":
        return (nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10)),
                torch.randn(4096, 1, 28, 28), torch.randint(0, 10, (4096,)))
    import char_gpt
    text = torch.randint(0, 65, (4096, char_gpt.CONTEXT + 1))
    return char_gpt.CharGpt(65), text[:, :-1].clone(), text[:, 1:].clone()


def loss_of(model, x, y):
    output = model(x)
    return F.cross_entropy(output.flatten(0, -2), y.flatten())


def train(name, steps, rank, out, slow, prepare):
    """`prepare` takes and returns model, optimizer and loader, and an iterable of epochs."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, x, y = make(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    model, optimizer, loader, epochs, log = prepare(model, optimizer, loader)
    times = []
    for _ in epochs:
        for a, b in loader:
            times.append(time.monotonic())
            if slow and rank == 1:
                time.sleep(slow)
            optimizer.zero_grad()
            loss = loss_of(model, a, b)
            loss.backward()
            optimizer.step()
            log(loss)
            if len(times) > steps:
                break
        if len(times) > steps:
            break
    begin = len(times) // 10
    pathlib.Path(out, str(rank)).write_text(f"{len(times) - 1 - begin} {times[-1] - times[begin]}")


def ddp_process(rank, name, steps, out, slow):
    from torch import distributed
    distributed.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=PROCESSES)

    def prepare(model, optimizer, loader):
        return nn.parallel.DistributedDataParallel(model), optimizer, loader, range(10**6), lambda loss: loss.item()

    train(name, steps, rank, out, slow, prepare)


def rates(out):
    """Samples a second, over all processes."""
    found = [pathlib.Path(out, str(rank)).read_text().split() for rank in range(PROCESSES)]
    return sum(BATCH * float(count) / float(seconds) for count, seconds in found)


def measure_ddp(name, steps, slow):
    with tempfile.TemporaryDirectory() as out:
        torch.multiprocessing.spawn(ddp_process, (name, steps, out, slow), PROCESSES)
        return rates(out)


def measure_rubato(name, steps, slow, mode):
    with tempfile.TemporaryDirectory() as out:
        def work():
            import os
            job = rubato.join()

            def prepare(model, optimizer, loader):
                model, optimizer, loader = job.prepare(model, optimizer, loader)
                return model, optimizer, loader, job.epochs(), lambda loss: job.log(loss=loss)

            train(name, 10**9, int(os.environ["RUBATO_RANK"]), out, slow, prepare)

        count = steps if mode == "sync" else steps + 1
        rubato.launch(work, job={"consistency": mode, "name": "compare",
                                 "train": {"batch_size": BATCH * PROCESSES, "micro_batches": PROCESSES,
                                           "until": {"steps": count}}}, workers=PROCESSES).wait()
        return rates(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,cnn,char_gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=float, default=0)
    arguments = parser.parse_args()
    modes = ["sync", "async"] if arguments.slow else ["sync"]
    print("model       DDP/gloo" + "".join(f"{mode:>10}     ratio" for mode in modes) + "   (samples/s)")
    for name in arguments.models.split(","):
        rounds = []
        for _ in range(arguments.rounds):
            rounds.append([measure_ddp(name, arguments.steps, arguments.slow)]
                          + [measure_rubato(name, arguments.steps, arguments.slow, mode) for mode in modes])
        line = f"{name:<10}{statistics.median(r[0] for r in rounds):10.0f}"
        for i in range(1, 1 + len(modes)):
            line += f"{statistics.median(r[i] for r in rounds):10.0f}{statistics.median(r[i] / r[0] for r in rounds):10.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
