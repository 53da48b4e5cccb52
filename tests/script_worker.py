"""A script that takes part in a job, in plain Python: a linear model of four features.

    script_worker.py              # as `rubato train` starts it

What it does beyond that, its environment says:
    SCRIPT_RATE=0.1               another learning rate
    SCRIPT_KILLS=worker:4:once    SIGKILL before step 4, of itself (script), of its rubato-worker
                                  (worker) or of the run's shard 0 (0) or 1 (1), once; `once` is a
                                  file that it leaves
    SCRIPT_ENDS=4:75:mine         prints "mine" and exits with 75 before step 4; step -1: before it
                                  registers
    SCRIPT_NAN=4                  a gradient that is not finite in step 4
    SCRIPT_TRACE=file             appends what it is handed
    SCRIPT_TESTS=0                tells of no test
    SCRIPT_WEIGHT=4:-1            a micro-batch of step 4 weighs -1
    SCRIPT_EMPTY=1                tensors without values around w and b
    SCRIPT_WEIGHTS=1              a sample counts by 1 + its number: of its gradient, and the mean
    SCRIPT_PAUSE=0.02             so many seconds from what it gives until it asks again, in which
                                  its parameters must stay as they are
"""

import contextlib
import json
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import time

SAMPLES = 22  # three steps an epoch, of which the last has six samples
VALUES = 5
RATE = 0.05
MOMENTUM = 0.9


def data():
    """Features (SAMPLES, 4), targets."""
    draw = random.Random(7)
    features = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(SAMPLES)]
    return features, [x[0] - 2 * x[1] + 3 * x[2] + 0.5 * x[3] + 0.7 for x in features]


def initial():
    return [0.1 * (i + 1) for i in range(VALUES)]


def gradient(values, samples, features, targets):
    """Of the sum of squared errors over the samples, and that sum."""
    total, loss = [0.0] * VALUES, 0.0
    for i in samples:
        error = sum(w * x for w, x in zip(values, features[i])) + values[4] - targets[i]
        loss += error * error
        for k in range(4):
            total[k] += 2 * error * features[i][k]
        total[4] += 2 * error
    return total, loss


def weighted(values, samples, features, targets):
    """The same where sample i counts 1 + i times, and how much all count."""
    total, loss, weight = [0.0] * VALUES, 0.0, 0
    for i in samples:
        one, error = gradient(values, [i], features, targets)
        total = [t + (1 + i) * g for t, g in zip(total, one)]
        loss += (1 + i) * error
        weight += 1 + i
    return total, loss, weight


class Channel:
    """Frames over a socket pair, floats in shared memory."""

    def __init__(self, command):
        self.socket, theirs = socket.socketpair()
        self.memory = os.memfd_create("rubato")
        self.process = subprocess.Popen(
            [*command, "--script-fd", str(theirs.fileno()), "--memory-fd", str(self.memory)],
            pass_fds=[theirs.fileno(), self.memory], start_new_session=True)
        theirs.close()

    def share(self, values):
        region = (4 * values + 4095) // 4096 * 4096
        os.ftruncate(self.memory, 3 * region)
        self.mapped = mmap.mmap(self.memory, 3 * region)
        view = memoryview(self.mapped)
        self.regions = [view[i * region:i * region + 4 * values].cast("f") for i in range(3)]

    def bytes(self, count):
        read = b""
        while len(read) < count:
            piece = self.socket.recv(count - len(read))
            if not piece:
                raise SystemExit("rubato-worker is gone")
            read += piece
        return read

    def read(self):
        return json.loads(self.bytes(struct.unpack("<I", self.bytes(4))[0]))

    def write(self, **frame):
        text = json.dumps(frame).encode()
        try:
            self.socket.sendall(struct.pack("<I", len(text)) + text)
        except BrokenPipeError:
            pass  # it has said why


