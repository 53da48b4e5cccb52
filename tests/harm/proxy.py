"""Proxies of TCP connections that harm them as networks do: bytes stay away, come late, or overtake those of other
connections.

Within a connection bytes keep their order, as TCP has it. Nobody is told of anything.
"""

import collections
import functools
import os
import random
import select
import socket
import threading
import time

_BACKLOG = 64
_MOST_WAITING = 1 << 20  # bytes of a direction; a slow reader slows its writer, as without a proxy


def _entries(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []  # its process has ended


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""  # it has been closed


class Connection:
    """One connection: ends[0] is whoever called `door`, ends[1] the target."""

    def __init__(self, door, client, target, find_caller):
        self.door = door
        self.ends = [client, target]
        self._find_caller = find_caller
        self.bytes = 0
        self.waiting = [collections.deque(), collections.deque()]  # (when due, bytes) from that end
        self.waiting_bytes = [0, 0]
        self.closed = [False, False]  # nothing more comes from that end
        self.told = [False, False]  # and the other has been told
        self.dead = False

    @functools.cached_property
    def pid(self):
        """Of the caller; None if it has ended. Looked up when somebody asks: that takes longer than all else here."""
        return self._find_caller()


class Door:
    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(_BACKLOG)
        self.listener.setblocking(False)
        self.target = None  # a port
        self.barred = False
        self.fillers = []


class Proxies:
    """Doors that connections go through, all served by one thread. Any thread may call."""

    def __init__(self, pids):
        """`pids` says which processes may call."""
        self._pids = pids
        self._lock = threading.Lock()
        self._doors = {}
        self._connections = []
        self._cuts = []
        self._delay = 0.0
        self._random = random.Random(0)
        self._ending = False
        self._wake, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def open(self, name):
        """A new door, at the returned port. Who calls waits until it has a target."""
        door = Door()
        with self._lock:
            self._doors[name] = door
        return door.listener.getsockname()[1]

    def set_target(self, name, port):
        with self._lock:
            self._doors[name].target = port
        self._poke()

    def bar(self, name):
        """As a network that is cut, the door answers nobody: a kernel takes connections for who does not accept them,
        until the queue for them is full."""
        with self._lock:
            door = self._doors[name]
            door.barred = True
            door.listener.listen(0)
            for _ in range(3):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(door.listener.getsockname())
                door.fillers.append(filler)
        self._poke()

    def unbar(self, name):
        with self._lock:
            door = self._doors[name]
            door.barred = False
            while door.fillers:
                door.fillers.pop().close()
            door.listener.listen(_BACKLOG)
        self._poke()

    def cut(self, is_cut):
        """From now on connections of which `is_cut` is true, old and new ones, carry nothing. Returns what heal
        takes."""
        with self._lock:
            self._cuts.append(is_cut)
        self._poke()
        return is_cut

    def heal(self, cut):
        """What was kept back comes."""
        with self._lock:
            self._cuts.remove(cut)
        self._poke()

    def set_delay(self, longest):
        """Each piece is held back for up to so many seconds, drawn for each: connections overtake one another."""
        with self._lock:
            self._delay = longest

    def connections(self):
        with self._lock:
            return [connection for connection in self._connections if not connection.dead]

    def close(self):
        with self._lock:
            self._ending = True
        self._poke()
        self._thread.join()
        for door in self._doors.values():
            for end in (door.listener, *door.fillers):
                end.close()
        for connection in self._connections:
            self._drop(connection)
        os.close(self._wake)
        os.close(self._wake_writer)

    def _poke(self):
        try:
            os.write(self._wake_writer, b".")
        except BlockingIOError:
            pass

    def _is_cut(self, connection):
        return any(cut(connection) for cut in self._cuts)

    def _caller(self, here, there):
        """Whose socket is at the other end, by the kernel's tables."""
        inode = None
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as file:
                for line in list(file)[1:]:
                    words = line.split()
                    if int(words[1].split(":")[1], 16) == there and int(words[2].split(":")[1], 16) == here:
                        inode = words[9]
        for pid in self._pids():
            for descriptor in _entries(f"/proc/{pid}/fd"):
                if _link(f"/proc/{pid}/fd/{descriptor}") == f"socket:[{inode}]":
                    return pid
        return None

    def _run(self):
        while True:
            poll, sources, timeout = self._interest()
            if poll is None:
                return
            ready = poll.poll(timeout)
            with self._lock:
                for descriptor, _ in ready:
                    kind, what, end = sources[descriptor]
                    if kind == "wake":
                        try:
                            os.read(self._wake, 1 << 12)
                        except BlockingIOError:
                            pass
                    elif kind == "door":
                        self._accept(what)
                    elif not what.dead:
                        self._read(what, end)
                for connection in self._connections:
                    if not connection.dead and not self._is_cut(connection):
                        self._write(connection, 0)
                        self._write(connection, 1)
                self._connections = [c for c in self._connections if not c.dead]

    def _interest(self):
        with self._lock:
            if self._ending:
                return None, None, None
            poll, sources, next_due = select.poll(), {self._wake: ("wake", None, 0)}, None
            poll.register(self._wake, select.POLLIN)
            for name, door in self._doors.items():
                if door.target is not None and not door.barred:
                    poll.register(door.listener, select.POLLIN)
                    sources[door.listener.fileno()] = ("door", name, 0)
            now = time.monotonic()
            for connection in self._connections:
                if self._is_cut(connection):
                    continue
                for end in (0, 1):
                    interest = 0
                    if not connection.closed[end] and connection.waiting_bytes[end] < _MOST_WAITING:
                        interest |= select.POLLIN
                    waiting = connection.waiting[1 - end]
                    if waiting and waiting[0][0] <= now:
                        interest |= select.POLLOUT
                    elif waiting:
                        next_due = min(next_due or waiting[0][0], waiting[0][0])
                    if interest:
                        poll.register(connection.ends[end], interest)
                        sources[connection.ends[end].fileno()] = ("end", connection, end)
            return poll, sources, None if next_due is None else max(0, (next_due - now) * 1000)

    def _accept(self, name):
        door = self._doors[name]
        try:
            client, (_, port) = door.listener.accept()
        except BlockingIOError:
            return
        server = socket.socket()
        try:
            server.connect(("127.0.0.1", door.target))
        except OSError:
            client.close()
            server.close()
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        here = client.getsockname()[1]
        self._connections.append(Connection(name, client, server, lambda: self._caller(here, port)))

    def _read(self, connection, end):
        if connection.closed[end] or connection.waiting_bytes[end] >= _MOST_WAITING:
            return
        try:
            got = connection.ends[end].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got:
            connection.closed[end] = True
            return
        connection.bytes += len(got)
        waiting = connection.waiting[end]
        due = time.monotonic() + self._random.uniform(0, self._delay) if self._delay else 0
        waiting.append((max(due, waiting[-1][0]) if waiting else due, got))
        connection.waiting_bytes[end] += len(got)

    def _write(self, connection, end):
        """What has come from that end and is due goes to the other."""
        waiting, now = connection.waiting[end], time.monotonic()
        try:
            while waiting and waiting[0][0] <= now:
                due, piece = waiting.popleft()
                sent = connection.ends[1 - end].send(piece)
                connection.waiting_bytes[end] -= sent
                if sent < len(piece):
                    waiting.appendleft((due, piece[sent:]))
                    return
        except BlockingIOError:
            waiting.appendleft((due, piece))
            return
        except OSError:
            self._drop(connection)
            return
        if connection.closed[end] and not waiting and not connection.told[end]:
            connection.told[end] = True
            try:
                connection.ends[1 - end].shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if all(connection.told):
            self._drop(connection)

    def _drop(self, connection):
        connection.dead = True
        for end in connection.ends:
            end.close()
