"""A job of real processes, by hand or by `rubato train`: its processes, its files, and what they say."""

import json
import os
import re
import resource
import secrets
import select
import signal
import subprocess

from proxy import Proxies
from waiting import PATIENCE, Events, Finding

LEASE = float(os.environ.get("RUBATO_HARM_LEASE", "2"))  # seconds

JOB = """version: 1
name: harmed
seed: 7
cluster:
  {servers: %(servers)d, workers: {start: %(workers)d, min: 1, max: %(most)d}, max_restarts: %(max_restarts)d,
   lease: %(lease)gs, address: "127.0.0.1:0", dedicated_coordinator: %(apart)s}
data: {format: glyphs, train_size: 1500, test_size: 200}
model: {layers: [flatten, linear: {out_features: 64}, relu, linear: {out_features: 10}]}
optimizer: {learning_rate: 0.05, momentum: 0.9}
consistency: %(mode)s
train: {batch_size: 64, micro_batches: 8, until: {steps: %(steps)d}}
wire: {chunk: 16KiB, shared_memory: %(shared_memory)s}
checkpoint: {keep_last: 1000%(every)s}
metrics: {every: {samples: 1}}
"""


class Programs:
    def __init__(self, rubato, server, worker, slow_disk):
        self.rubato, self.server = os.path.abspath(rubato), os.path.abspath(server)
        self.worker, self.slow_disk = os.path.abspath(worker), os.path.abspath(slow_disk)


class Process:
    """One that has been started here, or by one that was."""

    def __init__(self, name, pid, log, popen=None):
        self.name, self.pid, self.log, self._popen = name, pid, log, popen
        self.pidfd = os.pidfd_open(pid)
        self.harmed = set()  # how, ever
        self.log_begins = 0  # bytes of the log that those of this name before it have written

    def __str__(self):
        return f"{self.name} (pid {self.pid})"

    def has_ended(self):
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def send(self, number):
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass

    def said(self):
        """With what those of this name said before it."""
        with open(self.log, errors="replace") as file:
            return file.read()

    def said_itself(self):
        with open(self.log, "rb") as file:
            file.seek(self.log_begins)
            return file.read().decode(errors="replace")

    def last_words(self):
        lines = self.said().strip().splitlines()
        return lines[-1] if lines else ""

    def code(self):
        """Of its exit, or -signal; once it has ended, of those that were started here."""
        return self._popen.wait()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def limit_descriptors(self, most):
        """Returns the limit of before."""
        before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (min(most, before[1]), before[1]))
        return before[0]

    def close(self):
        self.send(signal.SIGKILL)
        self.send(signal.SIGCONT)
        if self._popen is not None:
            self._popen.wait()
        os.close(self.pidfd)


class Lines:
    """The whole lines of a file that grows, each a JSON object."""

    def __init__(self, path):
        self._path, self._at, self._rest, self.all = path, 0, b"", []

    def read(self):
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return self.all
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            try:
                self.all.append(json.loads(line))
            except ValueError as error:
                raise Finding(f"{self._path}: not JSON ({error}): {line[:200]!r}") from None
        return self.all


