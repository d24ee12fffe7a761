"""Connections whose other end is gone: watched by the kernel, and ended from another thread."""

from __future__ import annotations

import socket
import sys
import threading
import time

import pytest

from tideline_capture.sources.sockets import KEEPALIVE_IDLE_S, Opened, answered, end, watch


def test_whoever_waits_gets_an_end() -> None:
    ours, theirs = socket.socketpair()
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(ours.recv(1)))
    waiting.start()
    time.sleep(0.05)
    end(ours.fileno())
    waiting.join(60)
    assert got == [b""]
    assert ours.fileno() > 0, "the descriptor is its owner's"
    ours.close()
    theirs.close()


def test_one_that_is_closed_is_no_error() -> None:
    end(-1)


def test_what_is_asked_of_one_that_is_closed_says_so_itself() -> None:
    with pytest.raises(OSError, match="asked"), answered(-1, 0.0):
        raise OSError("asked")


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels name the options differently")
def test_the_kernel_asks_whether_the_other_end_is_there() -> None:
    with socket.socket() as sock:
        watch(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S


def test_what_nobody_has_any_more_is_forgotten() -> None:
    opened = Opened()
    kept, gone = socket.socket(), socket.socket()
    opened.add(kept)
    opened.add(gone)
    gone.close()
    del gone
    assert opened.take() == [kept]
    assert opened.take() == []
    kept.close()


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with answered(ours.fileno(), 0.05):
        assert ours.recv(1) == b"", "it waits until its time is over"
    theirs.close()
    ours.close()


def test_a_connection_that_answered_in_time_stays() -> None:
    others = set(threading.enumerate())
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with answered(ours.fileno(), 600.0):
        [timer] = set(threading.enumerate()) - others
        theirs.send(b"1")
        assert ours.recv(1) == b"1"
    timer.join(60)
    assert not timer.is_alive(), "nothing ends it any more"
    theirs.send(b"2")
    assert ours.recv(1) == b"2"
    theirs.close()
    ours.close()
