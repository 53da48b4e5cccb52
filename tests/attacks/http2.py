"""As much of HTTP/2 (RFC 9113) and gRPC as a stranger needs: every byte is the caller's to choose, no rule is kept
for it."""

import base64
import socket
import struct
import time
import urllib.parse

PATIENCE = 20  # seconds

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8

CODES = ("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
         "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
         "UNAUTHENTICATED").split()
ERRORS = ("NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED "
          "FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM "
          "INADEQUATE_SECURITY HTTP_1_1_REQUIRED").split()


def frame(kind, flags, stream, payload=b"", length=None):
    """`length` is what it says of its payload, if that is not the truth."""
    size = struct.pack(">I", len(payload) if length is None else length)[1:]
    return size + struct.pack(">BBI", kind, flags, stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def integer(value, bits):
    """Of HPACK (RFC 7541), behind a prefix of zeros."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out, value = bytes([most]), value - most
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def header(name, value):
    """Neither in a table nor to be put into one."""
    name, value = (text.encode() if isinstance(text, str) else text for text in (name, value))
    return b"\0" + integer(len(name), 7) + name + integer(len(value), 7) + value


def call_headers(path, metadata=()):
    """`metadata`: pairs; bytes under a name in -bin are coded."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
              ("content-type", "application/grpc"), ("te", "trailers")]
    for name, value in metadata:
        fields.append((name, base64.b64encode(value).rstrip(b"=") if name.endswith("-bin") else value))
    return b"".join(header(name, value) for name, value in fields)


def _read_integer(block, at, bits):
    most = (1 << bits) - 1
    value, at, shift = block[at] & most, at + 1, 0
    while value >= most and (shift == 0 or block[at - 1] & 128):
        value, at, shift = value + ((block[at] & 127) << shift), at + 1, shift + 7
    return value, at


def _read_text(block, at):
    size, at = _read_integer(block, at, 7)
    return block[at:at + size].decode(errors="replace"), at + size


def fields_of(block):
    """Those that are in no table: since we allow none of its own, all of gRPC's."""
    fields, at = {}, 0
    while at < len(block):
        first, name = block[at], None
        bits = 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4
        index, at = _read_integer(block, at, bits)
        if bits in (5, 7):
            continue
        if index == 0:
            name, at = _read_text(block, at)
        value, at = _read_text(block, at)
        if name:
            fields[name] = value
    return fields


class Gone(Exception):
    """The connection is closed."""


class Stream:
    def __init__(self):
        self.data, self.fields, self.ended, self.reset, self.window, self.answered = b"", {}, False, None, 65535, False

    def messages(self):
        at, messages = 0, []
        while len(self.data) >= at + 5:
            size = struct.unpack(">I", self.data[at + 1:at + 5])[0]
            if len(self.data) < at + 5 + size:
                break
            messages.append(self.data[at + 5:at + 5 + size])
            at += 5 + size
        return messages


