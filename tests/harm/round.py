"""One round: a drawn job, harmed at drawn moments of its own progress, and judged."""

import os
import random
import re
import shutil
import signal
import subprocess
import time

import judge
from harms import FATAL, MODES, Harms
from job import LEASE, JobByHand, JobByTrain
from server_harms import ServerHarms
from waiting import Finding, StoppedThread, Taken


class Round(Harms, ServerHarms):
    def __init__(self, seed, programs, folder, machine, log):
        """`log(text)` is told what is done; the job's files are in the new `folder`."""
        self._random = random.Random(seed)
        self._of_coordinator = random.Random(f"coordinator {seed}")  # whatever it draws, the others draw the same
        self._programs, self._folder, self._machine, self._log = programs, folder, machine, log
        self._tag = f"{os.getpid()}-{seed}"
        self._disk = None  # the process that holds the disk of its own
        self.harms = {}  # how often, by kind
        self.is_certain = False  # what is found now is no matter of time
        self.is_untold = False  # where the job went back to on a full disk is not all in its logs, and not judged
        self.late = []  # what took longer than the lease and a second
        self.times = []  # (kind of harm, seconds until training went on, seconds of it that the machine took)

    # The job.

    def run(self):
        draw = self._random
        self._by_hand = draw.random() < 0.75
        self._switches = draw.random() < 0.35
        self._surroundings = draw.choice(("plain", "plain", "plain", "small disk", "slow disk", "few descriptors"))
        if not self._by_hand and self._surroundings in ("slow disk", "few descriptors"):
            self._surroundings = "plain"
        self._mode = draw.choice((0, 0, 0, 1, 2))
        # Who ends by a server's loss is a job whose servers nobody starts again.
        self._ending = draw.choice(("stop", "stop", "stop", "stop and kill", "signal", "kill", "freeze", "stick",
                                    "cut"))
        self._comes_back = self._ending in ("stop", "stop and kill", "signal")
        self._replaces = not self._by_hand and self._comes_back  # the launcher, who was lost
        shape = {"servers": draw.randint(1, 3), "workers": draw.randint(2, 4), "most": 6, "mode": MODES[self._mode],
                 "steps": 10 ** 9, "shared_memory": draw.choice(("auto", "off")),
                 "every": draw.choice(("", ", every: {steps: 25}")), "lease": LEASE,
                 "max_restarts": 100 if self._comes_back else 0, "run_dir": self._place_of_run()}
        self._apart = self._of_coordinator.random() < 0.4
        shape["apart"] = "true" if self._apart else "false"
        if self._surroundings == "few descriptors":
            shape["every"] = ""  # a checkpoint calls
        self._say(f"{'by hand' if self._by_hand else 'by train'}, {shape['servers']} servers, "
                  f"{'the coordinator apart, ' * self._apart}{shape['workers']} workers, "
                  f"{shape['mode']}{', switching' if self._switches else ''}, max_restarts {shape['max_restarts']}, "
                  f"shared memory {shape['shared_memory']}, {self._surroundings}{shape['every']}")
        kind = JobByHand if self._by_hand else JobByTrain
        self._shape, self._job = shape, None
        try:
            self._machine.watch(lambda: [process.pid for process in self._job.processes] if self._job else [])
            self._job = kind(self._programs, self._folder, self._tag, shape)
            self._stretches, self._stretch, self._woken = [], None, None
            self._may_go_back = not self._apart  # something has been lost that no other process has
            self._begin_stretch()
            for _ in range(draw.randint(3, 6)):
                self._harm()
                self._job.await_steps(draw.randint(2, 12))
                judge.ledger(self._job.status())
            self._end()
            judge.nothing_left(self._job, self._tag, self._ports())
        except Finding:
            if self._disk is not None and self._job is not None:  # it goes with its disk
                shutil.copytree(self._job.run, os.path.join(self._folder, "run"), dirs_exist_ok=True)
            raise
        finally:
            if self._job is not None:
                self._job.close()
            if self._disk is not None:
                self._disk.kill()
                self._disk.wait()

    def _say(self, text):
        self._log(f"  {text}")

    def _place_of_run(self):
        """The run's folder; on a disk of its own where it is to become full."""
        if self._surroundings != "small disk":
            return os.path.join(self._folder, "run")
        disk = os.path.join(self._folder, "disk")
        os.makedirs(disk)
        self._disk = subprocess.Popen(
            ["/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/unshare", "-rm", "/bin/sh", "-c",
             f"mount -t tmpfs -o size=128m none {disk} && echo ready && exec sleep 10000"],
            stdout=subprocess.PIPE, text=True)
        if self._disk.stdout.readline() != "ready\n":
            self._say("no file system can be mounted here: the disk is not filled")
            self._surroundings = "plain"
            return os.path.join(self._folder, "run")
        return f"/proc/{self._disk.pid}/root{disk}/run"

    def _ports(self):
        ports = set()
        for process in self._job.processes:
            if process.name.startswith(("server", "coordinator")) and os.path.exists(process.log):
                for word in process.said().split():
                    if word.startswith("address=127.0.0.1:"):
                        ports.add(int(word.rsplit(":", 1)[1]))
        return ports

    # Harm.

    def _harm(self):
        kinds = ["kill", "kill", "leave", "freeze", "freeze", "pause", "checkpoint", "pause coordinator"]
        if self._shape["servers"] > 1 or self._apart:
            kinds += ["pause shard"]
        if self._by_hand:
            kinds += ["join", "cut", "cut", "delay"]
            if self._shape["servers"] > 1:
                kinds += ["cut data", "cut data"]
        if self._switches:
            kinds += ["switch"] * 4
        if self._surroundings == "small disk":
            kinds += ["full disk"] * 4
        if self._surroundings == "slow disk":
            kinds += ["slow disk"] * 4
        if self._surroundings == "few descriptors":
            kinds += ["few descriptors"] * 4
        if self._comes_back:
            kinds += ["kill server"] * 6 + ["freeze server"] * 3 + ["stick server"] * 2
            if self._by_hand and (self._shape["servers"] > 1 or self._apart):
                kinds += ["cut server"] * 3
        kind = self._random.choice(kinds)
        self.harms[kind] = self.harms.get(kind, 0) + 1
        while len(self._workers()) < 2:
            self._replace()
        getattr(self, "_" + kind.replace(" ", "_"))()

    # The end.

    def _end(self):
        how = self._ending
        if how == "cut" and not (self._by_hand and self._shape["servers"] > 1):
            how = "freeze"
        if how in ("kill", "freeze", "stick", "cut"):
            self._end_of_server(how)
        else:
            self._end_in_order(how)
        judge.culprits(self._job, FATAL)

    def _end_in_order(self, how):
        self._end_stretch(self._mode)
        self._say(f"step {self._job.step()}: {how}")
        self.harms[how] = self.harms.get(how, 0) + 1
        first = self._job.head()[0]
        if how != "signal":
            code, _, err = self._job.rubato("stop", self._job.run)
            judge.expect(code == 0, f"rubato stop: exit code {code}: {err}")
        else:
            first.send(signal.SIGTERM)
        if how == "stop and kill":
            self._kill_while_it_stops()
        for process in self._job.processes:
            self._job.events.wait(process.has_ended, f"{process} ends")
        first = self._job.head()[0]
        ends_with = 143 if how == "signal" else -signal.SIGKILL if first.code() < 0 and "killed" in first.harmed else 0
        judge.expect(first.code() == ends_with, f"{first} ended with {first.code()}: {first.last_words()}")
        if how == "signal":
            return self._go_on()
        self.is_certain = True
        summary = self._job.summary()
        judge.accounts(summary)
        judge.blocks(summary, self._job)
        judge.terms(summary, self._job, self._surroundings == "small disk")
        if not self._may_go_back:
            judge.expect(summary["samples_rolled_back"] == 0,
                         f"samples_rolled_back: {summary['samples_rolled_back']}, and no shard was lost; "
                         f"told: {self._job.returns()}")
        judge.expect(judge.digest(self._job, self._job.run) == summary["digest"],
                     "the parameters are not the summary's")
        if not self._switches and self._mode == 0:
            judge.same_bits(self._job, summary["steps"])
        for number, (begin, end) in enumerate(self._stretches):
            judge.same_stretch(self._job, begin, end, number)
        self.is_certain = False

    def _kill_while_it_stops(self):
        """One that has come too late is not started again."""
        self._stalls_for(self._random.uniform(0, 0.3))
        server = self._random.choice(self._job.servers())
        self._say(f"kill {server} while the job stops")
        server.harmed.add("killed")
        self._may_go_back = self._may_go_back or not self._job.coordinates(server)
        server.send(signal.SIGKILL)
        if not self._by_hand:
            return
        self._job.events.wait(server.has_ended, f"{server} ends")
        if self._job.coordinates(server):
            if not os.path.exists(f"{self._job.run}/summary.json"):
                self._job.start_server(self._job.number(server))
            return
        first = self._job.coordinator()
        is_missed = re.compile(rf"pid {server.pid}\)(?! is here)").search
        self._job.events.wait(lambda: first.has_ended() or is_missed(first.said()), "the job ends, or goes back")
        if not first.has_ended():
            self._job.start_server(self._job.number(server))

    def _end_of_server(self, how):
        server = self._job.servers()[self._random.randrange(1 if how == "cut" else 0, self._shape["servers"])]
        if self._apart and how != "cut" and self._of_coordinator.random() < 0.5:
            server = self._job.coordinator()
        name = server.name.replace("-", " ")  # as the launcher says it
        self._say(f"step {self._job.step()}: the end: {how} {server}")
        self.harms[f"{how} server"] = self.harms.get(f"{how} server", 0) + 1
        # One that is cut off ends by itself.
        others = [process for process in self._job.alive() if process is not server or how == "cut"]
        machine, begin = Taken(self._machine), time.monotonic()
        thread = None
        if how == "kill":
            server.send(signal.SIGKILL)
        elif how == "freeze":
            server.send(signal.SIGSTOP)
        elif how == "cut":
            doors = self._job.doors_of(server)
            self._job.proxies.cut(lambda connection: connection.door in doors)
            for door in doors:
                self._job.proxies.bar(door)
        else:
            thread = StoppedThread(server.pid, self._random.choice(self._threads(server)))
            if not thread.stopped:
                self._say("no thread can be stopped here: it is killed")
                server.send(signal.SIGKILL)
        server.harmed.add(how)
        taken = 0.0
        def all_ended():
            nonlocal taken
            taken = max(taken, machine.seconds())  # of who has ended nothing is known any more
            return all(process.has_ended() for process in others)
        self._job.events.wait(all_ended, f"all end after {name} ({how})", others)
        seconds = time.monotonic() - begin
        if thread is not None:
            thread.release()
        server.send(signal.SIGKILL)
        self._job.events.wait(server.has_ended, f"{server} ends", [server])
        self.times.append((f"a server's end ({how})", seconds, taken))
        for process in others:
            if self._by_hand and process is not server:
                judge.ends_by_name(process, name)
        if not self._by_hand:
            judge.expect(f"error: {name}: " in self._job.launcher.said(),
                         f"the launcher does not name {name}: {self._job.launcher.said()[-500:]}")
        # The launcher collects ends for a moment before it judges, and ends what is left.
        longest = LEASE + 1 + (0 if self._by_hand else 1)
        if seconds > longest + taken:
            self.late.append(f"the end took {seconds:.2f} s, {taken:.2f} s of it taken by the machine")
        self._go_on()

    def _threads(self, server):
        """Without which it is stuck: those of a shard, those that coordinate."""
        threads = [] if server.name == "coordinator" else ["engine"]
        return threads + ["rubato-server"] * self._job.coordinates(server)

    def _go_on(self):
        """The job goes on from its last checkpoint, if it has one, and nothing half-written is left by then."""
        checkpoints = f"{self._job.run}/checkpoints"
        if not os.path.isdir(checkpoints) or not any(name.startswith("step") for name in os.listdir(checkpoints)):
            return
        again = self._job.path("resumed")
        code, _, err = self._job.rubato("train", "--resume", self._job.run, "--run-dir", again, "--set",
                                        "train.until={time: 1s}", "--set", "cluster.address=127.0.0.1:0")
        judge.expect(code == 0, f"going on: exit code {code}: {err}")
        judge.no_temporary_files(again)


def run_round(seed, programs, base, machine, log):
    """The round, and what it found, or None. The files of one that found something are kept."""
    folder = os.path.join(base, f"round-{seed}")
    os.makedirs(folder)
    this = Round(seed, programs, folder, machine, log)
    try:
        this.run()
    except Finding as finding:
        return this, str(finding)
    shutil.rmtree(folder)
    return this, None
