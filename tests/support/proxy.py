"""A TCP proxy of our own, between a worker and one of its servers, that can be told to fail.

Every connection has a thread, which owns both of its sockets. What goes wrong is a `Fault`, put in
force for the connections that it names, those of now and those to come, until it is lifted:

* ``stall``: nothing goes through; it lies in the kernels' buffers, and goes on when lifted;
* ``drop``: a half-open connection. What comes from that side is read, acknowledged and thrown away,
  so that the other side waits for ever; such a connection never comes to itself again;
* ``delay_s`` and ``bytes_per_s``: everything arrives, later.

`Proxy.cut` resets connections (RST, not FIN) at once, `Proxy.refuse` those that come.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

From = Literal["client", "server"]

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_HELD_BYTES_MAX = 1 << 20
"""Of what waits to go on in one direction; above it nothing more is read from that side."""
_HEAD_BYTES_MAX = 1 << 14
_RESET = struct.pack("ii", 1, 0)
_REQUEST = re.compile(rb"(?:GET|PUT|HEAD|POST|DELETE) [^\s]+ HTTP/1\.1\r\n")
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """What goes wrong, for connections whose client said ``of`` in its first bytes (b"": all)."""

    of: bytes = b""
    stall: bool = False
    drop: From | None = None
    delay_s: float = 0.0
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """From the first HTTP request on that holds ``request``, that connection gets no answer. Of a
    connection that speaks anything else it is the first piece of what the client says."""

    request: bytes
    after: int = 0
    """Of connections up to that number none is meant."""
    met: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Serves ``port`` of ``address``, in front of ``target`` on loopback, while it is entered.

    ``accepted`` counts connections. ``requests`` are the lines of the HTTP requests that came
    through, in order.
    """

    def __init__(self, target: int, *, address: str = LOOPBACK, port: int = 0) -> None:
        self.accepted = 0
        self.requests: list[bytes] = []
        self.faults: tuple[Fault, ...] = ()
        self.holds: tuple[Hold, ...] = ()
        self.refusing = False
        self._target = target
        self._listener = socket.create_server((address, port), backlog=64)
        self._pairs: list[_Pair] = []
        self._ended = False
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def open(self) -> int:
        """How many connections go through at the moment."""
        return len(self._open())

    @property
    def lost(self) -> int:
        """How many of them have lost something."""
        return sum(pair.lost for pair in self._open())

    # -- faults --------------------------------------------------------------------------------

    def begin(self, fault: Fault) -> Fault:
        """Put ``fault`` in force."""
        self.faults = (*self.faults, fault)
        self._wake()
        return fault

    def end(self, fault: Fault) -> None:
        """Lift ``fault``. Connections that lost something stay as dead as they are."""
        self.faults = tuple(one for one in self.faults if one is not fault)
        self._wake()

    def hold(self, request: bytes, *, fresh: bool = False) -> Hold:
        """Hold back the answer to the next request that has ``request`` in its line (or in what is
        said, where it is not HTTP), and all that follows on that connection; ``fresh``: on one that
        is yet to come."""
        hold = Hold(request, after=self.accepted if fresh else 0)
        self.holds = (*self.holds, hold)
        return hold

    def cut(self, of: bytes = b"") -> int:
        """Reset the connections that ``of`` names (see `Fault`); how many there were."""
        pairs = [pair for pair in self._open() if of in pair.head]
        for pair in pairs:
            pair.cut = True
        self._wake()
        return len(pairs)

    def refuse(self, refusing: bool = True) -> None:
        """Reset every new connection, or no more."""
        self.refusing = refusing

    # -- the proxy -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing or self._ended:
                _reset(client)
                continue
            try:
                server = socket.create_connection((LOOPBACK, self._target), _CONNECT_S)
            except OSError:
                _reset(client)
                continue
            self.accepted += 1
            pair = _Pair(self, client, server, number=self.accepted)
            self._pairs = [*self._open(), pair]
            pair.start()

    def _open(self) -> list[_Pair]:
        return [pair for pair in self._pairs if not pair.closed]

    def _wake(self) -> None:
        for pair in self._open():
            pair.wake()