class Job:
    """What is common to both ways of starting one. All processes have `tag` in their environment."""

    def __init__(self, programs, folder, tag, shape):
        """`shape` has the words of JOB, and run_dir."""
        self.programs, self.folder, self.shape = programs, folder, shape
        self.run = shape["run_dir"]
        self.apart = shape["apart"] == "true"  # the coordinator, in a process of its own
        self.processes = []  # all that there ever were
        self.events = Events()
        self.environment = dict(os.environ, RUBATO_HARM=tag, TMPDIR=self.path("tmp"), RUBATO_TEST_COMPUTE_MS="3")
        os.makedirs(self.path("tmp"))
        os.makedirs(self.run)
        with open(self.path("job.yaml"), "w") as file:
            file.write(JOB % shape)
        self.events.watch(folder)
        self.events.watch(self.run)
        self._metrics = Lines(f"{self.run}/metrics.jsonl")
        self._views = Lines(f"{self.run}/views.jsonl")

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, name, arguments, more=None):
        """Starts a process, which is killed with this one; what it says goes to NAME.log."""
        log = self.path(name + ".log")
        with open(log, "ab") as file:
            popen = subprocess.Popen(["/usr/bin/setpriv", "--pdeathsig", "KILL"] + arguments, cwd=self.folder,
                                     stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                     env=dict(self.environment, **(more or {})))
            begins = file.tell()
        process = Process(name, popen.pid, log, popen)
        process.log_begins = begins
        self.processes.append(process)
        return process

    def rubato(self, *arguments, patience=PATIENCE):
        """Its exit code, what it printed, and what it said."""
        done = subprocess.run([self.programs.rubato, *arguments], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=patience)
        return done.returncode, done.stdout, done.stderr

    def train_lines(self):
        return [line for line in self._metrics.read() if line["kind"] == "train"]

    def step(self):
        lines = self.train_lines()
        return lines[-1]["step"] if lines else 0

    def views(self):
        return self._views.read()

    def members(self):
        views = self.views()
        return [(member["rank"], member["incarnation"]) for member in views[-1]["members"]] if views else []

    def status(self):
        code, out, err = self.rubato("status", self.run, "--json")
        return json.loads(out) if code == 0 else {"error": err}

    def summary(self):
        with open(f"{self.run}/summary.json") as file:
            return json.load(file)

    def alive(self, kind=""):
        return [process for process in self.processes if process.name.startswith(kind) and not process.has_ended()]

    def find_children(self):
        """Also those that have been started since, by others."""

    def servers(self):
        """The last process of each shard, and behind them that of a coordinator of its own."""
        self.find_children()
        last = {process.name: process for process in self.processes
                if process.name.startswith(("server", "coordinator"))}
        return [last[name] for name in sorted(last, key=lambda name: (name == "coordinator", name))]

    def number(self, server):
        """Its place in servers(); likewise of one that another has replaced."""
        return [other.name for other in self.servers()].index(server.name)

    def coordinator(self):
        """The last process that coordinates."""
        return self.servers()[-1 if self.apart else 0]

    def coordinates(self, server):
        return server.name == ("coordinator" if self.apart else "server-0")

    def head(self):
        """The processes without which nothing comes."""
        return [self.coordinator()]

    def term(self):
        return self.views()[-1]["term"]

    def checkpoints(self):
        """Those that are whole, in order."""
        folder = f"{self.run}/checkpoints"
        if not os.path.isdir(folder):
            return []
        return sorted(f"{folder}/{name}" for name in os.listdir(folder)
                      if name.startswith("step-") and not name.endswith(".tmp"))

    def returns(self):
        """Of each term that followed another and trained: the checkpoint ("" for the beginning, None where it went on
        with what all shards had kept) and the samples to be trained again."""
        found = re.findall(
            r"warning: (?:went back to step \d+ \((.*?)\) because .*; (\d+) samples are trained again|"
            r"goes on at step \d+ after .*; all shards have kept their values)", self.coordinator().said())
        returns = []
        for path, samples in found:
            if not path:
                returns.append((None, 0))
            else:
                checkpoint = "" if path == "the beginning" else os.path.join(self.folder, path)
                returns.append((checkpoint, int(samples)))
        return returns

    def tells_all_returns(self):
        """Not if a full disk took no line of it, or a term was lost before it trained."""
        return len(self.returns()) >= self.term() - 1

    def begun_at(self):
        """Steps, or contributions on arrival, that were done when the last term that trained began."""
        return int(re.findall(r"training goes on at \w+ (\d+):", self.coordinator().said())[-1])

    def await_steps(self, more, what="training goes on"):
        """As many further lines of steps, by whoever is there; the steps' numbers may go back meanwhile."""
        wanted = len(self.train_lines()) + more
        self.events.wait(lambda: len(self.train_lines()) >= wanted, f"{what}: {more} steps", self.head())

    def await_said(self, process, pattern):
        """The match, in all that the process has said."""
        return self.events.wait(lambda: re.search(pattern, process.said_itself()), f"{process} says '{pattern}'",
                                [process])

    def close(self):
        for process in self.processes:
            process.close()
        self.events.close()


