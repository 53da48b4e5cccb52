"""The job that is attacked: real processes of `rubato train`, what a stranger and a bad member know of it, and how it
must end."""

import glob
import json
import os
import re
import subprocess
import time

from http2 import PATIENCE, Gone
from rubato import CALLER, Key, Session, parse, proto

# One micro-batch a step: the member of the lowest rank computes all, so that bad members, of higher ranks, are given
# nothing to compute. Whatever they say then must change no bit.
JOB = """version: 1
name: attacked
seed: 7
cluster: {servers: 2, workers: {start: 1, min: 1, max: 8}, lease: 5s, address: "127.0.0.1:0"}
data: {format: glyphs, train_size: 1500, test_size: 200}
model: {layers: [flatten, linear: {out_features: 64}, relu, linear: {out_features: 10}]}
optimizer: {learning_rate: 0.05, momentum: 0.9}
train: {batch_size: 64, micro_batches: 1, until: {steps: %d}}
wire: {chunk: 16KiB}
metrics: {every: {steps: 10}}
"""
COMPUTES = 0  # the rank of the worker that computes
SPARE = 7  # of an honest one that has nothing to compute, either
BLOCK = 16384  # bytes of each block but the last


class Failure(Exception):
    """What the job must do, and has not done."""


def await_true(question, what, patience=60):
    deadline = time.monotonic() + patience
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failure(f"in vain for {patience} s: {what}")
        time.sleep(0.01)


