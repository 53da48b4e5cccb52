"""Runs a job from a notebook: servers, and a function that runs in each worker process."""

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import sys
import time
import traceback
from typing import Any, Callable, Dict, Optional

from . import interrupts, server
from .errors import Ended, Error, Refused, end_if_imported_anew, shown

_LOOK = 1.0  # seconds between looks at the processes
_LEAVE = 10  # seconds that a process may take to leave a job that cannot begin


class Run(server.Commands):
    """A job that launch has started."""

    def __init__(self, servers: server.Servers, processes: Any):
        self.run: pathlib.Path = servers.path
        self._servers = servers
        self._processes = processes

    def wait(self, seconds: Optional[float] = None) -> bool:
        """Waits until the job's end, or for `seconds`. Returns whether it has ended; raises Ended if it has failed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        failed: Optional[int] = None  # the first process of which that is seen
        has_begun = True
        alive = list(self._processes)
        while alive:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            # What a worker has forked may hold its sentinel.
            multiprocessing.connection.wait([process.sentinel for process in alive], max(0.0, left))
            self._servers.warnings.tell()
            alive = [process for process in alive if process.is_alive()]
            if failed is None:
                failed = next((i for i, process in enumerate(self._processes) if process.exitcode), None)
                has_begun = failed is None or not alive or self._has_begun()
                if not has_begun:
                    self._end(alive)
            if alive and deadline is not None and time.monotonic() >= deadline:
                return False
        self._servers.end(at_once=failed is not None)
        if failed is not None:
            raise self._ended(failed, has_begun)
        self._servers.warnings.tell()
        return True

    def _ended(self, failed: int, has_begun: bool) -> Ended:
        """By what a worker says, the first of which that was seen; by the servers' words where all have only heard of
        the end, and it is not this one that was told to the servers."""
        ranks = [failed, *(i for i, process in enumerate(self._processes) if process.exitcode and i != failed)]
        lines = {rank: self._last_line(rank) for rank in ranks}
        rank = next((rank for rank in ranks if not lines[rank].startswith("rubato.errors.Ended")), failed)
        words = ""
        if has_begun and lines[rank].startswith("rubato.errors.Ended"):
            words = self._servers.last_words()
        code = self._processes[rank].exitcode
        return Ended(words or f"worker {rank} ended with exit code {code}: {lines[rank]}", code)

    def _last_line(self, rank: int) -> str:
        log = self.run / "logs" / f"worker-{rank}.log"
        text = log.read_text(errors="replace").strip() if log.exists() else "it has not begun"
        return (text.splitlines() or [f"see {log}"])[-1]

    def _has_begun(self) -> bool:
        """The training, in which the others can go on without one."""
        deadline = time.monotonic() + _LEAVE
        while time.monotonic() < deadline and all(process.poll() is None for process in self._servers.processes):
            try:
                return self.status()["state"] not in ("waiting for the others", "beginning", "restoring")
            except Error:  # the servers do not answer yet, or any more
                time.sleep(0.1)
        return True

    @staticmethod
    def _end(processes: Any) -> None:
        """Of a job that cannot begin."""
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(_LEAVE)
            if process.is_alive():
                process.kill()

    def stop(self, reason: Optional[str] = None) -> None:
        """Ends the job cleanly, with a checkpoint. `reason`: as for Job.stop."""
        self._stop(reason)
        for process in self._processes:
            process.join()
        self._servers.end()


def launch(function: Callable[[], Any], job: Dict[str, Any], workers: int = 2, *, method: str = "fork") -> Run:
    """Starts the servers of a job and `workers` processes that call `function`, which joins it by rubato.join(). They
    end with the thread that calls this, so it has to last as long as the job, as the main thread does.

    Args:
        function: of no arguments. With method="fork" it may be one of a notebook.
        job: as a job file; `model` and `cluster.workers` are set here.
        method: "fork", or "spawn" for functions of modules: where the notebook has used CUDA, or device.threads is more
            than 1 and the notebook has used threads of PyTorch.
    """
    end_if_imported_anew("rubato.launch")
    if not callable(function):
        raise Refused(f"found a {type(function).__name__} for the function, expected one that the workers call")
    if not isinstance(job, dict):
        raise Refused(f"found job={shown(job)}, expected a dictionary with the keys of a job file")
    server.check_environment(os.environ)
    context: Any = multiprocessing.get_context(method)  # before there are servers: it may be unknown
    servers = server.Servers(server.own_job(job, "notebook", workers))
    processes = []
    for rank in range(workers):
        environment = {"RUBATO_JOB": str(servers.path / "job.yaml"), "RUBATO_RANK": str(rank),
                       "LOCAL_RANK": str(rank), "RUBATO_KEY": servers.secret,
                       **{f"RUBATO__{key.upper().replace('.', '__')}": value
                          for key, value in servers.settings().items()}}
        process = context.Process(target=_work, args=(function, environment,
                                                      str(servers.path / "logs" / f"worker-{rank}.log")))
        with interrupts.deferred():
            process.start()
        processes.append(process)
    return Run(servers, processes)


def _work(function: Callable[[], Any], environment: Dict[str, str], log: str) -> None:
    server.die_with_parent()
    os.environ.update(environment)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    torch = sys.modules.get("torch")
    if torch is not None:  # the notebook's threads are not in its forks, where OpenMP would wait for them for ever
        torch.set_num_threads(1)
    try:
        function()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        from . import job

        job.close_all()  # a process of multiprocessing runs nothing that atexit has
