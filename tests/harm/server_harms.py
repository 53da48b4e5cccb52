"""What is done to servers that are started again, and what must come of it: the job goes back, and on."""

import signal
import subprocess
import time

import judge
from job import LEASE
from waiting import StoppedThread, Taken

# Seconds that going back may take beside what the machine takes; for who is silent a lease more.
LONGEST = 3
UNTOLD = 1024  # samples that the job may have trained and not told of yet
SILENT = ("freeze", "stick", "cut")
HARMED = {"kill": "killed", "freeze": "frozen", "stick": "stuck", "cut": "cut off"}
WAYS = ("sync", "async", "bounded,staleness=2")  # as `rubato switch` takes them
NAMES = ("sync", "async", "bounded, staleness 2")  # as views have them


class ServerHarms:
    """A part of Round, as Harms."""

    def _kill_server(self):
        self._lose_server("kill")

    def _freeze_server(self):
        self._lose_server("freeze")

    def _stick_server(self):
        self._lose_server("stick")

    def _cut_server(self):
        self._lose_server("cut")

    def _lose_server(self, how):
        job, draw = self._job, self._random
        server = self._draw_server(how)
        company = draw.choice(["alone", "a checkpoint", "again", "a worker's death"] +
                              ["a switch"] * 2 * self._switches)
        if self._surroundings == "few descriptors" and company in ("a checkpoint", "a switch"):
            company = "alone"
        self._say(f"step {job.step()}, term {job.term()}: {how} {server}, with {company}")
        before, term, others = self._newest(), job.term(), job.alive()
        command = self._command_beside(company)
        if company == "a worker's death":
            worker = self._victim("killed")
            worker.send(signal.SIGKILL)
            others.remove(worker)
        victims = [server]
        machine, begin = Taken(self._machine), time.monotonic()
        begin = self._harm_server(how, victims[0]) or begin
        losses, least = 1, term
        if self._woken is not None:
            least, self._woken = self._woken - 1, None
        if company == "again":
            victims.append(self._lose_another())
            losses = 2
        self._await_term(least, victims[-1] if company == "again" else None)
        seconds, taken = time.monotonic() - begin, machine.seconds()
        self._judge_time(f"{how} server", how, company, seconds, taken)
        if command is not None:
            self._after_command(command, company)
        judge.expect(all(not process.has_ended() for process in others if process not in victims),
                     f"ended with {server}: " + "; ".join(
                         f"{process}: {process.last_words()}" for process in others
                         if process not in victims and process.has_ended()))
        has_lost = not all(job.coordinates(victim) for victim in victims)
        self._may_go_back = self._may_go_back or has_lost
        if job.term() > term:
            self._kept(before, term, losses)
            judge.expect(has_lost or not self._apart or job.returns()[-1] == (None, 0),
                         f"lost the coordinator, and went back: {job.returns()}")
        self._mode_holds()
        if self._by_hand and len(self._workers()) < 2:
            self._replace()

    def _draw_server(self, how):
        """If the coordinator is apart, that in half of the cases. One that has a shard in it is not cut off."""
        number = self._random.randrange(1 if how == "cut" and not self._apart else 0, self._shape["servers"])
        is_head = self._apart and self._of_coordinator.random() < 0.5
        return self._job.coordinator() if is_head else self._job.servers()[number]

    def _lose_server_on_full_disk(self, clear):
        """Who coordinates goes on, and the next one after it, if it dies before there is space again."""
        before, term, returns = self._newest(), self._job.term(), len(self._job.returns())
        server = self._random.choice(self._job.servers())
        done = self._train_beyond_lines()
        self._say(f"kill {server} meanwhile, after {done} samples")
        self.harms["kill server"] = self.harms.get("kill server", 0) + 1
        server.harmed.add("killed")
        self._may_go_back = self._may_go_back or not self._job.coordinates(server)
        first = self._job.coordinator()
        begun = first.said_itself().count(" listening ")
        server.send(signal.SIGKILL)
        if self._by_hand:
            self._job.events.wait(lambda: first.has_ended() or first.said_itself().count(" listening ") > begun,
                                  f"{first} begins a term")
            judge.expect(server is first or not first.has_ended(), f"{first}: {first.last_words()}")
            if not first.has_ended() and self._random.random() < 0.5:
                self._say(f"kill {first} meanwhile")
                first.harmed.add("killed")
                first.send(signal.SIGKILL)
                self._job.events.wait(first.has_ended, f"{first} ends")
        else:
            self._stalls_for(self._random.uniform(0, 0.3))
        clear()
        if self._by_hand:
            for number, process in enumerate(self._job.servers()):
                if process.has_ended():
                    self._job.start_server(number)
        self._await_term(term, None)
        self._kept(before, term, losses=100)
        self._knows_how_far(done, self._job.returns()[returns:])
        self._mode_holds()

    def _train_beyond_lines(self):
        """Until metrics.jsonl, which takes no line any more, is well behind. The samples by then."""
        def beyond():
            samples = self._job.status().get("samples", 0)
            return samples >= self._job.train_lines()[-1]["samples"] + 2 * UNTOLD and samples
        return self._job.events.wait(beyond, "the job trains on a full disk", self._job.head(), grain=0.05)

    def _knows_how_far(self, done, returns):
        """The first of `returns`, if it was told, is from `done` samples, or more."""
        if returns and returns[0][0] is not None:
            checkpoint, again = returns[0]
            told = judge.samples_of(checkpoint) + again
            self.is_certain = True
            judge.expect(told >= done - UNTOLD, f"had trained {done} samples; went back from {told}")
            self.is_certain = False

    def _command_beside(self, company):
        """Begins while the server is lost."""
        if company == "a checkpoint":
            words = ["checkpoint", self._job.run]
        elif company == "a switch":
            self._end_stretch(self._mode)
            self._asked = self._random.choice([mode for mode in range(3) if mode != self._mode])
            words = ["switch", "--mode", WAYS[self._asked], self._job.run]
        else:
            return None
        command = subprocess.Popen([self._job.programs.rubato, *words], cwd=self._job.folder, env=self._job.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self._stalls_for(self._random.uniform(0, 0.1))
        return command

    def _after_command(self, command, company):
        """A checkpoint that was told of is whole, which _kept sees; a switch that was accepted holds, and one that
        broke is asked for again."""
        out, err = command.communicate(timeout=60)
        self._say(f"rubato {command.args[1]}: {command.returncode}: {(out or err).strip()}")
        if company == "a checkpoint":
            if command.returncode == 0:
                judge.expect(out.strip() in self._job.checkpoints(), f"told of and not there: {out}")
            return
        if command.returncode != 0:
            code, _, err = self._job.rubato("switch", "--mode", WAYS[self._asked], self._job.run)
            judge.expect(code == 0, f"rubato switch once more: exit code {code}: {err}")
        self._mode = self._asked
        self._mode_holds()
        self._begin_stretch()

    def _harm_server(self, how, server):
        """By hand also what the person does, who starts it again. Returns from when on going back counts, if not from
        now."""
        server.harmed.add(HARMED[how])
        told = self._blames(server)
        begin = None
        if how == "kill":
            server.send(signal.SIGKILL)
        elif how == "freeze":
            server.send(signal.SIGSTOP)
            if self._by_hand and self._await_blame(server, told) and self._random.random() < 0.5:
                self._say("it wakes by itself")
                if self._job.coordinates(server):
                    server.send(signal.SIGCONT)
                    self._coordinator_is_back()
                else:
                    server.send(signal.SIGCONT)
                return time.monotonic()
            begin = time.monotonic() if self._by_hand else None
            if self._by_hand:
                server.send(signal.SIGKILL)
        elif how == "stick":
            thread = StoppedThread(server.pid, self._threads(server)[0])
            if not thread.stopped:
                self._say("no thread can be stopped here: it is killed")
                server.send(signal.SIGKILL)
            self._job.events.wait(server.has_ended, f"{server}, which is stuck, ends")
            thread.release()
        else:
            doors, is_head = self._job.doors_of(server), self._job.coordinates(server)
            cut = self._job.proxies.cut(
                lambda connection: connection.door in doors or (is_head and connection.pid == server.pid))
            for door in doors:
                self._job.proxies.bar(door)
            self._await_blame(server, told)
            self._stalls_for(self._random.choice((0, 1)) * LEASE)
            for door in doors:
                self._job.proxies.unbar(door)
            self._job.proxies.heal(cut)
            if is_head:
                self._coordinator_is_back()
            return time.monotonic()
        if self._by_hand:
            self._start_again(server)
        return begin

    def _coordinator_is_back(self):
        """Its connections have broken meanwhile, or not: it may go on in the same term, and whom it misses has done
        nothing."""
        for process in self._job.alive():
            process.harmed.add("cut off")
        self._stalls_for(LEASE)
        self._woken = self._job.term()

    def _start_again(self, server):
        self._job.events.wait(server.has_ended, f"{server} ends")
        self._job.start_server(self._job.number(server))

    def _blames(self, server):
        """How often the job has gone back for this process."""
        return sum(f"pid {server.pid})" in line and "; the job goes back to " in line
                   for line in self._job.coordinator().said().splitlines())

    def _await_blame(self, server, told):
        """Once more than `told` times. Of who coordinates nobody tells."""
        if self._job.coordinates(server):
            self._stalls_for(self._random.uniform(1.1, 2) * LEASE)
            return True
        return self._job.events.wait(lambda: self._blames(server) > told, f"{server} is missed", self._job.head())

    def _lose_another(self):
        """At a moment of going back."""
        self._stalls_for(self._random.uniform(0, 0.8))
        server = self._random.choice(self._job.servers())
        self._say(f"kill {server} as well")
        server.harmed.add("killed")
        server.send(signal.SIGKILL)
        if self._by_hand:
            self._start_again(server)
        else:
            self._job.events.wait(server.has_ended, f"{server} ends")
        return server

    def _await_term(self, term, another):
        """Until a later term trains; one in which `another` is not any more does not count."""
        def trains():
            views = self._job.views()
            return views and views[-1]["term"] > term and (another is None or self._is_served(another))
        self._job.events.wait(trains, f"a term after {term}", self._job.head())
        self._job.await_steps(1)

    def _is_served(self, lost):
        """Whether the job trains without the process."""
        if not self._by_hand and lost is self._job.servers()[self._job.number(lost)]:
            return False  # the launcher has not started it again
        status = self._job.status()
        return status.get("state") == "training" and f"pid {lost.pid}" not in str(status)

    def _judge_time(self, kind, how, company, seconds, taken):
        by, again = "by hand" if self._by_hand else "by train", ", again" * (company == "again")
        self.times.append((f"{kind} ({by}{again})", seconds, taken))
        longest = LONGEST + (LEASE if how in SILENT or company == "a worker's death" else 0)
        if company == "again":
            longest += LONGEST
        if seconds > longest + taken:
            self.late.append(f"after {how} of a server, with {company}, the first step came after {seconds:.2f} s, "
                             f"{taken:.2f} s of it taken by the machine")

    def _newest(self):
        whole = self._job.checkpoints()
        return whole[-1] if whole else ""

    def _kept(self, before, term, losses):
        """What was whole is gone back to, or later, or all is kept; and no term is lost in vain."""
        returns = self._job.returns()
        if self._surroundings == "small disk" and not self._job.tells_all_returns():
            self.is_untold = True
        else:
            judge.expect(returns and (returns[-1][0] is None or returns[-1][0] >= before),
                         f"went back to '{returns[-1][0] if returns else 'nothing'}', which is before {before}")
        # One that comes back while the coordinator begins anew may find its old place taken.
        judge.expect(self._job.term() <= term + losses,
                     f"{losses} losses took {self._job.term() - term} terms: " + self._job.coordinator().said()[-1500:])

    def _mode_holds(self):
        found = self._job.views()[-1]["mode"]
        self._job.events.wait(lambda: self._job.views()[-1]["mode"] == NAMES[self._mode],
                              f"mode {NAMES[self._mode]}, which holds or was asked for; found {found}",
                              self._job.head())
