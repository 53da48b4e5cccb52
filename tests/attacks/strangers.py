"""Who has no key."""

import gzip
import itertools
import os
import socket
import time

import http2
from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PREFACE, PRIORITY, PUSH, RST,
                   SETTINGS, WINDOW, Connection, Gone, call, call_headers, frame, header, settings)
from row import Row, big_endian, calls, flood, raw, tally
from rubato import CALLER, COMMAND, HEARTBEAT, HELLO, JOIN, STREAM, Key, Session, proto

# Whether it is closed for what it does or for its silence; a loaded machine may take some seconds more.
AT_ONCE = r"(GOAWAY \w+, )?closed after [0-7] s"
WHEN_SILENT = r"(GOAWAY \w+, )?closed after (9|1\d) s"
# gRPC may have answered before the server sees how much has come.
ANSWERED_OR_AT_ONCE = rf"UNKNOWN .*|{AT_ONCE}"
# Who sends much may be stuck in that, and not see that it is closed, until its own patience ends.
ANY_TIME = r"(GOAWAY \w+, )?closed after \d+ s"
ALL_AT_ANY_TIME = rf"(\d+ × )?{ANY_TIME}(; (\d+ × )?{ANY_TIME})*"

ACKNOWLEDGED = frame(SETTINGS, http2.ACK, 0)
BEGIN = PREFACE + settings() + ACKNOWLEDGED  # of settings that may not have come yet
HEAD = call_headers(HELLO)
# The first call puts its headers into the table; of the others they take six bytes.
TABLE = b"\x83\x86\x84\x41\x04test\x5f\x10application/grpc\x40\x02te\x08trailers"
FROM_TABLE = b"\x83\x86\x84\xbe\xbf\xc0"
TABLE_BOMB = b"\x40\1x" + http2.integer(3900, 7) + b"y" * 3900 + b"\xbe" * 10_000
TLS_HELLO = (bytes.fromhex("16030100800100007c0303") + bytes(range(32)) +
             bytes.fromhex("00001a130113021303c02bc02fc02cc030cca9cca8c013c014009c009d01000039") + bytes(57))


def _headers(number):
    return frame(HEADERS, END_HEADERS, number, HEAD)


def _short(number):
    """A call of as few bytes as can be: its headers are in the table."""
    return frame(HEADERS, END_HEADERS, number, TABLE if number == 1 else FROM_TABLE)


def _reset(number):
    return frame(RST, 0, number, big_endian(8))


def _hello(number):
    return frame(DATA, END_STREAM, number, b"\0" + big_endian(20) + proto((1, b"\1\3" + bytes(16))))


def _polite(address, data):
    """As raw, of one who answers pings."""
    with Connection(address) as connection:
        try:
            connection.send(data)
            return connection.await_close()
        except Gone:
            return connection.gone()


def _connections(address, count, data=b""):
    """So many, which send `data`; how many of them the server has closed within half a second of the last."""
    connections = [Connection(address, first=data, polite=False) for _ in range(count)]
    closed, deadline = 0, time.monotonic() + 4
    for connection in connections:
        try:
            while True:
                connection.read(deadline)
        except TimeoutError:
            pass
        except Gone:
            closed += 1
    for connection in connections:
        connection.close()
    return f"{closed} of {count} closed"


def _churn(address, count):
    host, port = address.rsplit(":", 1)
    for _ in range(count):
        socket.create_connection((host, int(port)), timeout=http2.PATIENCE).close()
    return f"{count} taken"


def _trickle(address, data):
    """A byte each half a second."""
    with Connection(address, first=b"", polite=False) as connection:
        try:
            for byte in data:
                connection.send(bytes([byte]))
                try:
                    connection.read(time.monotonic() + 0.5)
                except TimeoutError:
                    pass
            return "all was taken"
        except Gone:
            return connection.gone()


def _unfinished(address, announced, sent):
    """A hello that announces more bytes than it sends."""
    with Connection(address) as connection:
        number = connection.open(HELLO)
        connection.message(number, bytes(sent), announced=announced)
        return connection.await_end(number)


