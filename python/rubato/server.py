"""The servers of a job that a script starts for itself, and the commands that a person gives a running job."""

import ctypes
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from . import core, interrupts
from .errors import Ended, Error, Refused, shown

_PR_SET_PDEATHSIG = 1
_WARNING = re.compile(r"^\S+Z (server \d+|worker(?: \d+)?) warning: (.*)$")
_START = 60  # seconds until a server listens, as cluster.start_timeout
_MOST_OF_REASON = 200  # bytes, as kMostOfReason (server/coordinator/commands.cc)
_STOP = 30  # seconds that a server may take to end in order, as kStopGrace
_MODES = {"group": 0o770, "all": 0o777}  # of a run's folder, by security.readers; else the owner's alone


def _new_run(job: Dict[str, Any]) -> pathlib.Path:
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder = pathlib.Path("runs") / f"{job.get('name', 'script')}-{when}-{secrets.token_hex(2)}"
    security = job.get("security")
    readers = str(security.get("readers")) if isinstance(security, dict) else ""
    folder.parent.mkdir(exist_ok=True)
    folder.mkdir(mode=_MODES.get(readers, 0o700))
    (folder / "logs").mkdir()
    return folder.resolve()


def _make_latest(folder: pathlib.Path) -> None:
    link = folder.parent / f".latest-{secrets.token_hex(4)}"
    link.symlink_to(folder.name)
    link.replace(folder.parent / "latest")