class _Way:
    """One direction of a connection: what waits to go on, and when each piece may."""

    def __init__(self, side: From, source: socket.socket, sink: socket.socket) -> None:
        self.side = side
        self.source, self.sink = source, sink
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.lost = False
        """Something of it was thrown away: nothing goes on any more."""
        self.ended = False
        self._free_at = 0.0

    def add(self, data: bytes, delay_s: float, bytes_per_s: float | None) -> None:
        due = max(time.monotonic() + delay_s, self._free_at)
        if bytes_per_s is not None:
            due += len(data) / bytes_per_s
        self._free_at = due
        self.waiting.append((due, data))
        self.held += len(data)

    def send(self) -> None:
        """Pass on what may go now."""
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            due, data = self.waiting.popleft()
            sent = self.sink.send(data)
            self.held -= sent
            if sent < len(data):
                self.waiting.appendleft((due, data[sent:]))
                return

    def finish(self) -> None:
        """Pass on the end, once all before it has gone."""
        if self.ended and not self.waiting and not self.lost:
            self.sink.shutdown(socket.SHUT_WR)
            self.lost = True


class _Pair(threading.Thread):
    """One connection through the proxy, by its ``number``. ``head`` is how the client began."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, *, number: int
    ) -> None:
        super().__init__(name="proxied", daemon=True)
        self.number = number
        self.head = b""
        self.cut = False
        self.closed = False
        self._proxy = proxy
        self._client, self._server = client, server
        self._bell, self._ringer = socket.socketpair()
        self._up = _Way("client", client, server)
        self._down = _Way("server", server, client)
        self._held = False

    @property
    def lost(self) -> bool:
        return self._up.lost or self._down.lost

    def wake(self) -> None:
        try:
            self._ringer.send(b"!")
        except OSError:
            return  # It has ended meanwhile.

    def run(self) -> None:
        for sock in (self._client, self._server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while not (self.cut or (self._up.ended and self._down.ended)):
                self._turn()
        except OSError:
            self.cut = True  # One side was reset: so is the other.
        finally:
            self.closed = True
            for sock in (self._client, self._server):
                if self.cut:
                    _reset(sock)
                sock.close()
            self._bell.close()
            self._ringer.close()

    def _turn(self) -> None:
        faults = [fault for fault in self._proxy.faults if fault.of in self.head]
        ways = [] if any(fault.stall for fault in faults) else [self._up, self._down]
        now = time.monotonic()
        sources = [w.source for w in ways if not w.ended and w.held < _HELD_BYTES_MAX]
        sinks = [w.sink for w in ways if w.waiting and w.waiting[0][0] <= now]
        dues = [w.waiting[0][0] - now for w in ways if w.waiting and w.waiting[0][0] > now]
        readable, writable, _ = select.select(
            [self._bell, *sources], sinks, [], min(dues, default=None)
        )
        if self._bell in readable:
            self._bell.recv(_CHUNK_BYTES)
            return  # Whatever is in force now has a say in what is read next.
        for way in ways:
            if way.source in readable:
                self._receive(way, faults)
            if way.sink in writable:
                way.send()
            way.finish()

    def _receive(self, way: _Way, faults: list[Fault]) -> None:
        data = way.source.recv(_CHUNK_BYTES)
        if not data:
            way.ended = True
            return
        if way is self._up:
            self._look(data)
        if way.lost or self._loses(way, faults):
            way.lost = True
            return
        rates = [fault.bytes_per_s for fault in faults if fault.bytes_per_s is not None]
        way.add(data, sum(fault.delay_s for fault in faults), min(rates, default=None))

    def _loses(self, way: _Way, faults: list[Fault]) -> bool:
        return any(f.drop == way.side for f in faults) or (self._held and way is self._down)

    def _look(self, data: bytes) -> None:
        """What the client says: who it is, and what it asks for."""
        if len(self.head) < _HEAD_BYTES_MAX:
            self.head += data
        lines = _REQUEST.findall(data)
        self._proxy.requests += [line.strip() for line in lines]
        for hold in self._proxy.holds:
            due = not hold.met.is_set() and self.number > hold.after
            if due and any(hold.request in reported for reported in lines or [data]):
                self._held = True
                hold.met.set()


def _reset(sock: socket.socket) -> None:
    """End a connection with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()
