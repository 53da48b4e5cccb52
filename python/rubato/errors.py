"""Exceptions and warnings, each with one sentence for the user, and the exit codes of scripts that they end."""

import datetime
import math
import multiprocessing
import os
import sys
import warnings
from typing import Any

USAGE = 2  # kExitUsage: repeating cannot help
_TRY_AGAIN = 75  # kExitTryAgain: nothing is wrong with the script
_MOST_TEXT = 200  # characters of a value in a sentence


class Error(RuntimeError):
    """Base class of all exceptions that Rubato raises."""


class Refused(Error):
    """The script does something that a job on parameter servers does not support. Repeating does not help."""


class Ended(Error):
    """The job has ended early, with an error or by a stop.

    Attributes:
        exit_code: as in docs/runs.md; 2 where repeating cannot help.
    """

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code


def is_one(value: Any) -> bool:
    """Not a tensor or an array of several numbers, or of none."""
    shape = getattr(value, "shape", ())
    return not isinstance(shape, tuple) or None in shape or math.prod(shape) == 1


def shown(value: Any) -> str:
    """A value for a sentence: of a tensor or an array its shape and type; of others their text, or its beginning."""
    if not is_one(value):
        return f"a {type(value).__name__} of shape {tuple(value.shape)} and type {getattr(value, 'dtype', 'unknown')}"
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def exit_code(error: BaseException) -> int:
    """The exit code of a script that `error` ends. It tells `rubato train` whether to restart it. 0: Python's
    default."""
    if isinstance(error, Ended):
        return _TRY_AGAIN if error.exit_code == 1 else error.exit_code
    return USAGE if isinstance(error, Error) else 0


def imported_anew(call: str) -> str:
    """A sentence for a process that must not come to `call`."""
    return (f"a process that spawn or forkserver has started imports the script anew, which calls {call}, expected its "
            "work behind `if __name__ == \"__main__\":`")


def end_if_imported_anew(call: str) -> None:
    """Ends the process with exit code 2 if it is one that multiprocessing has started, as for a DataLoader, and that
    imports the script before its work."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        print(f"rubato: {imported_anew(call)}", file=sys.stderr, flush=True)
        os._exit(USAGE)  # of an exception forkserver makes a code of its own


def tell_by_exit_code() -> None:
    """An uncaught exception of Rubato ends the process with its exit code, after the traceback is printed."""
    before = sys.excepthook
    if getattr(before, "is_rubatos", False):
        return

    def hook(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        if "MASTER_ADDR expected" in str(error):  # by init_process_group, which accelerate calls
            warn("something takes LOCAL_RANK, which tells a worker its GPU, for torchrun's. Without torchrun's group: "
                 "os.environ[\"CUDA_VISIBLE_DEVICES\"] = os.environ.pop(\"LOCAL_RANK\"), before torch is imported")
        code = exit_code(error)
        if code != 0:
            raise SystemExit(code)

    hook.is_rubatos = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def warn(sentence: str) -> None:
    """Of a script that runs alone, as Python does; else as a line of a worker's log, which `rubato train` repeats."""
    if os.environ.get("RUBATO_JOB") is None:
        warnings.warn(f"rubato: {sentence}", stacklevel=3)
        return
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    print(f"{now}Z worker warning: {sentence}", file=sys.stderr, flush=True)
