"""A registered worker gone bad: it holds the run's worker-key, knows the job, and has a rank, but nothing to
compute."""

import functools
import random
import struct
import time

from http2 import Connection, Gone, PATIENCE, call
from row import Row, tally
from rubato import (HEARTBEAT, INT8, JOIN, OBSERVER, PARAMETERS, PULL, PUSH, RESTORE, RETIRE, STREAM, TOPK,
                    data_frame, parse, proto)
from world import BLOCK, COMPUTES

NAN, INFINITY = float("nan"), float("inf")


class Member:
    """Registers; a context in which it is a member."""

    def __init__(self, world, **registration):
        self.world = world
        attempt = random.random()  # its bits
        self.attempt = struct.unpack("<Q", struct.pack("<d", attempt))[0]
        registration.setdefault("attempt", attempt)
        self._connection = Connection(world.coordinator)
        self._number = self._connection.open_and_wait(JOIN, world.shown("worker", JOIN))
        self.say(world.registration(**registration))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def say(self, *messages):
        for message in messages:
            self._connection.message(self._number, message)

    def view(self):
        """The first that it gets, as rank, incarnation and number; or why it is refused."""
        answer = self._connection.await_message(self._number)
        if not isinstance(answer, list):
            return answer
        message = parse(answer[0])
        if 1 not in message:
            return self.world.said(self._connection, self._number)
        view = parse(message[1][0])
        rank = view[10][0]
        members = {member.get(1, [0])[0]: member[2][0] for member in map(parse, view[4])}
        self.rank, self.incarnation, self.number = rank, members[rank], view[1][0]
        return self

    def end(self, patience=PATIENCE):
        return self.world.said(self._connection, self._number, patience)


def _says(world, *messages):
    """The coordinator's last word to a member that says so; "member still" if it has none for half a second."""
    with Member(world) as member:
        member.view()
        try:
            member.say(*messages)
        except Gone:
            pass
        end = member.end(0.5)
        return "member still" if end == "no end" else end


def _registers(world, **other):
    with Member(world, **other) as member:
        answer = member.view()
        return "a member" if isinstance(answer, Member) else answer


def _sends(world, address, *frames):
    """What ends a member's data stream that carries such frames; "stream still" if nothing does, and a pull is
    answered behind them. `frames`: each a payload and fields, to which what fits is added."""
    with Member(world) as member:
        member.view()
        with Connection(address) as connection:
            number = connection.open_and_wait(STREAM, world.of_job(world.shown("worker", STREAM, address)))
            first = 0 if address == world.coordinator else 6
            try:
                if not any("worker" in fields for _, fields in frames):
                    # Shows whose the stream is, by a pull that is never answered.
                    connection.message(number, data_frame(
                        view=member.number, worker=member.rank, block=first, block_count=1, clock=1 << 49,
                        version=member.attempt))
                for payload, fields in frames:
                    f = dict(view=member.number, lineage=1, worker=member.rank, incarnation=member.incarnation,
                             block=first, samples=64, end_leaf=1, block_count=1)
                    f.update(fields)
                    connection.message(number, data_frame(payload, **f))
                connection.message(number, data_frame(worker=OBSERVER, block=first, block_count=1, unit=99))
            except Gone:
                return connection.gone()
            answer = connection.await_message(number)
            return "stream still" if isinstance(answer, list) else answer


def _bytes(address, world, *messages, **how):
    with Connection(address) as connection:
        number = connection.open_and_wait(STREAM, world.of_job(world.shown("worker", STREAM, address)))
        try:
            for message in messages:
                connection.message(number, message, **how)
        except Gone:
            return connection.gone()
        return connection.await_end(number)


