"""Rubato's own words, written anew from its documents: protocol buffers, the proof of a key, frames of data."""

import hashlib
import hmac
import os
import struct

from http2 import Connection, Gone

HELLO = "/rubato.proto.Authentication/Hello"
JOIN, HEARTBEAT, COMMAND = (f"/rubato.proto.Coordination/{name}" for name in ("Join", "Heartbeat", "Command"))
STREAM = "/rubato.Data/Stream"
CALLER = "rubato-caller-bin"
ROLES = {"observer": 1, "operator": 2, "worker": 3, "server": 4}


def varint(value):
    value, out = value % (1 << 64), b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def proto(*fields):
    """A message of (number, value): an int, a float (a double), text, bytes (also another message) or a list of
    packed ones."""
    out = b""
    for number, value in fields:
        if isinstance(value, bool) or isinstance(value, int):
            out += varint(number << 3) + varint(int(value))
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def parse(data):
    """By number: all values, in order."""
    fields, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            value = read()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or (read() if tag & 7 == 2 else 0)
            value, at = data[at:at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def mac(key, label, *parts):
    return hmac.new(key, label.encode() + b"\0" + b"".join(parts), hashlib.sha256).digest()


class Key:
    """Of a role, from "worker-<64 hexadecimal digits>"."""

    def __init__(self, text):
        self.role, digits = text.strip().split("-")
        self.bytes = bytes.fromhex(digits)

    def of(self, role):
        """Of the secret: the key of a role."""
        derived = hmac.new(self.bytes, f"rubato key of the {role}".encode(), hashlib.sha256).digest()
        return Key(f"{role}-{derived.hex()}")


class Session:
    """What a server has answered to a hello."""

    def __init__(self, address, key, role=None):
        """As another `role` than the key's, if given."""
        self.key, self.counter = key, 0
        self.hello = bytes([1, ROLES[role or key.role]]) + os.urandom(16)
        with Connection(address) as connection:
            number = connection.open(HELLO)
            connection.message(number, proto((1, self.hello)), end=True)
            answer = connection.await_message(number)
        if not isinstance(answer, list):
            raise Gone(answer)
        self.welcome = parse(answer[0])[1][0]
        self.session, self.proof = self.welcome[:-32], self.welcome[-32:]
        self.is_proved = self.proof == mac(key.bytes, "rubato server", self.session)

    def shown(self, method, counter=None):
        """What a call of `method` shows. The next counter if none is given."""
        if counter is None:
            self.counter += 1
            counter = self.counter
        number = struct.pack("<Q", counter)
        own = mac(self.key.bytes, "rubato session", self.session)
        return self.session + number + mac(own, "rubato call", number, method.encode())


PUSH, PULL, PARAMETERS, RESTORE, RETIRE = range(1, 6)
FLOAT32, BF16, FP16, INT8, TOPK = range(5)
OBSERVER = 0xffffffff


def data_frame(payload=b"", magic=0x06425552, **fields):
    """A frame of common/frames/frame.h; `payload_bytes` and `values` tell the truth unless they are given."""
    f = dict(kind=PULL, codec=FLOAT32, view=0, worker=0, incarnation=0, block_count=0, block=0, clock=0, version=0,
             samples=0, first_leaf=0, end_leaf=0, staleness=0, unit=0, slot=0, snapshot=0, lineage=0,
             payload_bytes=len(payload), values=len(payload) // 4)
    f.update(fields)
    if f["kind"] == PUSH and "block_count" not in fields:  # the weight
        f["block_count"] = f["samples"]
    begin = struct.pack("<IBBxx4I3Q4IQ5I", magic, f["kind"], f["codec"], f["view"], f["worker"], f["incarnation"],
                        f["block_count"], f["block"], f["clock"], f["version"], f["samples"], f["first_leaf"],
                        f["end_leaf"], f["staleness"], f["unit"], f["slot"], f["snapshot"], f["lineage"],
                        f["payload_bytes"], f["values"])
    return begin.ljust(96, b"\0") + payload
