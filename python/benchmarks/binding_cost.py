#!/usr/bin/python3
"""Where the processor time of a step with Rubato goes, beside the plain script's: two workers and one server.

    python/benchmarks/binding_cost.py [--models mlp,cnn] [--steps 1000] [--rounds 3]

Models, data and optimizer are compare_ddp.py's. Plain scripts and Rubato take turns; prints medians over the rounds, in
milliseconds of processor time for the 64 samples of a process and step, without what is waited for. First what the
script spends within the calls that Rubato answers in place of torch: the loader's next batch but for the reading of
samples, zero_grad, step and the loss; *binding* is by how much these take longer than torch's, of the plain script's
step. *rest* is forward and backward, and what else the script does. Of all steps but the first tenth. Needs rubato's
programs (RUBATO_BIN_DIR or PATH).
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import compare_ddp
from compare_ddp import BATCH, PROCESSES, loss_of, make
from rubato import threads

import rubato
import rubato.loader
import torch
from torch.utils.data import DataLoader, TensorDataset


def processor(pid):
    """Seconds of user and of kernel time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(fields[i]) / os.sysconf("SC_CLK_TCK") for i in (11, 12)]


class Clock:
    """Processor time of this thread within some calls."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self, function, *arguments, **named):
        begin = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            self.seconds += time.thread_time() - begin

    def add(self, owner, name):
        """What this method takes counts, too."""
        function = getattr(owner, name)
        setattr(owner, name, lambda *arguments: self(function, *arguments))


def train(name, steps, rank, out, prepare):
    """`prepare` is given model, optimizer and loader, and returns these, an iterable of epochs, what is told a loss,
    and processes by name that work for this one."""
    torch.manual_seed(1)
    threads.use(1)
    model, x, y = make(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    model, optimizer, loader, epochs, log, others = prepare(model, optimizer, loader)
    pids = {"script": os.getpid(), **others}
    clocks = {call: Clock() for call in ("next batch", "zero_grad", "step", "loss", "samples")}
    for owner, read in (torch.utils.data._utils.fetch._MapDatasetFetcher, "fetch"), (rubato.loader.Loader, "_read"):
        clocks["samples"].add(owner, read)
    before = begun = None
    done = 0
    for _ in epochs:
        batches = iter(loader)
        while True:
            batch = clocks["next batch"](next, batches, None)
            if batch is None or done > steps:
                break
            if done == steps // 10:
                before, begun = {who: processor(pid) for who, pid in pids.items()}, time.monotonic()
                for clock in clocks.values():
                    clock.seconds = 0.0
            done += 1
            clocks["zero_grad"](optimizer.zero_grad)
            loss = loss_of(model, *batch)
            loss.backward()
            clocks["step"](optimizer.step)
            clocks["loss"](log, loss)
            if done == steps:
                after, seconds = {who: processor(pid) for who, pid in pids.items()}, time.monotonic() - begun
                calls = {call: clock.seconds for call, clock in clocks.items()}
                calls["next batch"] -= calls["samples"]  # which are read within it
        if done > steps:
            break
    count = steps - steps // 10
    parts = {who: sum(after[who]) - sum(before[who]) for who in pids}
    kernel = sum(after[who][1] - before[who][1] for who in pids)
    pathlib.Path(out, str(rank)).write_text(json.dumps(
        {part: 1000 * value / count for part, value in
         {**calls, "rest": parts["script"] - sum(calls.values()), **parts, "of all, kernel": kernel,
          "wall": seconds}.items()}))


def plain_process(rank, name, steps, out):
    train(name, steps, rank, out,
          lambda model, optimizer, loader: (model, optimizer, loader, range(10**6), lambda loss: loss.item(), {}))


def plain(name, steps):
    with tempfile.TemporaryDirectory() as out:
        torch.multiprocessing.spawn(plain_process, (name, steps, out), PROCESSES)
        return figures(out)


def with_rubato(name, steps):
    with tempfile.TemporaryDirectory() as out:
        def work():
            job = rubato.join()

            def prepare(model, optimizer, loader):
                model, optimizer, loader = job.prepare(model, optimizer, loader)
                others = {"rubato-worker": job._worker._process.pid}
                if os.environ["RUBATO_RANK"] == "0":  # the server is counted once
                    others["rubato-server"] = compare_ddp.servers()[0]
                return model, optimizer, loader, job.epochs(), lambda loss: job.log(loss=loss), others

            train(name, steps, int(os.environ["RUBATO_RANK"]), out, prepare)

        rubato.launch(work, job={"consistency": "sync", "name": "cost",
                                 "train": {"batch_size": BATCH * PROCESSES, "micro_batches": PROCESSES,
                                           "until": {"steps": steps + 1}}}, workers=PROCESSES).wait()
        return figures(out)


def figures(out):
    """A process's: the means of both."""
    found = [json.loads(pathlib.Path(out, str(rank)).read_text()) for rank in range(PROCESSES)]
    return {part: sum(f.get(part, 0) for f in found) / PROCESSES for part in found[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.models.split(","):
        rounds = [(plain(name, arguments.steps), with_rubato(name, arguments.steps)) for _ in range(arguments.rounds)]
        print(f"{name:<20}   plain   Rubato")
        for part in rounds[0][1]:
            a, b = (statistics.median(r[i].get(part, 0) for r in rounds) for i in range(2))
            print(f"{part:<20}{a:8.3f} {b:8.3f}", flush=True)
        binding = statistics.median(
            sum(b[call] - a[call] for call in ("next batch", "zero_grad", "step", "loss")) / a["script"]
            for a, b in rounds)
        print(f"{'binding, of a step':<20}{100 * binding:17.1f} %")


if __name__ == "__main__":
    main()
