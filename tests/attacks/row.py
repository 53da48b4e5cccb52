"""A row of the table: an attack, what is expected to come of it, and what does."""

import collections
import itertools
import struct
import time
from dataclasses import dataclass
from typing import Callable

from http2 import PATIENCE, Connection, Gone


@dataclass
class Row:
    who: str
    attack: str
    expected: str  # of what is observed: a regular expression that matches all of it
    run: Callable[[], str]
    takes_time: bool = False  # runs beside others of its kind


def tally(outcomes):
    """All that came of it, and how often if that is not once."""
    return "; ".join((f"{count} × " if count > 1 else "") + outcome
                     for outcome, count in collections.Counter(outcomes).items())


def raw(address, data):
    """Sends these bytes, and no others; when the connection is closed."""
    with Connection(address, first=b"", polite=False) as connection:
        try:
            connection.send(data)
            return connection.await_close()
        except Gone:
            return connection.gone()


def flood(address, pieces, most_bytes=64 << 20, reads=True, seconds=15):
    """Sends as many pieces as the server takes, of an iterator, in bundles; how that ended."""
    sent, pieces = 0, iter(pieces)
    with Connection(address, polite=reads) as connection:
        try:
            while sent < most_bytes and connection.age() < seconds:
                bundle = b"".join(itertools.islice(pieces, 500))
                if not bundle:
                    break
                connection.send(bundle)
                sent += len(bundle)
                try:
                    while reads:
                        connection.read(time.monotonic())
                except TimeoutError:
                    pass
            return connection.await_close()
        except Gone:
            return connection.gone()


def calls(count, *frames):
    """For flood: `count` calls; of each what `frames` give for its number."""
    for number in range(1, 2 * count, 2):
        yield b"".join(make(number) for make in frames)


def big_endian(value):
    return struct.pack(">I", value)
