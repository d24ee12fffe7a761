"""Whether a connection leaves this machine."""

from __future__ import annotations

import socket

import pytest

from tideline_capture.sources.sockets import stays_here


def test_a_socket_of_this_machine() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert stays_here(one.fileno())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_loopback(address: str) -> None:
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        assert stays_here(client.fileno())
        client.sendall(b"x")
        assert accepted.recv(1) == b"x", "the descriptor stays its owner's"


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.7", False),
        ("10.0.0.7", False),
        ("fe80::1%eth0", False),
    ],
)
def test_peers(peer: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        monkeypatch.setattr(socket.socket, "getpeername", lambda _: (peer, 5432))
        assert stays_here(client.fileno()) is here


def test_one_that_has_ended() -> None:
    with socket.socket() as never:
        assert not stays_here(never.fileno())
