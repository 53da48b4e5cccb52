"""Runs a job from a notebook: servers, and a function that runs in each worker process."""

import multiprocessing
import os
import pathlib
import sys
import time
import traceback
from typing import Any, Callable, Dict, Optional

from . import server
from .errors import Ended


class Run(server.Commands):
    """A job that launch has started."""

    def __init__(self, servers: server.Servers, processes: Any):
        self.run: pathlib.Path = servers.path
        self._servers = servers
        self._processes = processes

    def wait(self, seconds: Optional[float] = None) -> bool:
        """Waits until the job's end, or for `seconds`. Returns whether it has ended; raises Ended if it has failed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for process in self._processes:
            process.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                return False
        codes = [process.exitcode for process in self._processes]
        failed = next((code for code in codes if code), 0)
        self._servers.end(at_once=bool(failed))
        if failed:
            log = self.run / "logs"
            raise Ended(self._servers.last_words() or f"a worker ended with exit code {failed}: see {log}", failed)
        return True

    def stop(self) -> None:
        """Ends the job cleanly, with a checkpoint."""
        server.command("stop", self.run)
        for process in self._processes:
            process.join()
        self._servers.end()


def launch(function: Callable[[], Any], job: Dict[str, Any], workers: int = 2, *, method: str = "fork") -> Run:
    """Starts the servers of a job and `workers` processes that call `function`, which joins it by rubato.join().

    Args:
        function: of no arguments. With method="fork" it may be one of a notebook.
        job: as a job file; `model` and `cluster.workers` are set here.
        method: "fork", or "spawn" for functions of modules: where the notebook has used CUDA, or device.threads is more
            than 1 and the notebook has used threads of PyTorch.
    """
    servers = server.Servers(server.own_job(job, "notebook", workers))
    context: Any = multiprocessing.get_context(method)
    processes = []
    for rank in range(workers):
        environment = {"RUBATO_JOB": str(servers.path / "job.yaml"), "RUBATO_RANK": str(rank),
                       "LOCAL_RANK": str(rank), "RUBATO_KEY": servers.secret,
                       "RUBATO__CLUSTER__ADDRESS": servers.address}
        process = context.Process(target=_work, args=(function, environment,
                                                      str(servers.path / "logs" / f"worker-{rank}.log")))
        process.start()
        processes.append(process)
    return Run(servers, processes)


def _work(function: Callable[[], Any], environment: Dict[str, str], log: str) -> None:
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
