"""Who has overheard or altered what keys show, and who has a key of another role."""

import os
import socket
import struct

from http2 import Connection, Gone, call
from row import Row, tally
from rubato import CALLER, COMMAND, HEARTBEAT, HELLO, JOIN, ROLES, STREAM, Key, Session, proto

STATUS, CHECKPOINT, STOP, SWITCH = (proto((1, kind)) for kind in (3, 1, 2, 4))
MADE_BEFORE = "UNAUTHENTICATED this call has been made before"
NOT_WELCOME = "UNAUTHENTICATED this server has not welcomed the caller: say hello first"
NO_KEY = "UNAUTHENTICATED the caller does not hold the key of its role: .*"
NO_PROOF = "UNAUTHENTICATED what the caller shows is no key of this version of Rubato: .*"


def _ask(address, shown, path=COMMAND, message=STATUS):
    return call(address, path, message, shown if isinstance(shown, list) else [(CALLER, shown)])


def _flips(address, shown):
    """Each bit of what is shown, flipped; then as it was."""
    outcomes = []
    for bit in range(8 * len(shown)):
        flipped = bytearray(shown)
        flipped[bit // 8] ^= 1 << bit % 8
        outcomes.append(_ask(address, bytes(flipped)).split(" ")[0])
    return f"{tally(outcomes)}; then, as it was, {_ask(address, shown)}"


def _overflow(session, address):
    return tally(_ask(address, session.shown(COMMAND, counter)) for counter in ((1 << 64) - 1, 0, 1, 1))


def _restarted(world):
    """A session of a server that has been started again at the same address, with the same key."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    secret = Key("server-" + os.urandom(32).hex())
    session, run = None, f"{world.folder}/restarted"
    os.mkdir(run)
    for _ in range(2):
        if os.path.exists(f"{run}/address"):
            os.remove(f"{run}/address")
        server = world.start("restarted", [world.server, "--config", "run/job.yaml", "--shard", "0",
                                           "--listen", f"127.0.0.1:{port}", "--run-dir", run],
                             RUBATO_KEY="secret-" + secret.bytes.hex())
        world.await_file("restarted/address")
        if session is None:
            session = Session(f"127.0.0.1:{port}", secret.of("operator"))
            before = _ask(f"127.0.0.1:{port}", session.shown(COMMAND))
        else:
            after = _ask(f"127.0.0.1:{port}", session.shown(COMMAND))
        server.kill()
        server.wait()
    return f"before: {before}; after: {after}"


def _reflected(world, role):
    session = Session(world.coordinator, world.keys[role])
    as_hello = call(world.coordinator, HELLO, proto((1, session.welcome)))
    return f"{as_hello}; {_ask(world.coordinator, session.welcome)}"


def _replays(world):
    one, two, operator = world.coordinator, world.shard, world.keys["operator"]

    def session(address=one, key=operator, role=None):
        return Session(address, key, role)

    def twice():
        shown = session().shown(COMMAND)
        return f"{_ask(one, shown)}; {_ask(one, shown)}"

    def of_welcome():
        """The server's proof in place of a MAC."""
        own = session()
        return _ask(one, own.session + struct.pack("<Q", 1) + own.proof)

    def altered(at, value):
        shown = bytearray(session(key=world.keys["worker"]).shown(COMMAND))
        shown[at:at + len(value)] = value
        return _ask(one, bytes(shown))

    def old_counters():
        own = session()
        shown = [own.shown(COMMAND) for _ in range(70)]
        return tally(_ask(one, shown[number]) for number in (69, 0, 5, 6, 68, 6))

    yield "what a call has shown, once more", f"OK; {MADE_BEFORE}", twice
    yield "what a call has shown to the coordinator, to a shard", NOT_WELCOME, lambda: _ask(
        two, world.of_job([(CALLER, session(key=world.keys["worker"]).shown(STREAM))]), STREAM)
    yield "a session of before the server was started again", f"before: OK; after: {NOT_WELCOME}", (
        lambda: _restarted(world))
    yield ("a welcome sent back as a hello, and as what a call shows",
           f"INVALID_ARGUMENT this is no hello; {NO_PROOF}", lambda: _reflected(world, "operator"))
    yield "the server's own proof as a call's", NO_KEY, of_welcome
    yield "what is shown for a heartbeat, with a command", NO_KEY, lambda: _ask(one, session().shown(HEARTBEAT))
    yield "what a worker shows for a data stream, with a Join", NO_KEY, lambda: _ask(
        one, session(key=world.keys["worker"]).shown(STREAM), JOIN, b"")
    yield "counters 2^64 - 1, 0, 1 and 1 of a session", f"OK; 3 × {MADE_BEFORE}", lambda: _overflow(session(), one)
    yield ("calls 70, 1, 6, 7, 69 and 7 of a session, of which the last 64 count",
           f"3 × OK; 3 × {MADE_BEFORE}", old_counters)
    yield "a worker's session with the operator's role in it", NOT_WELCOME, lambda: altered(
        1, bytes([ROLES["operator"]]))
    yield "a session with a later time in it", NOT_WELCOME, lambda: altered(34, struct.pack("<Q", 1 << 50))
    yield "a hello as the operator, by the worker's key", NO_KEY, lambda: _ask(
        one, session(key=world.keys["worker"], role="operator").shown(COMMAND))
    yield "a hello as a server, by the worker's key", NO_KEY, lambda: _ask(
        one, session(key=world.keys["worker"], role="server").shown(COMMAND))
    yield "each of the 912 bits of what is shown, flipped", "912 × UNAUTHENTICATED; then, as it was, OK", (
        lambda: _flips(one, session().shown(COMMAND)))
    yield "two proofs in one call, the right one behind a wrong one", "UNAUTHENTICATED .*", lambda: _ask(
        one, [(CALLER, os.urandom(114)), (CALLER, session().shown(COMMAND))])
    yield "a proof under a name that is not for bytes", "UNAUTHENTICATED the caller has shown no key: .*", lambda: _ask(
        one, [("rubato-caller", session().shown(COMMAND).hex())])


def _join(world, role, message):
    """What the coordinator says to a Join that begins so."""
    with Connection(world.coordinator) as connection:
        number = connection.open_and_wait(JOIN, world.shown(role, JOIN))
        try:
            connection.message(number, message)
        except Gone:
            return connection.gone()
        return world.said(connection, number)


def _roles(world):
    one, two = world.coordinator, world.shard
    beat = proto((1, 0), (2, 1), (3, world.digest), (5, 1e6))
    shard_beat = proto((3, world.digest), (4, 1), (5, 1e6))
    registration = world.registration()
    shard = world.registration(shard=1, address="127.0.0.1:1")

    def asks(role, path, message, address=one):
        return call(address, path, message, world.of_job(world.shown(role, path, address)))

    for role in ("observer", "operator"):
        not_this = f"PERMISSION_DENIED the caller is the job's {role}: "
        for server, address in (("the coordinator", one), ("a shard", two)):
            yield role, f"opens a data stream of {server}", not_this + "it opens no stream of data", (
                lambda role=role, address=address: asks(role, STREAM, b"", address))
        yield role, "joins as a worker", not_this + "it takes no part in the job", (
            lambda role=role: asks(role, JOIN, registration))
        yield role, "joins as a shard", not_this + "it takes no part in the job", (
            lambda role=role: asks(role, JOIN, shard))
        yield role, "says that worker 0 hangs", not_this + "it speaks for no such process", (
            lambda role=role: asks(role, HEARTBEAT, beat))
        yield role, "says that shard 1 hangs", not_this + "it speaks for no such process", (
            lambda role=role: asks(role, HEARTBEAT, shard_beat))
    for role in ("observer", "worker"):
        changes = "PERMISSION_DENIED this changes the job: it needs the operator's key or certificate"
        for verb, message in (("stop", STOP), ("checkpoint", CHECKPOINT), ("switch", SWITCH)):
            yield role, f"`{verb}`", changes, lambda role=role, message=message: asks(role, COMMAND, message)
        yield role, "`stop`, with a token", changes, lambda role=role: asks(
            role, COMMAND, STOP + proto((2, world.read("run/token").strip())))
    yield "worker", "joins as a shard", "the caller is the job's worker: it takes part as no server", (
        lambda: _join(world, "worker", shard))
    yield ("worker", "says that shard 1 hangs",
           "PERMISSION_DENIED the caller is the job's worker: it speaks for no such process",
           lambda: asks("worker", HEARTBEAT, shard_beat))
    yield "operator", "a command that is none", "UNIMPLEMENTED no such command", lambda: asks(
        "operator", COMMAND, proto((1, 0)))
    yield ("operator", "a command that is no message", "INVALID_ARGUMENT the message cannot be parsed",
           lambda: asks("operator", COMMAND, b"\xff" * 9))
    yield "operator", "a switch to a staleness below 0", "INVALID_ARGUMENT staleness is below 0", lambda: asks(
        "operator", COMMAND, SWITCH + proto((5, proto((2, -1)))))
    yield "server", "joins as shard 1, which is there", "shard 1 is already served by .*", (
        lambda: _join(world, "server", shard))
    yield "server", "joins as shard 99", "there is no shard 99: .*", lambda: _join(
        world, "server", world.registration(shard=99, address="x"))


def rows(world):
    for attack, expected, run in _replays(world):
        yield Row("who overhears", attack, expected, run)
    for role, attack, expected, run in _roles(world):
        yield Row(f"key of the {role}", attack, expected, run)
