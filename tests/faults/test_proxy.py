"""The proxy does what its faults say, or tests behind it would prove nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.fixtures.capture import PATIENCE_S, poll
from tests.support.proxy import LOOPBACK, Fault, Proxy

SHORT_S = 0.15


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that says everything back."""
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Proxy(int(listener.getsockname()[1])) as proxy:
        yield proxy
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def echo(peer: socket.socket) -> None:
    with peer:
        try:
            while data := peer.recv(1 << 16):
                peer.sendall(data)
        except OSError:
            return


def client(proxy: Proxy, reported: bytes = b"hello") -> socket.socket:
    """A connection over which ``reported`` has come back."""
    sock = socket.create_connection((LOOPBACK, proxy.port))
    sock.settimeout(PATIENCE_S)
    assert asked(sock, reported) == reported
    return sock


def asked(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    answer = b""
    while len(answer) < len(data) and (more := sock.recv(1 << 16)):
        answer += more
    return answer


def silent(sock: socket.socket) -> bool:
    sock.settimeout(SHORT_S)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PATIENCE_S)
    return False


def test_a_cut_is_a_reset_of_those_it_names(proxy: Proxy) -> None:
    with client(proxy, b"one") as one, client(proxy, b"two") as two:
        assert proxy.cut(b"one") == 1
        with pytest.raises(ConnectionResetError):
            one.recv(1)
        assert asked(two, b"still here") == b"still here"
        assert (proxy.accepted, proxy.open) == (2, 1)
    proxy.refuse()
    with pytest.raises(ConnectionResetError), client(proxy):
        pass


def test_a_stall_holds_everything_and_loses_nothing(proxy: Proxy) -> None:
    with client(proxy) as sock:
        stall = proxy.begin(Fault(stall=True))
        sock.sendall(b"later")
        assert silent(sock)
        proxy.end(stall)
        assert sock.recv(5) == b"later"


def test_a_half_open_connection_stays_dead(proxy: Proxy) -> None:
    with client(proxy, b"one") as one, client(proxy, b"two") as two:
        fault = proxy.begin(Fault(of=b"one", drop="server"))
        one.sendall(b"lost")
        assert silent(one)
        assert asked(two, b"through") == b"through"
        poll("what came for it is lost", lambda: proxy.lost == 1)
        proxy.end(fault)
        one.sendall(b"lost too")
        assert silent(one)
        assert proxy.open == 2, "someone was told"


def test_what_is_slow_arrives(proxy: Proxy) -> None:
    with client(proxy) as sock:
        late = proxy.begin(Fault(delay_s=SHORT_S))
        begun = time.monotonic()
        assert asked(sock, b"x") == b"x"
        assert time.monotonic() - begun >= 2 * SHORT_S
        proxy.end(late)
        proxy.begin(Fault(bytes_per_s=1_000_000))
        begun = time.monotonic()
        data = bytes(range(256)) * 1_000
        assert asked(sock, data) == data
        assert time.monotonic() - begun >= len(data) / 1_000_000


def test_a_request_goes_through_and_its_answer_does_not(proxy: Proxy) -> None:
    line = b"PUT /bucket/log/1.json HTTP/1.1\r\n"
    with client(proxy) as sock:
        assert asked(sock, line) == line
        hold = proxy.hold(b"/log/")
        sock.sendall(line)
        assert hold.met.wait(PATIENCE_S)
        assert silent(sock)
        assert proxy.requests == [line.strip()] * 2


def test_a_hold_may_be_for_connections_to_come(proxy: Proxy) -> None:
    with client(proxy) as sock:
        hold = proxy.hold(b"ask", fresh=True)
        assert asked(sock, b"ask") == b"ask"
        with client(proxy) as other:
            other.sendall(b"ask")
            assert hold.met.wait(PATIENCE_S)
            assert silent(other)
        assert asked(sock, b"ask") == b"ask"