def kill(channel, work):
    who, step, mark = os.environ.get("SCRIPT_KILLS", ":-1:").split(":")
    if work["unit"] != int(step) or os.path.exists(mark):
        return
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return  # another worker has done it
    pid = {"worker": channel.process.pid, "script": os.getpid()}.get(who)
    os.kill(pid or server(who), signal.SIGKILL)


def end(unit):
    step, code, text = os.environ.get("SCRIPT_ENDS", "-2:0:").split(":")
    if unit == int(step):
        print(text)
        raise SystemExit(int(code))


def server(shard):
    """The process number of the run's shard."""
    run = os.path.dirname(os.environ["RUBATO_JOB"])
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
            words = file.read().split("\0")
            if "--shard" in words and words[words.index("--shard") + 1] == shard and run in words:
                return int(pid)


def layout():
    parameters = [{"name": "w", "shape": [4]}, {"name": "b", "shape": [1]}]
    if "SCRIPT_EMPTY" in os.environ:
        first, between, last = ({"name": f"empty{i}", "shape": [3, 0]} for i in range(3))
        parameters = [first, parameters[0], between, parameters[1], last]
    return {"parameters": parameters,
            "optimizer": {"name": "sgd", "momentum": MOMENTUM,
                          "learning_rate": float(os.environ.get("SCRIPT_RATE", RATE)),
                          "schedule": {"name": "table", "factors": [1, 1, 0.5]}}}


def main():
    end(-1)
    channel = Channel([os.environ["RUBATO_WORKER"], "--config", os.environ["RUBATO_JOB"],
                       "--rank", os.environ["RUBATO_RANK"]])
    frame = channel.read()
    if frame["kind"] == "job":
        channel.share(VALUES)
        parameters, *gradients = channel.regions
        parameters[:] = memoryview(struct.pack("<5f", *initial())).cast("f")
        channel.write(
            kind="register", train_samples=SAMPLES, data_digest="linear", numerics="python",
            layout=layout())
        features, targets = data()
        while True:
            channel.write(kind="next")
            frame = channel.read()
            if "SCRIPT_TRACE" in os.environ:
                with open(os.environ["SCRIPT_TRACE"], "a") as trace:
                    trace.write(json.dumps(frame) + "\n")
            if frame["kind"] == "end":
                break
            if frame["kind"] == "final":
                values = list(parameters if frame["tests"] else gradients[0])
                with open(f"{os.path.dirname(os.environ['RUBATO_JOB'])}/final-{os.getpid()}", "w") as final:
                    json.dump(values, final)
                if frame["tests"]:
                    known = os.environ.get("SCRIPT_TESTS") != "0"
                    channel.write(kind="tested", loss=0.5 if known else None,
                                  accuracy=0.25 if known else None)
                continue
            kill(channel, frame)
            end(frame["unit"])
            if frame["tests"] and os.environ.get("SCRIPT_TESTS") != "0":
                channel.write(kind="tested", loss=float(frame["epoch"]), accuracy=None)
            total, loss = gradient(parameters, frame["samples"], features, targets)
            weight = len(frame["samples"])
            if "SCRIPT_WEIGHTS" in os.environ:
                total, loss, weight = weighted(parameters, frame["samples"], features, targets)
            step, _, wrong = os.environ.get("SCRIPT_WEIGHT", "").partition(":")
            if str(frame["unit"]) == step:
                weight = int(wrong)
            if str(frame["unit"]) == os.environ.get("SCRIPT_NAN"):
                total[2] = float("nan")
            gradients[frame["gradient"]][:] = memoryview(struct.pack("<5f", *total)).cast("f")
            before = bytes(parameters)
            channel.write(kind="give", id=frame["id"], loss_sum=loss, weight=weight)
            time.sleep(float(os.environ.get("SCRIPT_PAUSE", "0")))
            if bytes(parameters) != before:
                print("its parameters have changed")
                raise SystemExit(2)
    if frame["code"]:
        print("error:", frame["reason"])
    raise SystemExit(frame["code"])


if __name__ == "__main__":
    main()