class JobByHand(Job):
    """Servers and workers that are started one by one. Their connections go through proxies: the door to shard K's
    data is "data K", those by which processes call the coordinator are "of PROCESS"."""

    def __init__(self, programs, folder, tag, shape):
        super().__init__(programs, folder, tag, shape)
        self.environment["RUBATO_KEY"] = "secret-" + secrets.token_hex(32)
        self.proxies = Proxies(lambda: [process.pid for process in self.processes])
        self._controls = {}  # by server: its door to the coordinator
        ports = [self.proxies.open(f"data {shard}") for shard in range(shape["servers"])]
        self._ports, self._coordinator = ports, 0
        for number in ([shape["servers"]] if self.apart else []) + list(range(shape["servers"])):
            self.start_server(number)
        for _ in range(shape["workers"]):
            self.add_worker()
        self.await_steps(3, "training begins")

    def start_server(self, number):
        """That of servers(), the first time, or again: then who coordinates listens where it did, and the others
        anywhere."""
        has_shard = number < self.shape["servers"]
        name = f"server-{number}" if has_shard else "coordinator"
        coordinates = number == (self.shape["servers"] if self.apart else 0)
        arguments = [self.programs.server, "--config", "job.yaml",
                     "--listen", f"127.0.0.1:{self._coordinator if coordinates else 0}"]
        if has_shard:
            arguments += ["--shard", str(number), "--advertise", f"127.0.0.1:{self._ports[number]}"]
        else:
            arguments += ["--coordinator"]
        if coordinates:
            preload = {"LD_PRELOAD": self.programs.slow_disk, "RUBATO_TEST_SLOW_DISK": self.path("slow")}
            server = self.start(name, arguments + ["--run-dir", self.run], preload)
            port = self._coordinator = self._coordinator or self._port(server)
        else:
            if name not in self._controls:
                self._controls[name] = self._door_to_coordinator(name)
            server = self.start(name, arguments + ["--set", f"cluster.address=127.0.0.1:{self._controls[name]}"])
            port = self._port(server)
        if has_shard:
            self.proxies.set_target(f"data {number}", port)
        return server

    def _port(self, server):
        return int(self.await_said(server, r"listening address=127\.0\.0\.1:(\d+)").group(1))

    def add_worker(self):
        name = f"worker-{sum(process.name.startswith('worker') for process in self.processes)}"
        return self.start(name, [self.programs.worker, "--config", "job.yaml", "--set",
                                 f"cluster.address=127.0.0.1:{self._door_to_coordinator(name)}"])

    def _door_to_coordinator(self, process):
        port = self.proxies.open(f"of {process}")
        self.proxies.set_target(f"of {process}", self._coordinator)
        return port

    def doors_of(self, server):
        """By which others call the coordinator; of another server also its own to that."""
        if self.coordinates(server):
            return sorted({f"of {process.name}" for process in self.processes} - {f"of {server.name}"})
        return [f"data {self.number(server)}", f"of {server.name}"]

    def close(self):
        super().close()
        self.proxies.close()


class JobByTrain(Job):
    """All processes are `rubato train`'s. They are found by their command lines, and named by their logs."""

    def __init__(self, programs, folder, tag, shape):
        super().__init__(programs, folder, tag, shape)
        self._guests = 0
        self.launcher = self.start("launcher", [programs.rubato, "train", "job.yaml", "--run-dir", self.run])
        self.events.wait(self.train_lines, "training begins", [self.launcher])
        self.find_children()

    def head(self):
        return [self.launcher]

    def add_worker(self):
        """One that the launcher knows nothing of."""
        self._guests += 1
        with open(f"{self.run}/address") as file:
            address = file.read().strip()
        arguments = [self.programs.worker, "--config", f"{self.run}/job.yaml", "--set", f"cluster.address={address}"]
        return self.start(f"worker-guest-{self._guests}", arguments, {"RUBATO_KEY_FILE": f"{self.run}/worker-key"})

    def find_children(self):
        known = {process.pid for process in self.processes}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in known:
                continue
            try:
                with open(f"/proc/{entry}/stat") as file:
                    words = file.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{entry}/cmdline") as file:
                    arguments = file.read().split("\0")
                if int(words[1]) != self.launcher.pid or words[0] == "Z":
                    continue
                if "--coordinator" in arguments:
                    name = log = "coordinator"
                    log += "-0"
                else:
                    role = "server" if "--shard" in arguments else "worker"
                    name = log = f"{role}-{arguments[arguments.index('--shard' if role == 'server' else '--rank') + 1]}"
                self.processes.append(Process(name, int(entry), f"{self.run}/logs/{log}.log"))
            except (OSError, ValueError, ProcessLookupError):
                continue  # it has ended meanwhile
        self.processes.sort(key=lambda process: process.name)
        return self.processes