def _registrations(world):
    layout = proto((1, proto((1, "x"), (2, 1 << 60))))
    deep = b""
    for _ in range(200):
        deep = proto((1, deep))
    for attack, expected, other in (
            ("another version", "this process is version 9.9; .*", dict(version="9.9")),
            ("another job", "this process has another job than the coordinator: .*", dict(job_digest="0" * 64)),
            ("data of others", "this worker's data differ from those of .*", dict(data_digest="0" * 64)),
            ("no parameters", "the worker has no parameters", dict(layout=b"")),
            ("a parameter of 2^60 values", ".*(2\\^40|1099511627776|1152921504606846976).*", dict(layout=layout)),
            ("an extent below 0", ".*-1.*", dict(layout=proto((1, proto((1, "x"), (2, -1)))))),
            ("a layout 200 messages deep", ".*(has no parameters|differ).*", dict(layout=deep)),
            ("-1 training samples", "worker.train_samples: found -1, expected 1 to .*", dict(train_samples=-1)),
            ("2^63 - 1 test samples", "worker.test_samples: found 9223372036854775807, expected 0 to .*",
             dict(test_samples=(1 << 63) - 1)),
            ("a term that has not been", "this process has taken part in term 7 of its job; this one is in term 1",
             dict(last_term=7)),
            ("a name of 257 bytes", "process: found 257 bytes, expected at most 256", dict(process="x" * 257)),
            ("a name of 1 MB", "process: found 1000000 bytes, expected at most 256", dict(process="x" * 1_000_000)),
            ("what computes it, in 5 KB", "worker.numerics: found 5000 bytes, expected at most 4096",
             dict(numerics="x" * 5000)),
            ("a rank of others", "a member", dict(rank=COMPUTES)),
            ("rank 2^31 - 1", "a member", dict(rank=(1 << 31) - 1)),
            ("rank -2^31", "a member", dict(rank=-(1 << 31)))):
        yield f"registers with {attack}", expected, lambda other=other: _registers(world, **other)
    yield "registers nine times, of which six have room", "6 × a member; 3 × no more workers are wanted: .*", (
        lambda: _many(world))
    begins = "this process is not registered: a call begins with a registration, found .*"
    for attack, message in (("progress", proto((4, b""))), ("nothing", b""),
                            ("a field that there is not", proto((99, b"x")))):
        yield f"joins with {attack} in place of a registration", begins, lambda message=message: _join(world, message)
    yield "registers and leaves 200 times", "200 registrations; the view changed seldom", lambda: _comes_and_goes(world)
    yield "joins with what is no message", "OK", lambda: _join(world, b"\xff" * 99)


def _many(world):
    members = []
    try:
        for _ in range(9):
            members.append(Member(world))
        answers = [member.view() for member in members]
        return tally("a member" if isinstance(answer, Member) else answer for answer in answers)
    finally:
        for member in members:
            member.__exit__()


def _comes_and_goes(world):
    before, began = len(world.views()), time.monotonic()
    for _ in range(200):
        with Member(world):
            pass
    changes = len(world.views()) - before
    # 16 times at once and 4 a second for those who come, and as often for those who go.
    is_seldom = changes <= 2 * (16 + 4 * (time.monotonic() - began + 1))
    return "200 registrations; the view changed " + ("seldom" if is_seldom else f"{changes} times")


def _join(world, message):
    with Connection(world.coordinator) as connection:
        number = connection.open_and_wait(JOIN, world.shown("worker", JOIN))
        try:
            connection.message(number, message)
        except Gone:
            return connection.gone()
        return world.said(connection, number)


def _text(world, text):
    """Registers under such a name, leaves, and looks where people would read it."""
    with Member(world, process=text) as member:
        member.view()
        status = world.command("status", "--json")
        member.say(proto((15, proto((1, text)))))
        member.end()
    raw = [name for name, data in [("status --json", status)] + world.texts() if not _is_clean(data)]
    return f"raw in {', '.join(raw)}" if raw else "a member; logs and JSON have it escaped"


def _is_clean(data):
    """No control of ASCII's but the ends of lines, and no line that the name has made."""
    return not any(byte < 32 and byte != 10 for byte in data) and b"\nforged" not in data