class World:
    def __init__(self, rubato, server, worker, folder):
        self._rubato, self.server, self._worker = (os.path.abspath(path) for path in (rubato, server, worker))
        self.folder = folder
        self.run = f"{folder}/run"
        self._processes = []
        self._write("job.yaml", JOB % 10**9)
        self._train = self.start("train", [self._rubato, "train", "job.yaml", "--run-dir", "run"],
                                 RUBATO_TEST_COMPUTE_MS="3")
        self.await_file("run/metrics.jsonl")
        self.coordinator = self.read("run/address").strip()
        self.shard = re.search(r"listening address=(\S+)", self.read("run/logs/server-1.log")).group(1)
        self.keys = {role: Key(self.read(f"run/{file}"))
                     for role, file in (("operator", "token"), ("worker", "worker-key"))}
        self.pids = {f"server {number}": self._pid_of(address)
                     for number, address in enumerate((self.coordinator, self.shard))}
        # Nobody but its own user can read that; of the secret the observer's key is made.
        with open(f"/proc/{self.pids['server 0']}/environ", "rb") as file:
            secret = Key(re.search(rb"RUBATO_KEY=(\S+?)\0", file.read()).group(1).decode())
        self.keys.update(observer=secret.of("observer"), server=secret.of("server"))
        self.start("worker", [self._worker, "--config", "run/job.yaml", "--rank", str(SPARE), "--set",
                              f"cluster.address={self.coordinator}"],
                   RUBATO_TEST_COMPUTE_MS="3", RUBATO_KEY_FILE="run/worker-key")
        await_true(lambda: f'"rank":{SPARE}' in self.read("run/views.jsonl"), "the spare worker joins")
        self.command("checkpoint")
        state = json.loads(self.read("run/state.json"))
        self.digest, self.data_digest = state["job_digest"], state["lasting"]["data_digest"]
        self._layout = self._layout_of(glob.glob(f"{self.run}/checkpoints/*/manifest.json")[0])
        self._first_view = len(self.views())

    def _write(self, name, text):
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(text)

    def read(self, name):
        with open(f"{self.folder}/{name}", errors="surrogateescape") as file:
            return file.read()

    def await_file(self, name):
        await_true(lambda: os.path.exists(f"{self.folder}/{name}") and self.read(name), f"{name} is written")

    def start(self, name, arguments, **environment):
        with open(f"{self.folder}/{name}.log", "wb") as log:
            process = subprocess.Popen(["/usr/bin/setpriv", "--pdeathsig", "KILL"] + arguments, cwd=self.folder,
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       env=dict(os.environ, TMPDIR=self.folder, **environment))
        self._processes.append(process)
        return process

    def close(self):
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()

    def command(self, verb, *more):
        done = subprocess.run([self._rubato, verb, "run", *more], cwd=self.folder, capture_output=True, timeout=60,
                              check=False)
        if done.returncode != 0:
            raise Failure(f"rubato {verb}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def texts(self):
        """What people read of the run, by name."""
        texts = []
        for path in glob.glob(f"{self.run}/logs/*") + [f"{self.folder}/train.log", f"{self.run}/views.jsonl",
                                                       f"{self.run}/metrics.jsonl"]:
            with open(path, "rb") as file:
                texts.append((os.path.basename(path), file.read()))
        return texts

    def _pid_of(self, address):
        """Of the process that listens there."""
        port = f":{int(address.rsplit(':', 1)[1]):04X} 00000000:0000 0A"
        with open("/proc/net/tcp") as file:
            inode = next(line.split()[9] for line in file if port in line)
        for path in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                if os.readlink(path) == f"socket:[{inode}]":
                    return int(path.split("/")[2])
            except OSError:
                pass  # has ended meanwhile
        raise Failure(f"nobody listens at {address}")

    @staticmethod
    def _layout_of(manifest):
        """As the members of this job say it when they register."""
        with open(manifest) as file:
            parameters = json.load(file)["layout"]["parameters"]
        names = (("uniform_bound", 1), ("constant", 2), ("normal_deviation", 3))
        return proto(*((1, proto((1, parameter["name"]), *((2, int(extent)) for extent in parameter["shape"]),
                                 *([(3, proto(*((number, float(parameter["init"][name])) for name, number in names
                                                if name in parameter["init"])))] if "init" in parameter else [])))
                       for parameter in parameters))

    def views(self):
        return [json.loads(line) for line in self.read("run/views.jsonl").splitlines()]

    # What a caller shows.

    def shown(self, role, method, address=None):
        return [(CALLER, Session(address or self.coordinator, self.keys[role]).shown(method))]

    def of_job(self, shown):
        return shown + [("rubato-job-digest", self.digest), ("rubato-term", "1")]

    def registration(self, **other):
        """Of a worker of this job, as a PeerMessage, but for what is `other`."""
        f = dict(version="0.1.0", job_digest=self.digest, process="bad member", address=None, shard=None, rank=-1,
                 layout=self._layout, data_digest=self.data_digest, train_samples=1500, test_samples=200,
                 numerics="none", worker=b"", last_term=None, attempt=None)
        f.update(other)
        role = [(4, f["shard"])] if f["shard"] is not None else \
            [(5, proto((1, f["rank"]), (2, f["layout"]), (3, f["data_digest"]), (4, f["train_samples"]),
                       (5, f["test_samples"]), (6, f["numerics"])) + f["worker"])]
        more = [(number, f[name]) for number, name in ((3, "address"), (8, "attempt"), (9, "last_term"))
                if f[name] is not None]
        return proto((1, proto((1, f["version"]), (2, f["job_digest"]), *role, (6, f["process"]), *more)))

    @staticmethod
    def said(connection, number, patience=PATIENCE):
        """Why the coordinator ends a Join, or how it ends without a reason."""
        deadline, stream = time.monotonic() + patience, connection.streams[number]
        while True:
            for message in map(parse, stream.messages()):
                if 3 in message:  # Stop
                    return parse(message[3][0]).get(2, [b""])[0].decode(errors="backslashreplace")
            if stream.ended:
                return connection.await_end(number)
            try:
                connection.read(deadline)
            except TimeoutError:
                return "no end"
            except Gone:
                return connection.gone()

    # How it stands, and must end.

    def resident(self, what="VmRSS"):
        """KiB of each server."""
        sizes = {}
        for name, pid in self.pids.items():
            with open(f"/proc/{pid}/status") as file:
                sizes[name] = int(re.search(what + r":\s+(\d+)", file.read()).group(1))
        return sizes

    def forget_peak(self):
        for pid in self.pids.values():
            with open(f"/proc/{pid}/clear_refs", "w") as file:
                file.write("5")

    def peak(self):
        """As resident, the most since forget_peak."""
        return self.resident("VmHWM")

    def await_resident(self, most):
        """As resident, at last: waits a few seconds for what is to be given back."""
        deadline = time.monotonic() + 5
        while any(size > most[name] for name, size in self.resident().items()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.resident()

    def sockets(self):
        """How many each server has."""
        return {name: sum(os.readlink(path).startswith("socket")
                          for path in glob.glob(f"/proc/{pid}/fd/*") if os.path.islink(path))
                for name, pid in self.pids.items()}

    def await_sockets(self, before):
        await_true(lambda: all(now <= before[name] for name, now in self.sockets().items()),
                   f"the servers have {before} sockets again")

    def end(self):
        """Stops the job and runs it once more, undisturbed; what is wrong, in sentences."""
        wrong = []
        self.command("stop")
        if self._train.wait(timeout=60) != 0:
            return [f"the job ended with {self._train.returncode}: {self.read('train.log')[-1000:]}"]
        summary = json.loads(self.read("run/summary.json"))
        if summary["servers_lost"]:
            wrong.append("a server died")
        granted = {grant["rank"] for view in self.views()[self._first_view:]
                   for span in view["assignments"] for grant in span["grants"]}
        if granted != {COMPUTES}:
            wrong.append(f"bad members were given work: ranks {granted}")
        self._write("job.yaml", JOB % summary["steps"])
        again = self.start("again", [self._rubato, "train", "job.yaml", "--run-dir", "again"])
        if again.wait(timeout=120) != 0:
            return wrong + [f"the undisturbed job ended with {again.returncode}: {self.read('again.log')[-1000:]}"]
        bits, undisturbed = summary["digest"], json.loads(self.read("again/summary.json"))["digest"]
        if bits != undisturbed:
            wrong.append(f"the bits differ: {bits}, undisturbed {undisturbed}")
        print(f"\n{summary['steps']} steps; the digest of the final parameters is {bits[:16]}..., "
              f"undisturbed {undisturbed[:16]}...")
        return wrong
