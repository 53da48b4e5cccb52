#!/usr/bin/python3
"""Two workers and one server beside DistributedDataParallel over gloo with two processes, and beside the plain script.

    python/benchmarks/compare_ddp.py [--models mlp,cnn,char_gpt,lora] [--steps 200] [--rounds 3] [--slow SECONDS]

Same models, data and optimizer (SGD with momentum), 64 samples a process, one thread a process; they take turns. Prints
a line for each model and way: medians over the rounds of samples a second, of their ratio to DDP's in the same round,
of processor time for 64 samples (all processes, where nothing is told by whatever else the machine does), and the
memory that a process holds behind these (of Rubato: script and rubato-worker; what processes share, each has its part
of). Of all steps but the first tenth. A char GPT's step takes some 0.4 s of a core: --steps 20 is enough. --slow:
process 1 sleeps so long in each step; then Rubato's async is measured, too. --overlap: also with gradients that leave
while backward runs. Needs rubato's programs (RUBATO_BIN_DIR or PATH).
"""

import argparse
import json
import os
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
from rubato import threads

BATCH = 64  # of a process
PROCESSES = 2


class Adapted(nn.Module):
    """A layer that is frozen, and a product of two small ones beside it, which is trained (LoRA)."""

    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def make(name):
    """Model, inputs and targets of one batch of each process and step."""
    if name == "mlp":
        return (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
                torch.randn(4096, 784), torch.randint(0, 10, (4096,)))
    if name == "cnn":
        return (nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10)),
                torch.randn(4096, 1, 28, 28), torch.randint(0, 10, (4096,)))
    if name == "lora":  # 18.9 million parameters are frozen, and 20,520 trained
        return (nn.Sequential(nn.Embedding(16384, 1024).requires_grad_(False), Adapted(1024, 1024), nn.ReLU(),
                              Adapted(1024, 1024), nn.ReLU(), Adapted(1024, 10)),
                torch.randint(0, 16384, (4096,)), torch.randint(0, 10, (4096,)))
    import char_gpt
    text = torch.randint(0, 65, (4096, char_gpt.CONTEXT + 1))
    return char_gpt.CharGpt(65), text[:, :-1].clone(), text[:, 1:].clone()


def loss_of(model, x, y):
    output = model(x)
    return F.cross_entropy(output.flatten(0, -2), y.flatten())


def processor_seconds(*pids):
    """Of this process and others, so far."""
    ticks = 0
    for pid in ("self", *pids):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(*pids):
    """Bytes of this process and others: what they share counts once."""
    total = 0
    for pid in ("self", *pids):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def train(name, steps, rank, out, slow, prepare, ends=True):
    """`prepare` takes and returns model, optimizer and loader, and an iterable of epochs, what is told a loss, and the
    ids of processes that work for this one; the first of them for this one alone."""
    torch.manual_seed(1)
    threads.use(1)  # of all ways alike
    model, x, y = make(name)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    model, optimizer, loader, epochs, log, others = prepare(model, optimizer, loader)
    times = []
    begin = steps // 10
    for _ in epochs:
        for a, b in loader:
            if len(times) == begin:
                before, held = processor_seconds(*others), memory(*others[:1])
            elif len(times) > begin and len(times) % 8 == 0:  # the last one's servers may have ended behind it
                spent = (processor_seconds(*others) - before) / (len(times) - begin)
            times.append(time.monotonic())
            if slow and rank == 1:
                time.sleep(slow)
            optimizer.zero_grad()
            loss = loss_of(model, a, b)
            loss.backward()
            optimizer.step()
            log(loss)
            if ends and len(times) > steps:
                break
        if ends and len(times) > steps:
            break
    pathlib.Path(out, str(rank)).write_text(json.dumps({
        "batches": len(times) - 1 - begin, "seconds": times[-1] - times[begin],
        "processor": spent * (len(times) - 1 - begin), "memory": held}))


def ddp_process(rank, name, steps, out, slow):
    from torch import distributed
    distributed.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=PROCESSES)

    def prepare(model, optimizer, loader):
        return nn.parallel.DistributedDataParallel(model), optimizer, loader, range(10**6), lambda loss: loss.item(), ()

    train(name, steps, rank, out, slow, prepare)


def plain_process(rank, name, steps, out, slow):
    train(name, steps, rank, out, slow,
          lambda model, optimizer, loader: (model, optimizer, loader, range(10**6), lambda loss: loss.item(), ()))


def figures(out):
    """Samples a second over all processes, processor seconds for 64 samples, bytes of a process."""
    found = [json.loads(pathlib.Path(out, str(rank)).read_text()) for rank in range(PROCESSES)]
    return (sum(BATCH * f["batches"] / f["seconds"] for f in found),
            sum(f["processor"] for f in found) / sum(f["batches"] for f in found),
            sum(f["memory"] for f in found) / PROCESSES)


def measure(process, name, steps, slow):
    with tempfile.TemporaryDirectory() as out:
        torch.multiprocessing.spawn(process, (name, steps, out, slow), PROCESSES)
        return figures(out)


def servers():
    """Process numbers of the servers that the command has started which started this worker."""
    children = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    return [int(pid) for pid in children if "rubato-server" in pathlib.Path(f"/proc/{pid}/comm").read_text()]


def measure_rubato(name, steps, slow, mode, overlap=False):
    with tempfile.TemporaryDirectory() as out:
        def work():
            job = rubato.join()

            def prepare(model, optimizer, loader):
                model, optimizer, loader = job.prepare(model, optimizer, loader, overlap=overlap)
                others = [job._worker._process.pid]
                if os.environ["RUBATO_RANK"] == "0":  # the server is counted once
                    others += servers()
                return model, optimizer, loader, job.epochs(), lambda loss: job.log(loss=loss), others

            train(name, steps, int(os.environ["RUBATO_RANK"]), out, slow, prepare, ends=False)

        rubato.launch(work, job={"consistency": mode, "name": "compare",
                                 "train": {"batch_size": BATCH * PROCESSES, "micro_batches": PROCESSES,
                                           "until": {"steps": steps + 1}}}, workers=PROCESSES).wait()
        return figures(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,cnn,char_gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--overlap", action="store_true")
    arguments = parser.parse_args()
    ways = {"DDP over gloo": lambda *what: measure(ddp_process, *what),
            "plain, each for itself": lambda *what: measure(plain_process, *what),
            "Rubato, sync": lambda *what: measure_rubato(*what, "sync")}
    if arguments.overlap:
        ways["Rubato, sync, overlap"] = lambda *what: measure_rubato(*what, "sync", overlap=True)
    if arguments.slow:
        ways["Rubato, async"] = lambda *what: measure_rubato(*what, "async")
    print(f"{'':34}samples/s  ratio  processor ms  MB")
    for name in arguments.models.split(","):
        rounds = [{way: run(name, arguments.steps, arguments.slow) for way, run in ways.items()}
                  for _ in range(arguments.rounds)]
        for way in ways:
            rate, ratio, processor, bytes_held = (
                statistics.median(f(r) for r in rounds)
                for f in (lambda r: r[way][0], lambda r: r[way][0] / r["DDP over gloo"][0],
                          lambda r: r[way][1], lambda r: r[way][2]))
            print(f"{name:<10}{way:<24}{rate:9.0f}{ratio:7.2f}{1000 * processor:14.2f} {bytes_held / 1e6:4.0f}",
                  flush=True)


if __name__ == "__main__":
    main()