def _many_unfinished(address, connections):
    """Messages of 8 MiB, never finished, on so many connections with 4 calls each; how many of them are closed
    meanwhile."""
    opened = [Connection(address) for _ in range(connections)]
    for connection in opened:
        try:
            for _ in range(4):
                number = connection.open(COMMAND)
                connection.message(number, bytes(5_000), announced=(8 << 20) - 8)
        except Gone:
            pass
    for connection in opened:
        connection.await_close(0.02)
    closed = sum(connection.is_closed for connection in opened)
    for connection in opened:
        connection.close()
    return f"{closed} of {connections} closed"


def _hellos(address, count):
    with Connection(address) as connection:
        try:
            for _ in range(count):
                number = connection.open(HELLO)
                connection.message(number, proto((1, b"\1\3" + os.urandom(16))), end=True)
                answer = connection.await_message(number)
                if not isinstance(answer, list):
                    return answer
                connection.streams.clear()
        except Gone:
            return connection.gone()
    return f"{count} welcomes, each of a session that shows nothing without the key"


def _metadata(world, path, address):
    """A call that shows nothing, garbage, and what is too short and too long."""
    of_job = world.of_job([])
    wrong = (b"\2" + os.urandom(113), b"\1" + os.urandom(112), b"\1" + os.urandom(114), b"\1" * 4000)
    return tally([call(address, path, b"", of_job)] +
                 [call(address, path, b"", of_job + [(CALLER, shown)]) for shown in wrong])


def _big_headers(address, more):
    """A hello with so much metadata."""
    block, frames = call_headers(HELLO) + more, b""
    for at in range(0, len(block), 16384):
        last = at + 16384 >= len(block)
        frames += frame(CONTINUATION if at else HEADERS, END_HEADERS if last else 0, 1, block[at:at + 16384])
    with Connection(address) as connection:
        connection.streams[1] = http2.Stream()
        try:
            connection.send(frames)
            return connection.await_end(1)
        except Gone:
            return connection.gone()


def _other_key(address):
    session = Session(address, Key("worker-" + os.urandom(32).hex()))
    return f"a welcome {'with' if session.is_proved else 'without'} the proof of that key"


