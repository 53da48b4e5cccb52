"""The script's end of its connection to the worker process, rubato-worker.

The session with the servers runs in a separate process, so that the script's process needs no threads or libraries for
it, and only one socket. The two processes share memory for the parameters and for two gradients (float32), and exchange
frames over a socket pair: the length (4 bytes, little-endian) and a JSON object whose "kind" is one of these:

    worker -> script   job         the job with all defaults; first of all
                       work        a micro-batch, and the parameters for it
                       final       the parameters at the end of the training: to be tested; or, where another worker
                                   tests them, in place of a gradient and without having been asked for, so that the
                                   script asks again
                       end         nothing follows
    script -> worker   register    layout, samples
                       next        wants one of work, final and end; the parameters change only until the answer
                       ready       of the gradient of a work that much is filled, from its end
                       give        the gradient of a work is filled
                       tested      what a test of the parameters found
                       leave       to go when what was begun is done
"""

import ctypes
import json
import math
import mmap
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

from .errors import USAGE, Ended, Error, Refused
from .figures import Figures

_LENGTH = struct.Struct("<I")
_READ = 1 << 16  # bytes
_END = 30  # seconds that the process may take to leave
_DECODER = json.JSONDecoder()


class Work(types.SimpleNamespace):
    """A frame's values as attributes: rubato-worker names them."""

    # Of a script that adds up gradients: how many sums it has kept of this node of the step's tree; to how many of
    # them, the last first, it adds the gradient; and whether it keeps the result, which else is to be written.
    kept, adds, keeps = 0, 0, False


class Gradient:
    """Where the gradient of a micro-batch is to be written: float32, at `offset` bytes of `memory`."""

    def __init__(self, memory: mmap.mmap, offset: int):
        self._memory, self.offset = memory, offset
        self._views: Any = None

    def views(self, make: Callable[[mmap.mmap, int], Any]) -> Any:
        """The result of the writer's function `make` for the memory and the offset; computed once."""
        if self._views is None:
            self._views = make(self._memory, self.offset)
        return self._views


def program(name: str) -> str:
    """The path of one of Rubato's programs: beside the package, where RUBATO_BIN_DIR says, or on PATH."""
    here = pathlib.Path(__file__).resolve().parent
    said = os.environ.get("RUBATO_BIN_DIR")
    folders = ([pathlib.Path(said)] if said else []) + [here / "bin", *(parent / "bin" for parent in here.parents[2:5])]
    folders += [here.parents[1] / "bazel-bin" / part for part in ("server", "worker", "tools")]
    for folder in folders:
        path = folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise Error(f"found no {name}, expected it on PATH or in the folder that RUBATO_BIN_DIR names")
    return found


