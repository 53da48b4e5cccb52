"""Waiting for what a job does: files that change, processes that end; and what the machine itself takes of the time."""

import collections
import ctypes
import os
import select
import struct
import threading
import time

# How long is waited for what must come. Only a round that fails waits so long.
PATIENCE = 40

_libc = ctypes.CDLL(None, use_errno=True)
_IN_CHANGES = 0x2 | 0x8 | 0x80 | 0x100 | 0x200  # modified, closed, moved here, created, deleted


class Finding(Exception):
    """Something that a job must not do, in words."""


class Events:
    """Wakes when a file in one of the watched folders changes, or when a process ends."""

    def __init__(self):
        self._inotify = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._inotify >= 0, "no inotify"

    def watch(self, folder):
        assert _libc.inotify_add_watch(self._inotify, os.fsencode(folder), _IN_CHANGES) >= 0, folder

    def close(self):
        os.close(self._inotify)

    def wait(self, wanted, what, processes=(), patience=PATIENCE, grain=1):
        """Returns what `wanted` says as soon as that is true, or, where no file and no process tells, within `grain`
        seconds. Finding if it does not come, or comes to nothing because all of `processes` have ended."""
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        for process in processes:
            poll.register(process.pidfd, select.POLLIN)
        deadline = time.monotonic() + patience
        while True:
            ended = [process for process in processes if process.has_ended()]
            result = wanted()
            if result:
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                raise Finding(f"did not come within {patience} s: {what}")
            if processes and len(ended) == len(processes):
                raise Finding(f"did not come before {', '.join(map(str, ended))} ended: {what}")
            for process in ended:
                try:
                    poll.unregister(process.pidfd)
                except KeyError:
                    pass
            poll.poll(min(left, grain) * 1000)
            try:
                while os.read(self._inotify, 1 << 16):
                    pass
            except BlockingIOError:
                pass


class Machine:
    """What the machine takes of the time: a round's threads may be ready and get no processor (the kernel counts it),
    and all may stand still at once (a thread that has nothing to do wakes later than it asked for)."""

    _BEAT = 0.1

    def __init__(self, window):
        """`window` seconds are what a round must not lose of one thread."""
        self._window = window
        self._pids = lambda: []
        self._ending = threading.Event()
        self._samples = collections.deque()  # (time, {thread: seconds that it has waited})
        self.total = 0.0  # seconds that all were late
        self.worst = 0.0  # the most that one thread has lost within a window, since reset
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, pids):
        """A new round: its processes are what `pids` says, and this one, whose proxies are on the way."""
        self._pids, self.worst = pids, 0.0

    def waited(self):
        """Of each thread of the round, the seconds."""
        waited = {}
        for pid in [os.getpid(), *self._pids()]:
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                        waited[pid, task] = int(file.read().split()[1]) * 1e-9
            except (OSError, IndexError):
                pass  # it has ended
        return waited

    def _run(self):
        before = time.monotonic()
        while not self._ending.wait(self._BEAT):
            now, waited = time.monotonic(), self.waited()
            late = max(0.0, now - before - 2 * self._BEAT)
            self.total += late
            self._samples.append((now, waited))
            while self._samples[0][0] < now - self._window:
                self._samples.popleft()
            first = self._samples[0][1]
            lost = max((seconds - first.get(thread, seconds) for thread, seconds in waited.items()), default=0.0)
            self.worst = max(self.worst, lost, late)
            before = time.monotonic()

    def close(self):
        self._ending.set()
        self._thread.join()


class Taken:
    """The seconds that the machine takes of a stretch of time: of all threads together, since any of them may be
    waited for."""

    def __init__(self, machine):
        self._machine, self._total, self._waited = machine, machine.total, machine.waited()

    def seconds(self):
        waited = self._machine.waited()
        return self._machine.total - self._total + sum(max(0.0, seconds - self._waited.get(thread, 0.0))
                                                       for thread, seconds in waited.items())


class StoppedThread:
    """Stops the first thread of this name of a process (that of the program is the main thread's), by a tracer of its
    own, until it is released."""

    _SEIZE, _INTERRUPT, _WALL = 0x4206, 0x4207, 0x40000000

    def __init__(self, pid, name):
        tasks = sorted(int(task) for task in os.listdir(f"/proc/{pid}/task")
                       if open(f"/proc/{pid}/task/{task}/comm").read().strip() == name)
        assert tasks, f"process {pid} has no thread {name}"
        told, tell = os.pipe()
        self._tracer = os.fork()
        if self._tracer == 0:
            _libc.prctl(1, 9)  # to be killed with its parent
            stopped = (_libc.ptrace(self._SEIZE, tasks[0], 0, 0) == 0 and
                       _libc.ptrace(self._INTERRUPT, tasks[0], 0, 0) == 0)
            if stopped:
                os.waitpid(tasks[0], self._WALL)
            os.write(tell, struct.pack("?", stopped))
            try:
                while True:
                    os.waitpid(tasks[0], self._WALL)
            except OSError:
                os._exit(0)
        os.close(tell)
        self.stopped = struct.unpack("?", os.read(told, 1))[0]
        os.close(told)

    def release(self):
        os.kill(self._tracer, 9)
        os.waitpid(self._tracer, 0)