def _not_http(one, two):
    yield "64 KiB of random bytes", AT_ONCE, lambda: raw(one, os.urandom(65536))
    yield "random bytes behind HTTP/2's preface", AT_ONCE, lambda: raw(two, BEGIN + os.urandom(65536))
    yield "a request of HTTP/1.1", AT_ONCE, lambda: raw(one, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    upgrade = (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
               b"HTTP2-Settings: AAMAAABk\r\n\r\n")
    yield "an upgrade from HTTP/1.1 to HTTP/2", AT_ONCE, lambda: raw(two, upgrade)
    yield "a client hello of TLS", AT_ONCE, lambda: raw(one, TLS_HELLO)


def _slow(one, two):
    yield "connects to the coordinator and says nothing", WHEN_SILENT, lambda: raw(one, b"")
    yield "connects to a shard and says nothing", WHEN_SILENT, lambda: raw(two, b"")
    yield "HTTP/2's preface, then nothing", WHEN_SILENT, lambda: raw(one, BEGIN)
    yield "half of a frame's header, then nothing", WHEN_SILENT, lambda: raw(two, BEGIN + b"\0\0")
    yield "the preface, a byte each half second", WHEN_SILENT, lambda: _trickle(one, PREFACE)
    yield "the headers of a call, a byte each half second", WHEN_SILENT, lambda: _trickle(two, BEGIN + _headers(1))
    yield "a call that says nothing", WHEN_SILENT, lambda: _polite(one, _headers(1))
    yield "a call that says nothing and answers no ping", "closed after [5-8] s", lambda: raw(two, BEGIN + _headers(1))
    yield "a hello that announces 7 MiB and sends 1 KiB", WHEN_SILENT, lambda: _unfinished(one, 7 << 20, 1 << 10)
    yield "a hello of 16 KiB that lacks its last byte", WHEN_SILENT, lambda: _unfinished(two, 16 << 10, (16 << 10) - 1)
    yield "a hello that announces 64 MiB and sends nothing", WHEN_SILENT, lambda: _unfinished(one, 64 << 20, 0)
    yield "a hello that announces 4 GiB and sends nothing", WHEN_SILENT, lambda: _unfinished(two, (1 << 32) - 1, 0)
    metadata = b"".join(header(f"x-{i}", "y" * 1000) for i in range(1000))
    yield "a hello with 1 MiB of metadata", ANSWERED_OR_AT_ONCE, lambda: _big_headers(one, metadata)
    yield "a hello with a header of 100 KiB", ANSWERED_OR_AT_ONCE, lambda: _big_headers(two, header("x", "y" * 100_000))
    yield "200 calls that are reset at once", WHEN_SILENT, lambda: flood(one, calls(50, _headers, _reset))
    yield "200 hellos that are reset at once", WHEN_SILENT, lambda: flood(two, calls(50, _headers, _hello, _reset))
    yield "data on stream 0", WHEN_SILENT, lambda: _polite(two, frame(DATA, 0, 0, b"x"))
    yield "data of a call that was never begun", WHEN_SILENT, lambda: _polite(two, frame(DATA, 0, 1, b"x") * 3)
    yield "a call of an even number", WHEN_SILENT, lambda: _polite(two, _headers(2))
    yield "a promise, which only servers make", WHEN_SILENT, lambda: _polite(
        two, frame(PUSH, END_HEADERS, 1, big_endian(2) + HEAD))
    yield "windows beyond 2^31", WHEN_SILENT, lambda: _polite(two, frame(WINDOW, 0, 0, big_endian(0x7fffffff)) * 3)
    unknown = b"".join(frame(kind, 255, 0, b"x" * 99) for kind in range(10, 256))
    yield "frames of kinds that there are not", WHEN_SILENT, lambda: _polite(two, unknown)


def _http(one, two):
    again, endless = itertools.repeat, [frame(HEADERS, 0, 1, HEAD)]
    yield "300 connections that say nothing", r"27\d of 300 closed", lambda: _connections(one, 300)
    yield "300 connections that send half a preface", r"27\d of 300 closed", lambda: _connections(
        two, 300, PREFACE[:11])
    short = b"".join(calls(100_000, _short))
    for attack, data in (("100,000 calls at a time, settings not acknowledged", PREFACE + settings() + short),
                         ("100,000 calls at a time, settings acknowledged before they come", BEGIN + short)):
        yield f"20 times {attack}", ALL_AT_ANY_TIME, lambda data=data: tally(
            raw(address, data) for address in (one, two) * 10)
    resets = BEGIN + b"".join(calls(100_000, _short, _reset))
    yield "20 times 100,000 calls that are reset at once", ALL_AT_ANY_TIME, lambda: tally(
        raw(address, resets) for address in (one, two) * 10)
    yield "2,000 connections that are closed at once", "2000 taken", lambda: _churn(one, 2000)
    yield "60 connections, 4 calls each, 5 KB of a message of 8 MiB in each", r"[1-6]\d of 60 closed", (
        lambda: _many_unfinished(one, 60))
    yield "settings without end", ANY_TIME, lambda: flood(one, again(settings((4, 65535))))
    yield "settings without end, the answers not read", ANY_TIME, lambda: flood(
        two, again(settings((4, 65535))), reads=False)
    yield "1,000 pings", "GOAWAY ENHANCE_YOUR_CALM, closed after [0-7] s", lambda: flood(
        one, again(frame(PING, 0, 0, bytes(8)), 1_000))
    yield "priorities without end", ANY_TIME, lambda: flood(two, again(frame(PRIORITY, 0, 1, big_endian(3) + b"\0")))
    yield "headers that never end (CONTINUATION)", ANY_TIME, lambda: flood(
        one, itertools.chain(endless, again(frame(CONTINUATION, 0, 1, header("x", "y" * 99)))))
    yield "empty CONTINUATIONs without end", ANY_TIME, lambda: flood(
        two, itertools.chain(endless, again(frame(CONTINUATION, 0, 1))))
    yield "a header of 4 KB put into the table and named 10,000 times", ANSWERED_OR_AT_ONCE, (
        lambda: _big_headers(one, TABLE_BOMB))
    yield "a header of the table that is none", AT_ONCE, lambda: raw(
        two, BEGIN + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"))
    yield "a frame of 16 MiB", ANY_TIME, lambda: flood(
        one, itertools.chain([frame(DATA, 0, 1, length=(1 << 24) - 1)], again(bytes(1000))))
    over = [_headers(1), frame(DATA, 0, 1, b"\0" + big_endian(7 << 20))]
    yield "more of a message than the window", ANY_TIME, lambda: flood(
        two, itertools.chain(over, again(frame(DATA, 0, 1, bytes(16384)), 1000)))
    for attack, data in (("more padding than frame", frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + HEAD[:10])),
                         ("a window grown by 0", frame(WINDOW, 0, 0, big_endian(0))),
                         ("settings that nobody may have", settings((5, 1), (4, 0xffffffff), (2, 7))),
                         ("settings of 5 bytes", frame(SETTINGS, 0, 0, bytes(5))),
                         ("a ping of 7 bytes", frame(PING, 0, 0, bytes(7))),
                         ("a reset of 3 bytes", frame(RST, 0, 1, bytes(3)))):
        yield attack, AT_ONCE, lambda data=data: raw(one, BEGIN + data)


def _grpc(world, one, two):
    shows = ("UNAUTHENTICATED the caller has shown no key: .*; "
             "4 × UNAUTHENTICATED what the caller shows is no key of this version of Rubato: .*")
    for name, path, address in (("Join", JOIN, one), ("Heartbeat", HEARTBEAT, one), ("Command", COMMAND, one),
                                ("a data stream of the coordinator", STREAM, one),
                                ("a data stream of a shard", STREAM, two)):
        yield f"{name}: shows nothing; random bytes; a byte too few; one too many; 4 KB", shows, (
            lambda path=path, address=address: _metadata(world, path, address))
    for attack, path in (("a method that is none", "/rubato.proto.Coordination/Nope"), ("no method", ""),
                         ("a method of 7,000 bytes", "/" + "x" * 7000),
                         ("gRPC's reflection", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
                         ("gRPC's channelz", "/grpc.channelz.v1.Channelz/GetServers")):
        yield attack, "UNAUTHENTICATED the caller has shown no key: .*", lambda path=path: call(one, path)
    # gRPC's own answer, or that of who looks at what a stranger sends, whichever is first.
    yield ("a hello of 8 MiB and a byte", rf"RESOURCE_EXHAUSTED Received message larger than max .*|{AT_ONCE}",
           lambda: call(one, HELLO, bytes((8 << 20) + 1)))
    yield "a compressed hello, its coding not named", "INVALID_ARGUMENT .*|INTERNAL .*", lambda: call(
        one, HELLO, b"\xff" * 20, compressed=1)
    bomb = gzip.compress(bytes(16 << 20))
    yield "16 MiB in 16 KiB of gzip", "UNIMPLEMENTED Compression algorithm 'gzip' is disabled.*", lambda: call(
        two, HELLO, bomb, [("grpc-encoding", "gzip")], compressed=1)
    yield "hellos of 65 bytes, 1 KiB, 16 KiB", "3 × INVALID_ARGUMENT this is no hello", lambda: tally(
        call(one, HELLO, proto((1, bytes(size)))) for size in (65, 1 << 10, 16 << 10))
    yield ("random hellos of 0, 1, 17, 18, 19 and 50 bytes",
           "6 × INVALID_ARGUMENT this is no hello of this version of Rubato",
           lambda: tally(call(two, HELLO, proto((1, b"\2" * min(size, 1) + os.urandom(max(size - 1, 0)))))
                         for size in (0, 1, 17, 18, 19, 50)))
    yield "hellos as roles 0, 5 and 255", "3 × INVALID_ARGUMENT there is no such role", lambda: tally(
        call(one, HELLO, proto((1, bytes([1, role]) + bytes(16)))) for role in (0, 5, 255))
    yield "a hello that is no message", "INVALID_ARGUMENT this is no hello", lambda: call(one, HELLO, b"\xff" * 40)
    yield "100 hellos on one connection", "100 welcomes, .*", lambda: _hellos(one, 100)
    yield "3,000 hellos on one connection", AT_ONCE, lambda: _hellos(two, 3000)
    yield "a hello by another job's key", "a welcome without the proof of that key", lambda: _other_key(one)


def rows(world):
    one, two = world.coordinator, world.shard
    for kind, takes_time in ((_not_http(one, two), False), (_slow(one, two), True), (_http(one, two), False),
                             (_grpc(world, one, two), False)):
        for attack, expected, run in kind:
            yield Row("stranger", attack, expected, run, takes_time)