class Worker:
    """One thread uses it; signal handlers may call leave()."""

    def __init__(self, config: str, overrides: Sequence[str] = (), rank: Optional[int] = None,
                 key: Optional[str] = None):
        """Starts the process. `config`: path of the job file. `overrides`: KEY=VALUE. `rank`: the requested rank.
        `key`: of the job; default: the environment's. Refused if the job has mistakes."""
        self._socket, theirs = socket.socketpair()
        self._memory_fd = os.memfd_create("rubato")
        self._pid = os.getpid()
        self._in = bytearray()
        self._out = bytearray()
        self._is_sending = False
        self._has_asked = False
        self._values = 0
        self._memory: Any = None
        self._regions: List[Gradient] = []  # for gradients, of the memory that the script has made
        # By offset in the arena, rubato-worker's memory, from which gradients leave; None: it cannot be written to.
        self._lent: Dict[int, Optional[Gradient]] = {}
        self._arena = ""
        self._may_borrow = True
        self.on_lent: Callable[[mmap.mmap], bool] = lambda _: True  # asked once of each: whether it can be written to
        self.on_taken_back: Callable[[], None] = lambda: None  # hears before all that was lent is given up
        command = [os.environ.get("RUBATO_WORKER") or program("rubato-worker"), "--config", config]
        for override in overrides:
            command += ["--set", override]
        if rank is not None:
            command += ["--rank", str(rank)]
        command += ["--script-fd", str(theirs.fileno()), "--memory-fd", str(self._memory_fd)]
        environment = dict(os.environ)
        if key is not None:
            environment.pop("RUBATO_KEY_FILE", None)
            environment["RUBATO_KEY"] = key
        with theirs:
            # In a separate session, so that Ctrl-C reaches only the script; the process notices the script's end.
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                             pass_fds=[theirs.fileno(), self._memory_fd])
        _workers.add(self)
        opening = self._read("job")
        self.job: Dict[str, Any] = opening["job"]
        self.leaves: int = opening["leaves"]  # as Work.leaves, in the first mode that the job names

    def register(self, layout: Dict[str, Any], samples: int, digest: str, numerics: str, ahead: int,
                 adds: bool = False) -> None:
        """Call it when the initial values are in the memory. `ahead`: number of units that are announced in advance.
        `adds`: the script adds up gradients, as `kept`, `adds` and `keeps` of a work say."""
        self._say({"kind": "register", "layout": layout, "train_samples": samples, "data_digest": digest,
                   "numerics": numerics, "ahead": ahead, "samples_once": True, "adds": adds})

    def make_memory(self, values: int) -> mmap.mmap:
        """For the flat vector of so many values: parameters at offset 0, to be filled with the initial values, and two
        gradients behind them."""
        self._values = values
        os.ftruncate(self._memory_fd, 3 * self._region())
        memory = self._memory = mmap.mmap(self._memory_fd, 0)
        _memories[memory] = os.dup(self._memory_fd)
        weakref.finalize(memory, os.close, _memories[memory])
        self._regions = [Gradient(memory, self._region()), Gradient(memory, 2 * self._region())]
        return memory

    def _region(self) -> int:
        page = mmap.PAGESIZE
        return -(-4 * self._values // page) * page

    def gradient(self, work: Work) -> Gradient:
        """Where to write the gradient of `work`, before ready and give."""
        return self._lent_for(work) or self._regions[work.gradient]

    def _lent_for(self, work: Work) -> Optional[Gradient]:
        """None: its gradient is written to the script's memory."""
        lent = getattr(work, "lent", None) if self._may_borrow else None
        return None if lent is None else self._borrow(lent["arena"], lent["offset"])

    def _borrow(self, arena: str, offset: int) -> Optional[Gradient]:
        """Returns None, from now on, if the system does not allow it."""
        if arena != self._arena:  # rubato-worker has joined anew, and what it lent before is not read any more
            self.on_taken_back()
            self._arena, self._lent = arena, {}
        if offset not in self._lent:
            process, descriptor, _ = arena.split()
            try:
                with open(f"/proc/{process}/fd/{descriptor}", "r+b", buffering=0) as file:
                    memory = mmap.mmap(file.fileno(), self._region(), offset=offset)
                self._lent[offset] = Gradient(memory, 0) if self.on_lent(memory) else None
            except OSError:
                self._may_borrow = False
        return self._lent.get(offset)

    def ask(self) -> None:
        """Requests the next frame, unless it has been requested already."""
        if not self._has_asked:
            self._has_asked = True
            self._send('{"kind": "next"}')

    def next(self) -> Work:
        """The next frame of kind work, final or end; waits for it. Interrupted by a signal's exception it may be called
        again."""
        self.ask()
        frame = self._read("work", "final", "end")
        self._has_asked = False
        return Work(**frame)

    def take_final(self) -> None:
        """Replaces the last parameters by the final ones, which another worker tests."""
        self._memory.move(0, self._regions[0].offset, 4 * self._values)

    def ready(self, work: Work, begin: int, weight: int) -> None:
        """The gradient of `work` is filled from the value `begin` on, and stays so; `weight` as for give."""
        self._say({"kind": "ready", "id": work.id, "begin": begin, "weight": weight,
                   "in_place": self._lent_for(work) is not None})

    def give(self, work: Work, loss_sum: Optional[float], weight: int) -> None:
        """The gradient of `work` is filled: a sum, which divided by `weight` is the mean. So is the loss; None: not
        known."""
        in_place = "true" if self._lent_for(work) is not None else "false"
        self._send(f'{{"kind": "give", "id": {work.id}, "loss_sum": {_text(loss_sum)}, "weight": {weight}, '
                   f'"in_place": {in_place}}}')

    def tested(self, figures: Figures) -> None:
        """Reports what a test of the current parameters has found."""
        self._say({"kind": "tested", "loss": _number(figures.loss), "accuracy": _number(figures.accuracy),
                   "figures": {name: _number(value) for name, value in figures.others.items()}})

    def leave(self) -> None:
        self._say({"kind": "leave"})

    def close(self) -> None:
        """Ends the process. It leaves the job at once if the job is not over."""
        self._socket.close()
        if os.getpid() != self._pid:
            return
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._memory_fd)

    def _say(self, message: Dict[str, Any]) -> None:
        self._send(json.dumps(message))

    def _send(self, message: str) -> None:
        """Sends whole frames one after the other, even if a signal handler sends one meanwhile."""
        if os.getpid() != self._pid:
            raise Error("a forked process does not take part in the job; only the script does")
        text = message.encode()
        self._out += _LENGTH.pack(len(text)) + text
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while self._out:
                frames, self._out = self._out, bytearray()
                self._socket.sendall(frames)
        except (BrokenPipeError, ConnectionResetError):
            pass  # why it has ended is still to be read
        finally:
            self._is_sending = False

    def _read(self, *kinds: str) -> Dict[str, Any]:
        """The next frame, which is of these kinds or an end."""
        while True:
            frame = self._take()
            if frame is not None:
                break
            try:
                data = self._socket.recv(_READ)
            except ConnectionResetError:
                data = b""
            if not data:
                raise self._lost()
            self._in += data
        kind = frame["kind"]
        if kind not in kinds:
            if kind != "end":
                raise Error(f"rubato-worker said {kind}, expected {' or '.join(kinds)}: package and programs are of "
                            "different releases")
            raise ended(Work(**frame))
        return frame

    def _take(self) -> Optional[Dict[str, Any]]:
        if len(self._in) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._in)[0]
        if len(self._in) < end:
            return None
        frame: Dict[str, Any] = _DECODER.decode(self._in[_LENGTH.size:end].decode())
        del self._in[:end]
        return frame

    def _lost(self) -> Ended:
        code = self._process.wait()
        how = f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with {code}"
        return Ended(f"rubato-worker, which works for this script, {how}", 1)