def _messages(world):
    invalid = "this process sent an invalid message: "
    progress = dict(unit=1 << 50, first=0, loss=(0.5,), samples=(64,), more=())

    def tells(**other):
        f = dict(progress, **other)
        return proto((4, proto((1, f["unit"]), (2, f["first"]), *((3, loss) for loss in f["loss"]),
                               *((5, count) for count in f["samples"]), *f["more"])))

    for attack, message, expected in (
            ("progress of step -1", tells(unit=-1), "progress.unit: .*"),
            ("progress of step 2^63 - 1", tells(unit=(1 << 63) - 1), "progress.unit: .*"),
            ("progress of a step far ahead", tells(unit=900_000_000), "progress.unit: .*"),
            ("progress of micro-batch -1", tells(first=-1), "progress.first_leaf: .*"),
            ("progress of micro-batch 2^62", tells(first=1 << 62), "progress.first_leaf: .*"),
            ("progress of 1,000 micro-batches", tells(loss=(0.5,) * 1000), "progress.loss_sum: .*"),
            ("progress with fewer counts than losses", tells(samples=()), "progress.samples: .*"),
            ("progress of -1 samples", tells(samples=(-1,)), "progress.samples: .*"),
            ("progress of 2^62 samples", tells(samples=(1 << 62,)), "progress.samples: .*"),
            ("progress with NaN right answers", tells(more=((4, NAN),)), "progress.correct: .*"),
            ("progress with infinitely many judged", tells(more=((13, INFINITY),)), "progress.judged: .*"),
            ("progress that took 1e300 seconds", tells(unit=0, more=((14, 1e300),)), "progress.computing_seconds: .*"),
            ("progress that waited NaN seconds", tells(unit=0, more=((11, NAN),)), "progress.waiting_seconds: .*"),
            ("progress that pushed -1 bytes", tells(unit=0, more=((9, -1),)), "progress.pushed_bytes: .*"),
            ("progress at clock -1", tells(unit=0, more=((8, -1),)), "progress.clock: .*"),
            ("progress of NaN staleness", tells(unit=0, more=((6, NAN),)), "progress.staleness: .*"),
            ("progress that was held back for NaN seconds", tells(unit=0) + proto((19, NAN)), "held_seconds: .*"),
            ("progress that was held back for -1 seconds", tells(unit=0) + proto((19, -1.0)), "held_seconds: .*"),
            ("a shard's opening behind a message of its own", proto((6, proto((1, 1))), (18, proto((2, b"")))),
             "shard_opened: not sent by a worker"),
            ("a test of -1 samples", proto((5, proto((1, 0), (3, 0.0), (5, -1)))), "evaluation.samples: .*"),
            ("a test with NaN right answers", proto((5, proto((1, 0), (4, NAN), (5, 9)))), "evaluation.correct: .*"),
            ("a test at step -1", proto((5, proto((1, -1), (5, 9)))), "evaluation.unit: .*"),
            ("a request with -1 contributions applied", proto((3, proto((1, -1)))), "work_request.applied: .*"),
            ("a request for 65 contributions", proto((3, proto((2, 65)))), "work_request.count: .*"),
            ("idle with 2^62 contributions applied", proto((6, proto((1, 1), (2, 1 << 62)))), "idle.applied: .*"),
            ("leaves with -1 contributions applied", proto((15, proto((2, -1)))), "leave.applied: .*"),
            ("values to begin with, which nobody has asked for", proto((17, proto((1, 0), (2, b"\0" * 8)))), None),
            ("a failure with exit code 0", proto((8, proto((1, 0), (2, "x")))), "failure.exit_code: .*"),
            ("a failure with exit code 2^31 - 1", proto((8, proto((1, (1 << 31) - 1)))), "failure.exit_code: .*"),
            *((f"a shard's {name}", proto((number, b"")), "[a-z_]+: not sent by a worker")
              for name, number in (("opening", 2), ("report", 7), ("close", 9), ("question", 10), ("copy", 11),
                                   ("missed copy", 12), ("restoring", 13), ("part of a checkpoint", 16))),
            ("a request to stop the job", proto((14, proto((1, "x")))), "[a-z_]+: not sent by a worker"),
            ("a second registration, and then nothing that is known", world.registration() + proto((99, b"x")),
             "registration: not sent by a worker")):
        yield attack, "member still" if expected is None else invalid + expected, (
            lambda message=message: _says(world, message))
    yield ("a test that nobody asked for",
           "this process sent an invalid message: evaluation.is_final: found a final test, expected none: .*",
           lambda: _says(world, proto((5, proto((1, 1), (3, 1.0), (5, 9), (6, 1))))))
    yield "10,000 messages that are of no use", "member still", lambda: _says(world, *[proto((3, b""))] * 10_000)
    yield "10,000 messages behind another", "OK", lambda: _says(
        world, proto((3, b""), *[(18, proto((3, b"")))] * 10_000))
    yield "messages behind messages, 200 deep", "OK", lambda: _says(world, functools.reduce(
        lambda inner, _: proto((3, b""), (18, inner)), range(200), b""))
    yield "what is no message", "OK", lambda: _says(world, b"\xff" * 50)
    yield "a failure, in escape sequences", "member still|OK", lambda: _says(
        world, proto((8, proto((1, 1), (2, "\x1b[2J\x1b]0;owned\7")))))
    clean = "a member; logs and JSON have it escaped"
    for attack, text in (("escape sequences of terminals", "\x1b[2J\x1b]0;owned\7"),
                         ("bytes that are no UTF-8", b"\xff\xfe\xc0\xaf"),
                         ("lines that look like the log's", "x\nforged error\r\nforged"),
                         ("zeros and backspaces", "a\0b\x08")):
        yield f"is called {attack}", clean, lambda text=text: _text(world, text)


