"""What goes wrong, each with one sentence for a reader, and with which exit code the script then ends."""

import sys
from typing import Any

_USAGE = 2  # kExitUsage: repeating cannot help
_TRY_AGAIN = 75  # kExitTryAgain: nothing is wrong with the script


class Error(RuntimeError):
    """Of everything that Rubato raises."""


class Refused(Error):
    """Something about the script that a job on parameter servers cannot keep. Repeating does not help."""


class Ended(Error):
    """The job has come to an end that is not its own.

    Attributes:
        exit_code: as in docs/runs.md; 2 where repeating cannot help.
    """

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code


def exit_code(error: BaseException) -> int:
    """Of a script that `error` ends: how `rubato train` knows whether to start it again. 0: as Python has it."""
    if isinstance(error, Ended):
        return _TRY_AGAIN if error.exit_code == 1 else error.exit_code
    return _USAGE if isinstance(error, Error) else 0


def tell_by_exit_code() -> None:
    """An error of Rubato's that nobody catches ends the process with its code, behind what is printed of it."""
    before = sys.excepthook
    if getattr(before, "is_rubatos", False):
        return

    def hook(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        code = exit_code(error)
        if code != 0:
            raise SystemExit(code)

    hook.is_rubatos = True  # type: ignore[attr-defined]
    sys.excepthook = hook