_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """This process is killed when the thread that has started it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _become_server() -> None:
    os.setpgid(0, 0)  # Ctrl-C is the script's, which ends the servers
    die_with_parent()


def _warning(line: str) -> Tuple[str, str]:
    """Of a line of a log in either format, who warns, and of what; empty where it is no warning."""
    if line.startswith("{"):
        try:
            event = json.loads(line)
        except ValueError:
            return "", ""
        rank = "" if event.get("rank") is None else f" {event['rank']}"
        is_warning = event.get("level") == "warning"
        return (f"{event.get('role')}{rank}", str(event.get("message"))) if is_warning else ("", "")
    found = _WARNING.match(line)
    return (found[1], found[2]) if found else ("", "")


class Warnings:
    """Of the processes of a run, each text told once on standard error, where nobody else reads their logs."""

    def __init__(self, run: pathlib.Path):
        self._logs = run / "logs"
        self._read: Dict[pathlib.Path, int] = {}  # bytes of each log
        self._told: Set[str] = set()

    def tell(self) -> None:
        """Those since the last call."""
        for log in sorted(self._logs.glob("*.log")):
            with open(log, "rb") as file:
                begin = file.seek(self._read.get(log, 0))
                lines = file.read()
            whole = lines.rfind(b"\n") + 1
            self._read[log] = begin + whole
            for line in lines[:whole].decode(errors="replace").splitlines():
                who, what = _warning(line)
                if what and what not in self._told:
                    self._told.add(what)
                    print(f"rubato: warning: {log.stem if who == 'worker' else who}: {what}", file=sys.stderr)


class Servers:
    """The servers of one job, with their own run folder and secret. They end with this process, however it ends."""

    def __init__(self, job: Dict[str, Any]):
        """`job` as in a job file. Refused if it has mistakes."""
        self._program = core.program("rubato-server")
        self.path = _new_run(job)
        self.secret = "secret-" + secrets.token_hex(32)
        self.processes: List[subprocess.Popen[bytes]] = []
        self.warnings = Warnings(self.path)
        (self.path / "job.yaml").write_text(json.dumps(job, indent=2) + "\n")
        self._workers = int(job["cluster"]["workers"])
        self.address = job["cluster"]["address"]
        self._start(0)
        self.address = self._await_address()
        for shard in range(1, int(job["cluster"].get("servers", 1))):
            self._start(shard)
        _make_latest(self.path)
        self.warnings.tell()

    def settings(self) -> Dict[str, str]:
        """Keys of the job for each of its processes, above what a launcher such as torchrun, whose job it is not, says
        in the environment."""
        return {"cluster.address": self.address, "cluster.workers": str(self._workers)}

    def _start(self, shard: int) -> None:
        arguments = [word for key, value in self.settings().items() for word in ("--set", f"{key}={value}")]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RUBATO_")}
        environment["RUBATO_KEY"] = self.secret
        with open(self.path / "logs" / f"server-{shard}.log", "ab") as log, interrupts.deferred():
            self.processes.append(subprocess.Popen(
                [self._program, "--config", str(self.path / "job.yaml"), "--shard", str(shard),
                 "--run-dir", str(self.path), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, preexec_fn=_become_server))

    def _await_address(self) -> str:
        file = self.path / "address"
        deadline = time.monotonic() + _START
        while not file.exists():
            if self.processes[0].poll() is not None:
                words = self.last_words() or f"the server ended before it listened: see {self.path / 'logs'}"
                raise Refused(words) if self.processes[0].returncode == 2 else Ended(words, 1)
            if time.monotonic() > deadline:
                raise Ended(f"the server has not begun to listen within {_START} s", 1)
            time.sleep(0.01)
        return file.read_text().strip()

    def last_words(self) -> str:
        """The last message of the first server that says why it ended."""
        for log in sorted((self.path / "logs").glob("server-*.log")):
            text = log.read_text(errors="replace")
            if "error: " in text:
                return text[text.index("error: ") + len("error: "):].strip()
        return ""

    def end(self, at_once: bool = False) -> None:
        """Waits for servers whose job is done, and tells others to end."""
        if at_once:
            for process in self.processes:
                process.terminate()
        deadline = time.monotonic() + _STOP
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def command(verb: str, run: pathlib.Path, *arguments: str) -> str:
    """The output of `rubato VERB` for the job in the folder `run`. Raises Error with its message if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RUBATO_KEY", "RUBATO_KEY_FILE")}
    done = subprocess.run([core.program("rubato"), verb, *arguments, str(run)], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        text = done.stderr.strip()
        raise Error(text[len("error: "):] if text.startswith("error: ") else text or f"rubato {verb} failed")
    return done.stdout


def mode_text(mode: str, staleness: Optional[int]) -> str:
    return mode if staleness is None else f"{mode},staleness={staleness}"


class Commands:
    """Commands for a running job; `run` is its folder."""

    run: pathlib.Path

    def switch(self, mode: str, *, staleness: Optional[int] = None) -> str:
        """Changes the mode: "sync", "async", or "bounded" with a staleness (contributions). Returns the answer."""
        return command("switch", self.run, "--mode", mode_text(mode, staleness)).strip()

    def status(self) -> Dict[str, Any]:
        """How the job stands, as `rubato status --json` says."""
        status: Dict[str, Any] = json.loads(command("status", self.run, "--json"))
        return status

    def _stop(self, reason: Optional[str]) -> None:
        if reason is not None and not isinstance(reason, str):
            raise Refused(f"found reason={shown(reason)}, expected a sentence")
        kept = (reason or "").replace("\0", " ").encode(errors="replace")[:_MOST_OF_REASON].decode(errors="ignore")
        command("stop", self.run, *([f"--reason={kept}"] if kept else []))

    def checkpoint(self) -> str:
        """Has the job write a checkpoint now; returns its path."""
        return command("checkpoint", self.run).strip()


def check_environment(environment: Mapping[str, str]) -> None:
    """Of a script that starts a job for itself. Refused if keys of a job are in it, of which the script would not
    know."""
    found = sorted(name for name in environment if name.startswith("RUBATO__"))
    if found:
        raise Refused(f"found {found[0]}={environment[found[0]]} in the environment, which sets nothing in a job that "
                      "a script starts for itself, expected the key among the job's in the script, or `rubato train "
                      "job.yaml`, which reads these variables")


def own_job(given: Dict[str, Any], name: str, workers: int) -> Dict[str, Any]:
    """`given`, plus the keys for a job whose servers this process starts and whose workers run this script."""
    job: Dict[str, Any] = {"version": 1, "name": name, "model": "script", **given}
    job.pop("script", None)
    job["cluster"] = {**section(job, "cluster"), "address": "127.0.0.1:0", "workers": workers}
    return job


def section(job: Dict[str, Any], name: str) -> Dict[str, Any]:
    value = job.get(name) or {}
    if not isinstance(value, dict):
        raise Refused(f"{name}: found {shown(value)}, expected a dictionary")
    return value


def script_name() -> str:
    """Of the script that runs, fit for a job's name."""
    name = pathlib.Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c") else "script"
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name) or "script"