def _beats(world):
    def beat(**f):
        fields = [(3, f.get("digest", world.digest)), (1, f.get("rank", 5)), (2, f.get("incarnation", 1)),
                  (5, f["busy"])]
        return call(world.coordinator, HEARTBEAT, proto(*fields), world.shown("worker", HEARTBEAT))

    yield "heartbeats of nobody, and of another job", "3 × OK", lambda: tally(
        beat(**f) for f in (dict(rank=-1, busy=1e9), dict(rank=1 << 30, busy=1e9), dict(digest="x", rank=0, busy=1e9)))
    yield "a heartbeat of another incarnation of worker 0 that says it hangs", "OK", lambda: beat(
        rank=0, incarnation=99, busy=1e300)
    yield "a heartbeat in the name of the worker that computes, which says that it hangs", "OK", lambda: beat(
        rank=COMPUTES, incarnation=1, busy=1e300)
    yield "heartbeats of itself, busy for NaN and -1e300 seconds", "2 × OK", lambda: _busy(world, beat)
    yield "a heartbeat that is no message", "INVALID_ARGUMENT the message cannot be parsed", lambda: call(
        world.coordinator, HEARTBEAT, b"\xff" * 9, world.shown("worker", HEARTBEAT))


def _busy(world, beat):
    with Member(world) as member:
        member.view()
        return tally(beat(rank=member.rank, incarnation=member.incarnation, busy=busy) for busy in (NAN, -1e300))


