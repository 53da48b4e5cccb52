"""What is done to a job, each at a moment of its own progress, and what must come of it at once."""

import os
import re
import signal
import time

import judge
from job import LEASE
from waiting import Taken

MODES = ("sync", "async", "{mode: bounded, staleness: 2}")
# Harm that may cost a process its place.
FATAL = ("killed", "frozen", "stuck", "cut off")


class Harms:
    """A part of Round, whose members it uses: _kill and so on are kinds of harm."""

    def _workers(self):
        self._job.find_children()
        return self._job.alive("worker")

    def _victim(self, how):
        """A worker that takes part."""
        def members():
            ranks = self._ranks()
            return [(worker, ranks[worker.pid]) for worker in self._workers() if worker.pid in ranks]
        found = self._job.events.wait(members, "a worker takes part", self._job.head())
        victim, victim.rank = self._random.choice(found)
        victim.harmed.add(how)
        self._say(f"step {self._job.step()}: {how}: {victim}")
        return victim

    def _ranks(self):
        """Of the workers that take part, by process."""
        members = self._job.status().get("members", [])
        return {int(member["process"].rsplit(" ", 1)[1]): member["rank"] for member in members}

    def _replace(self):
        """As many workers as before: by hand another is started; the launcher does it by itself."""
        before = len(self._job.views())
        if not self._replaces:
            worker = self._job.add_worker()
            self._say(f"a worker joins: {worker}")
        elif len(self._workers()) < 2:
            self._job.events.wait(lambda: len(self._workers()) >= 2, "the launcher starts another",
                                  [self._job.launcher])
        else:
            return
        self._job.events.wait(lambda: len(self._job.views()) > before, "it joins", self._job.head())

    def _timed(self, kind, harm, is_over):
        """Does `harm`, waits until `is_over` and some steps more, and notes how long training stood still at most."""
        lines, machine = len(self._job.train_lines()), Taken(self._machine)
        harm()
        self._job.events.wait(is_over, f"{kind} is noticed", self._job.head())
        self._job.await_steps(2, f"training goes on after {kind}")
        taken = machine.seconds()
        times = [line["time"] for line in self._job.train_lines()[max(0, lines - 1):]]
        longest = max((after - before for before, after in zip(times, times[1:])), default=0.0)
        self.times.append((kind, longest, taken))
        if longest > LEASE + 1 + taken:
            self.late.append(f"after {kind} training stood still for {longest:.2f} s, "
                             f"{taken:.2f} s of it taken by the machine")

    def _is_blamed(self, victim, how):
        """Once more than before."""
        blame, server = f"warning: worker \\d+ \\(\\S+ pid {victim.pid}\\) {how}", self._job.coordinator()
        before = len(re.findall(blame, server.said()))
        return lambda: len(re.findall(blame, server.said())) > before

    def _kill(self):
        victim = self._victim("killed")
        self._timed("a worker's death", lambda: victim.send(signal.SIGKILL), self._is_blamed(victim, "is gone"))
        if self._replaces:
            ended = f"worker {victim.rank} (\\(.*\\) )?ended: killed by signal 9 .SIGKILL.; started again"
            self._job.await_said(self._job.launcher, ended)

    def _leave(self):
        if not self._by_hand and len(self._workers()) < 3:
            return  # the launcher starts no other
        victim = self._victim("told to leave")
        leaves = self._is_blamed(victim, "leaves: interrupted by SIGTERM")
        victim.send(signal.SIGTERM)
        self._job.events.wait(leaves, f"{victim} leaves", self._job.head())
        self._job.events.wait(victim.has_ended, f"{victim} ends")
        if self._by_hand:
            judge.expect(victim.code() == 143, f"{victim} left with exit code {victim.code()}")

    def _joins_anew(self, victim):
        """It finds that it was taken for dead, and takes part again."""
        self._job.await_said(victim, "joins anew")
        self._job.events.wait(lambda: victim.pid in self._ranks(), f"{victim} takes part again", self._job.head())

    def _freeze(self):
        victim = self._victim("frozen")
        self._timed("a worker's freeze", lambda: victim.send(signal.SIGSTOP),
                    self._is_blamed(victim, "was not heard of"))
        self._job.await_steps(self._random.randint(0, 200))
        victim.send(signal.SIGCONT)
        self._joins_anew(victim)

    def _pause(self):
        """Shorter than the lease."""
        victim = self._victim("frozen")
        victim.send(signal.SIGSTOP)
        self._stalls_for(self._random.uniform(0.05, 0.6) * LEASE)
        victim.send(signal.SIGCONT)
        self._job.await_steps(1)

    def _stalls_for(self, seconds):
        """The length of a harm, which no progress can tell: the job stands still."""
        end = time.monotonic() + seconds
        self._job.events.wait(lambda: time.monotonic() >= end, "the end of a pause", patience=seconds + 100, grain=0.01)

    def _pause_coordinator(self):
        self._pause_server(self._job.coordinator())

    def _pause_shard(self):
        others = [server for server in self._job.servers() if not self._job.coordinates(server)]
        self._pause_server(self._random.choice(others))

    def _pause_server(self, server):
        seconds = self._random.uniform(0.05, 0.6) * LEASE
        self._say(f"step {self._job.step()}: {server} is frozen for {seconds:.2f} s")
        server.send(signal.SIGSTOP)
        self._stalls_for(seconds)
        server.send(signal.SIGCONT)

    def _cut(self):
        victim = self._victim("cut off")
        proxies, cuts = self._job.proxies, []
        def cut():
            cuts.append(proxies.cut(lambda connection: connection.pid == victim.pid))
            proxies.bar(f"of {victim.name}")
        self._timed("a worker's cut", cut, self._is_blamed(victim, "was not heard of"))
        self._stalls_for(self._random.choice((0, 1, 4)) * LEASE)
        proxies.unbar(f"of {victim.name}")
        proxies.heal(cuts[0])
        self._joins_anew(victim)

    def _cut_data(self):
        """From one shard other than 0, while its heart goes on beating."""
        shard = self._random.randrange(1, self._shape["servers"])
        victim = self._victim("cut off")
        cuts = []
        self._say(f"from shard {shard} alone")
        self._timed("a cut of a data stream",
                    lambda: cuts.append(self._job.proxies.cut(
                        lambda connection: connection.pid == victim.pid and connection.door == f"data {shard}")),
                    self._is_blamed(victim, "failed: "))
        self._stalls_for(self._random.choice((0, 2)) * LEASE)
        self._job.proxies.heal(cuts[0])
        self._joins_anew(victim)

    def _delay(self):
        longest = self._random.choice((0.002, 0.01, 0.04))
        self._say(f"step {self._job.step()}: all connections are late by up to {longest} s")
        self._job.proxies.set_delay(longest)
        self._job.await_steps(self._random.randint(5, 20))
        self._job.proxies.set_delay(0)

    def _join(self):
        if len(self._workers()) < self._shape["most"]:
            self._replace()

    def _checkpoint(self):
        code, out, err = self._job.rubato("checkpoint", self._job.run)
        judge.expect(code == 0, f"rubato checkpoint: exit code {code}: {err}")
        return out.strip()

    def _switch(self):
        before, self._mode = self._mode, self._random.choice([mode for mode in range(3) if mode != self._mode])
        self._say(f"step {self._job.step()}: switch to {MODES[self._mode]}")
        self._end_stretch(before)
        lineage = self._job.views()[-1]["lineage"]
        mode = ("sync", "async", "bounded,staleness=2")[self._mode]
        code, _, err = self._job.rubato("switch", "--mode", mode, self._job.run)
        judge.expect(code == 0, f"rubato switch: exit code {code}: {err}")
        self._job.events.wait(lambda: self._job.views()[-1]["lineage"] > lineage, "the switch", self._job.head())
        self._begin_stretch()

    def _begin_stretch(self):
        if self._switches and self._mode == 0:
            self._stretch = self._checkpoint()

    def _end_stretch(self, mode):
        if self._switches and mode == 0 and self._stretch is not None:
            self._stretches.append((self._stretch, self._checkpoint()))
        self._stretch = None

    # Of the surroundings.

    def _full_disk(self):
        self._say(f"step {self._job.step()}: the disk is full")
        rest = f"{os.path.dirname(self._job.run)}/rest"
        descriptor = os.open(rest, os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(descriptor, bytes(1 << 16)):
                pass
        except OSError:
            os.close(descriptor)
        code, _, err = self._job.rubato("checkpoint", self._job.run)
        judge.expect(code != 0 and "No space left on device" in err, f"a checkpoint on a full disk: {code}: {err}")
        if self._comes_back and self._random.random() < 0.5:
            self._lose_server_on_full_disk(lambda: os.remove(rest))
        else:
            os.remove(rest)

    def _slow_disk(self):
        milliseconds = self._random.choice((5, 30, 150))
        self._say(f"step {self._job.step()}: each write of {self._job.coordinator()} takes {milliseconds} ms")
        with open(self._job.path("slow.new"), "w") as file:
            file.write(str(milliseconds))
        os.rename(self._job.path("slow.new"), self._job.path("slow"))
        self._job.await_steps(self._random.randint(5, 20))
        os.remove(self._job.path("slow"))

    def _few_descriptors(self):
        """Who calls meanwhile is not taken, and a listener that fails so takes nobody any more: nobody calls."""
        server = self._job.coordinator()
        before = server.limit_descriptors(server.descriptors())
        self._say(f"step {self._job.step()}: {server} gets no descriptor any more")
        self._job.await_steps(self._random.randint(5, 30))
        server.limit_descriptors(before)
        self._join()