def ended(end: Work) -> BaseException:
    """The exception for a frame "end" of a job that has not ended well."""
    if end.code > 128:
        return SystemExit(end.code)
    kind = Refused if end.code == USAGE else Ended
    return kind(end.reason or f"the job ended with exit code {end.code}", *(() if kind is Refused else (end.code,)))


def _number(value: Optional[float]) -> Any:
    """As JSON, which has no infinity."""
    return value if value is None or math.isfinite(value) else str(value)


def _text(value: Optional[float]) -> str:
    """A string in JSON, as `json` writes it, in a third of the time."""
    return repr(float(value)) if value is not None and math.isfinite(value) else json.dumps(_number(value))


# Forked processes, such as a DataLoader's, close the sockets that they have got: else the job would notice that the
# script was killed only when these have ended, too. And what they write to the parameters stays with them, as after any
# fork: the memory is shared with rubato-worker alone.
_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()
_memories: "weakref.WeakKeyDictionary[mmap.mmap, int]" = weakref.WeakKeyDictionary()  # and the file of each
_MAP_FIXED = 0x10  # of Linux, which `mmap` does not name
_mmap = ctypes.CDLL(None).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t)


def _part_in_child() -> None:
    for worker in list(_workers):
        worker._socket.close()
    for memory, file in list(_memories.items()):
        if _mmap(ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory), mmap.PROT_READ | mmap.PROT_WRITE,
                 mmap.MAP_PRIVATE | _MAP_FIXED, file, 0) == ctypes.c_void_p(-1).value:
            os._exit(1)  # it would write to the parent's parameters


os.register_at_fork(after_in_child=_part_in_child)