def _frames(world):
    one, two = world.coordinator, world.shard
    block, wrong = bytes(BLOCK), "INVALID_ARGUMENT "

    def push(payload=block, **fields):
        return payload, dict(fields, kind=PUSH)

    def pull(**fields):
        return b"", dict(fields, kind=PULL)

    most, far = (1 << 64) - 1, 1 << 51
    not_shown = wrong + "frame is from worker .*; its stream has not shown .*"
    for attack, expected, frame in (
            ("a push of block 2^64 - 1", wrong + "gradient is for block .*", push(block=most)),
            ("a push of a block of another shard", wrong + "gradient is for block 0; this shard owns .*",
             push(block=0)),
            ("a push of too few values", wrong + "gradient has 4095 values; .*", push(block[:-4])),
            ("a push of too many values", wrong + "gradient has 4097 values; .*", push(block + bytes(4))),
            ("a push of no values", wrong + ".*0 values.*", push(b"")),
            ("a push that announces more than comes", wrong + "frame has a payload of .*", push(payload_bytes=1 << 20)),
            ("a push of 2^32 - 1 values in 16 KiB", wrong + ".*4294967295 values.*", push(values=0xffffffff)),
            ("a push at clock 2^51", wrong + "frame has clock .*", push(clock=far)),
            ("a push computed at version 2^64 - 1", wrong + "frame has version .*", push(version=most)),
            ("a push of unit 2^64 - 1", wrong + "frame has unit .*", push(unit=most)),
            ("a push of a step that is to come", wrong + ".*step 1000000; .*", push(clock=1_000_000)),
            ("a push of no samples", wrong + ".*0 samples.*", push(samples=0)),
            ("a push of micro-batches 0 to 2 of 1", wrong + ".*no node of the tree.*", push(end_leaf=2)),
            ("a push of micro-batches 1 to 0", wrong + ".*no node of the tree.*", push(first_leaf=1, end_leaf=0)),
            ("a push of another incarnation of the worker that computes", wrong + ".*no member.*",
             push(worker=COMPUTES, incarnation=99)),
            ("a push of worker 2^32 - 2", wrong + ".*no member.*", push(worker=OBSERVER - 1)),
            ("a push in a view that is to come, by no member", wrong + ".*no member.*", push(view=1 << 31, worker=6)),
            ("a push of a view that is past", "stream still", push(view=1)),
            ("a push of another lineage", wrong + "contribution of view .* is of lineage 9; .*", push(lineage=9)),
            ("a push, in another's name, of a step that is past", not_shown,
             push(worker=COMPUTES, incarnation=1, clock=1)),
            ("NaNs for a step that is past", "stream still",
             push(struct.pack("<I", 0x7fc00000) * (BLOCK // 4), clock=1)),
            ("a push in a codec that is none", wrong + "frame has codec 200; .*", push(codec=200)),
            ("a push in int8 of the size of float32", wrong + ".*in int8.*", push(codec=INT8, values=4096)),
            ("a push in topk of 2^32 - 1 of 4,096 values", wrong + ".*in topk.*",
             push(b"\xff" * 4 + bytes(4), codec=TOPK, values=4096)),
            ("a push in topk with the same value twice", wrong + ".*in topk.*",
             push(struct.pack("<5I", 2, 7, 7, 0, 0), codec=TOPK, values=4096)),
            ("a pull of no block", wrong + "pull is for blocks .*", pull(block_count=0)),
            ("a pull of 2^32 - 1 blocks", wrong + "pull is for blocks .*", pull(block_count=0xffffffff)),
            ("a pull from block 2^64 - 1", wrong + "pull is for blocks .*", pull(block=most)),
            ("a pull at clock 2^64 - 1", wrong + "frame has clock .*", pull(clock=most)),
            ("a pull in int8", wrong + "pull asks for parameters in int8; .*", pull(codec=INT8)),
            ("a pull of a worker that is no member",
             wrong + "pull of view .* is from worker 6, who is no member of view .*", pull(worker=6)),
            ("a pull of a snapshot that is none", wrong + "worker .* asks for snapshot 77; observers do",
             pull(snapshot=77)),
            ("parameters, which only servers send", wrong + "a shard takes pushes and pulls; .*",
             (block, dict(kind=PARAMETERS))),
            ("values to begin with", wrong + "nothing is being restored", (block, dict(kind=RESTORE, worker=OBSERVER))),
            ("a retirement in another's name", not_shown, (b"", dict(kind=RETIRE, worker=COMPUTES))),
            ("a frame of kind 9", wrong + "frame has kind 9; .*", (b"", dict(kind=9))),
            ("a frame of another version", wrong + "frame begins with .*", (b"", dict(magic=0x07425552)))):
        yield attack, expected, lambda frame=frame: _sends(world, two, frame)
    stolen = wrong + "frame is from worker .*; its stream has not shown that it is that worker's"
    for verb, kind in (("pushes", PUSH), ("pulls", PULL), ("retires", RETIRE)):
        yield f"{verb} in the name of a member that has not spoken yet", stolen, lambda kind=kind: _steals(world, kind)
    yield "95 bytes of a frame", wrong + "frame has 95 bytes; .*", lambda: _bytes(two, world, bytes(95))
    yield "a message of 256 MiB", r"closed after \d s", lambda: _bytes(two, world, bytes(256 << 20))
    yield "a message of 256 MiB on the coordinator's data stream", r"closed after \d s", lambda: _bytes(
        one, world, bytes(256 << 20))
    yield "a message without a frame", wrong + "frame has 0 bytes; .*", lambda: _bytes(one, world, b"")
    yield "1,000 pulls of what never comes, in one message", "the stream is kept; .*", lambda: _waits(world, two)
    yield "20 data streams that never read their answers", "20 × open", lambda: _unread(world, two)
    offer = "answer: the (offer of shared memory is not understood|worker.*)"
    for attack, text in (("five words", "a b c d e"), ("process 1", "{boot} 1 1 2097152 1"),
                         ("its own standard input", "{boot} {pid} 0 2097152 1"),
                         ("rings of 2^64 - 1 bytes", "{boot} 1 1 18446744073709551615 1"),
                         ("process -1", "{boot} -1 -1 2097152 1"), ("7,000 bytes", "x" * 7000)):
        yield f"offers to share the memory of {attack}", offer, lambda text=text: _offers(world, two, text)
    yield "a data stream of another job", "FAILED_PRECONDITION this server runs another job: .*", lambda: call(
        two, STREAM, b"", world.shown("worker", STREAM, two) + [("rubato-job-digest", "0" * 64), ("rubato-term", "1")])
    for term, expected in (("-1", "INVALID_ARGUMENT the stream's term is not a number"),
                           ("99", "UNAVAILABLE the stream is of term 99, .*"),
                           ("9" * 99, "INVALID_ARGUMENT the stream's term is not a number")):
        yield f"a data stream of term {term[:9]}", expected, lambda term=term: call(
            one, STREAM, b"",
            world.shown("worker", STREAM) + [("rubato-job-digest", world.digest), ("rubato-term", term)])


def _steals(world, kind):
    """Speaks as another worker, which is a member and has not opened its stream yet. Once more if the view has
    changed meanwhile: what is late is dropped."""
    answers = (_steals_once(world, kind) for _ in range(3))
    return next((answer for answer in answers if answer != "no end"), "no end")


def _steals_once(world, kind):
    with Member(world) as victim, Member(world) as member:
        victim.view()
        member.view()
        with Connection(world.shard) as connection:
            number = connection.open_and_wait(STREAM, world.of_job(world.shown("worker", STREAM, world.shard)))
            payload, version = (bytes(BLOCK), 0) if kind == PUSH else (b"", member.attempt)
            connection.message(number, data_frame(
                payload, kind=kind, view=member.number, lineage=1, worker=victim.rank, clock=1 << 49,
                incarnation=victim.incarnation, block=6, samples=64, end_leaf=1, block_count=1, version=version))
            return connection.await_end(number, patience=3)


def _waits(world, address):
    pulls = b"".join(data_frame(worker=OBSERVER, block=6, block_count=7, clock=1 << 49, unit=i) for i in range(1000))
    with Connection(address) as connection:
        number = connection.open_and_wait(STREAM, world.of_job(world.shown("worker", STREAM, address)))
        connection.message(number, pulls + data_frame(worker=OBSERVER, block=6, block_count=1))
        answer = connection.await_message(number)
        return "the stream is kept; a pull behind them is answered" if isinstance(answer, list) else answer


def _unread(world, address):
    connections, outcomes = [], []
    for _ in range(20):
        connection = Connection(address)
        connections.append(connection)
        number = connection.open_and_wait(STREAM, world.of_job(world.shown("worker", STREAM, address)))
        connection.message(number, b"".join(data_frame(worker=OBSERVER, block=6, block_count=7) for _ in range(20)))
    for connection in connections:
        outcomes.append("closed" if connection.is_closed else "open")
        connection.close()
    return tally(outcomes)


def _offers(world, address, text):
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    pid = world.pids["server 1"]
    text = text.replace("{boot}", boot).replace("{pid}", str(pid))
    with Connection(address) as connection:
        number = connection.open_and_wait(
            STREAM, world.of_job(world.shown("worker", STREAM, address)) + [("rubato-shared-memory", text)])
        connection.message(number, data_frame(worker=OBSERVER, block=6, block_count=1))
        answer = connection.await_message(number)
        if isinstance(answer, list):
            return f"answer: {connection.streams[number].fields.get('rubato-shared-memory')}"
        return answer


def rows(world):
    for who, kind in (("worker that registers", _registrations), ("bad member", _messages), ("bad member", _beats),
                      ("bad member", _frames)):
        for attack, expected, run in kind(world):
            yield Row(who, attack, expected, run)
    yield Row("bad member", "says nothing any more", "taken for dead: it was not heard of for 4.5s .*",
              lambda: _silent(world), True)
    yield Row("bad member", "a Join that does not register",
              "closed after (9|1\d) s|this process has called and not registered", lambda: _mute(world), True)


def _silent(world):
    with Member(world) as member:
        member.view()
        return member.end()


def _mute(world):
    with Connection(world.coordinator) as connection:
        return world.said(connection, connection.open(JOIN, world.shown("worker", JOIN)))