class Connection:
    """`polite` ones wait for the server's settings, acknowledge them, and answer pings."""

    def __init__(self, address, first=None, polite=True):
        self.began, self.polite, self.goaway = time.monotonic(), polite, None
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in, self._next = b"", 1
        self.streams, self.window, self._first_window, self.is_closed, self._settled = {}, 65535, 65535, False, False
        if first is None:  # no table of headers, all windows as large as may be
            window = frame(WINDOW, 0, 0, struct.pack(">I", (1 << 31) - 65536))
            first = PREFACE + settings((1, 0), (4, (1 << 31) - 1)) + window
        self.send(first)
        while self.polite and not self._settled:
            self.read(self.began + PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.close()

    def age(self):
        return time.monotonic() - self.began

    def send(self, data):
        try:
            self._socket.settimeout(PATIENCE)
            self._socket.sendall(data)
        except OSError as error:
            raise Gone from error

    def read(self, deadline):
        """Takes what has come. Raises Gone if nothing more comes, TimeoutError at the deadline."""
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            new = self._socket.recv(1 << 20)
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone from error
        if not new:
            raise Gone
        self._in += new
        while len(self._in) >= 9:
            size = int.from_bytes(self._in[:3], "big")
            if len(self._in) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._in[3:9])
            payload, self._in = self._in[9:9 + size], self._in[9 + size:]
            self._on_frame(kind, flags, self.streams.get(stream), stream, payload)

    def _on_frame(self, kind, flags, stream, number, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload) - 5, 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:
                    for other in self.streams.values():
                        other.window += value - self._first_window
                    self._first_window = value
            self._settled = True
            if self.polite:
                self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            if self.polite:
                self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW and number == 0:
            self.window += struct.unpack(">I", payload)[0]
        elif kind == WINDOW and stream:
            stream.window += struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">I", payload[4:8])[0]
        elif kind == DATA and stream:
            stream.data += payload
        elif kind in (HEADERS, CONTINUATION) and stream:
            stream.answered = True
            stream.fields.update(fields_of(payload))
        elif kind == RST and stream:
            stream.answered = True
            stream.reset, stream.ended = struct.unpack(">I", payload)[0], True
        if kind in (DATA, HEADERS) and stream and flags & END_STREAM:
            stream.ended = True

    def open(self, path, metadata=(), end=False):
        """Begins a call; its number."""
        number, self._next = self._next, self._next + 2
        self.streams[number] = Stream()
        self.streams[number].window = self._first_window
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), number, call_headers(path, metadata)))
        return number

    def open_and_wait(self, path, metadata=()):
        """The same, once the server has answered that it knows who calls, or that it does not."""
        number = self.open(path, metadata)
        deadline = time.monotonic() + PATIENCE
        while not self.streams[number].answered:
            self.read(deadline)
        return number

    def message(self, number, payload, end=False, compressed=0, announced=None):
        """One message, or one that announces another size. False if the stream has ended before all was taken."""
        data = struct.pack(">BI", compressed, len(payload) if announced is None else announced) + payload
        stream, deadline, at = self.streams[number], time.monotonic() + PATIENCE, 0
        while at < len(data):
            size = min(16384, self.window, stream.window, len(data) - at)
            if stream.ended:
                return False
            if size <= 0:
                self.read(deadline)
                continue
            self.send(frame(DATA, END_STREAM if end and at + size == len(data) else 0, number, data[at:at + size]))
            at, self.window, stream.window = at + size, self.window - size, stream.window - size
        return True

    def await_end(self, number, patience=PATIENCE):
        """The end of a call, in words: its code and sentence, or how the stream or the connection ended, or that it
        did not."""
        stream, deadline = self.streams[number], time.monotonic() + patience
        try:
            while not stream.ended:
                self.read(deadline)
        except TimeoutError:
            return "no end"
        except Gone:
            if not stream.ended:
                return self.gone()
        if "grpc-status" in stream.fields:
            code = CODES[int(stream.fields["grpc-status"])]
            return f"{code} {urllib.parse.unquote(stream.fields.get('grpc-message', ''))}".strip()
        return f"stream reset: {ERRORS[stream.reset]}" if stream.reset is not None else "ended without a status"

    def await_message(self, number, count=1, patience=PATIENCE):
        """The first `count` messages of the answer, or how the call ended before."""
        stream, deadline = self.streams[number], time.monotonic() + patience
        while len(stream.messages()) < count:
            if stream.ended:
                return self.await_end(number)
            try:
                self.read(deadline)
            except TimeoutError:
                return "no answer"
            except Gone:
                return self.gone()
        return stream.messages()[:count]

    def await_close(self, patience=PATIENCE):
        """When the server closes the connection, in words."""
        deadline = time.monotonic() + patience
        try:
            while True:
                self.read(deadline)
        except TimeoutError:
            return f"open after {patience} s"
        except Gone:
            return self.gone()

    def gone(self):
        self.is_closed = True
        return ("" if self.goaway is None else f"GOAWAY {ERRORS[self.goaway]}, ") + f"closed after {self.age():.0f} s"


def call(address, path, message=b"", metadata=(), **how):
    """A whole call on a connection of its own, in words. `how`: as of Connection.message."""
    with Connection(address) as connection:
        try:
            number = connection.open(path, metadata)
            connection.message(number, message, end=True, **how)
            return connection.await_end(number)
        except Gone:
            return connection.gone()
