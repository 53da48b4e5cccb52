"""Ctrl-C while processes are started and ended."""

import contextlib
import os
import signal
import threading
from typing import Any, Iterator, List


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Handles SIGINT after the block. Functions of os.register_at_fork and of weak references, which run while a
    process is forked or forgotten, lose what its handler raises, and the script would go on."""
    handler: Any = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    pid = os.getpid()
    noted: List[int] = []

    def note(number: int, frame: Any) -> None:
        if os.getpid() == pid:
            noted.append(number)
        else:  # of a process that was forked meanwhile
            handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)
