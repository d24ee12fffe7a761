"""Packets cut into events, whatever they arrive in."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from tests.fixtures.odd_events import packet
from tideline_capture.sources.mysql.binlog.framing import (
    PAYLOAD_MAX,
    EventBuffer,
    packets_of,
)

SIZES = (1, 2, 30, 500, PAYLOAD_MAX - 2, PAYLOAD_MAX - 1, PAYLOAD_MAX, 2 * PAYLOAD_MAX - 1)


class Feed:
    """A socket's reading end that gives what a test puts in, ``piece`` bytes at a time."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data = memoryview(data)
        self._piece = piece

    def more(self, data: bytes) -> None:
        self._data = memoryview(data)

    def recv_into(self, into: memoryview, count: int) -> int:
        taken = self._data[: min(count, self._piece)]
        if not len(taken):
            raise BlockingIOError
        into[: len(taken)] = taken
        self._data = self._data[len(taken) :]
        return len(taken)


def event(size: int, seed: int) -> bytes:
    """``size`` bytes that no other event has; large ones look like packets' headers inside."""
    if size < 1000:
        return random.Random(f"{size}/{seed}").randbytes(size)
    return (b"\xff\xff\xff\x00\x05\x00\x00" * (size // 7 + 1))[: size - 1] + bytes([seed])


def events_of(buffer: EventBuffer) -> list[bytes]:
    """All framed events, copied."""
    data = buffer.view()
    stops = buffer.stops(0, len(buffer.starts)).tolist()
    return [data[a:b].tobytes() for a, b in zip(buffer.starts, stops, strict=True)]


def filled(sent: list[bytes], piece: int) -> EventBuffer:
    buffer = EventBuffer(Feed(b"".join(packet(one) for one in sent), piece))
    while buffer.receive():
        buffer.frame(10_000)
    return buffer


@pytest.mark.parametrize("piece", [7, 4096])
def test_small_events_in_any_pieces(piece: int) -> None:
    sent = [event(size, seed) for seed in range(5) for size in (1, 2, 3, 30, 500, 251)]
    assert events_of(filled(sent, piece)) == sent


def test_joined_payloads() -> None:
    """Of 16 MiB and more; one of exactly 2²⁴ − 1 bytes ends in an empty packet."""
    sent = [event(size, seed) for seed, size in enumerate(SIZES)]
    assert events_of(filled(sent, 1 << 20)) == sent


def test_taking_some_and_framing_the_rest() -> None:
    sent = [event(40, seed) for seed in range(10)]
    buffer = EventBuffer(Feed(b"".join(packet(one) for one in sent), 1 << 20))
    buffer.receive()
    assert buffer.frame(4) == 4
    cut = int(buffer.stops(0, 3)[-1])
    assert buffer.take(3, cut, b"\0" * 9).endswith(sent[2] + b"\0" * 9)
    assert events_of(buffer) == sent[3:4]
    assert buffer.frame(100) == 6
    assert events_of(buffer) == sent[3:]


@pytest.fixture(params=[40, 2 * PAYLOAD_MAX], ids=["small", "joined"])
def behind(request: pytest.FixtureRequest) -> Iterator[bytes]:
    """An event that stands behind a compressed one, already framed."""
    yield event(request.param, 7)


def test_splicing_leaves_what_is_before(behind: bytes) -> None:
    buffer = filled([b"first", b"compressed", behind], 1 << 20)
    rest = buffer.packets(2, 3)
    buffer.splice(1, packet(b"plain one") + packet(b"plain two") + rest)
    assert events_of(buffer) == [b"first"]
    buffer.frame(100)
    assert events_of(buffer) == [b"first", b"plain one", b"plain two", behind]


def test_parking_what_is_behind(behind: bytes) -> None:
    """Also what is not framed, and what arrives later."""
    data = b"".join(packet(one) for one in (b"first", b"compressed", behind, b"last"))
    buffer = EventBuffer(Feed(data, len(data) - 3))
    while buffer.receive():
        buffer.frame(100)
        if len(buffer.starts) == 3:
            break
    buffer.set_aside(1)
    for step in (b"one", b"two"):
        buffer.splice(len(buffer.starts), packet(step))
        buffer.frame(100)
    buffer.take_back()
    while buffer.receive():
        pass
    buffer.frame(100)
    assert events_of(buffer) == [b"first", b"one", b"two", behind, b"last"]


def test_a_refusal_keeps_its_first_byte() -> None:
    """An error packet is no event; it is found by the byte before it, which an event has as 0."""
    refusal = b"\xff\x04\xd4refused"
    data = packet(b"event") + len(refusal).to_bytes(3, "little") + b"\0" + refusal
    buffer = EventBuffer(Feed(data, 1 << 20))
    buffer.receive()
    assert buffer.frame(10) == 2
    buffer.splice(1, buffer.packets(1, 2))
    buffer.frame(10)
    assert np.array(buffer.view())[buffer.starts[1] - 1] == 0xFF


def test_the_end_of_the_stream() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    buffer = EventBuffer(ours)
    assert buffer.receive() == 0
    theirs.close()
    with pytest.raises(ConnectionError, match="closed"):
        buffer.receive()
    ours.close()


def test_what_is_received_says_how_large_it_is() -> None:
    large = bytes(9) + (2 * PAYLOAD_MAX).to_bytes(4, "little") + bytes(2 * PAYLOAD_MAX - 13)
    data = packet(b"small") + packet(large)
    buffer = EventBuffer(Feed(data, len(data) // 2))
    assert buffer.awaited() == 0
    buffer.receive()
    buffer.frame(10)
    assert buffer.awaited() == len(large)
    while buffer.receive():
        buffer.frame(10)
    assert buffer.awaited() == 0
    assert events_of(buffer) == [b"small", large]


def test_what_is_large_is_given_away_as_it_is() -> None:
    """Without a copy, and with what stands behind it left where more is received."""
    large = event(2 * PAYLOAD_MAX, 1)
    data = b"".join(packet(one) for one in (large, b"next", b"last"))
    feed = Feed(data[:-3], 1 << 20)
    buffer = EventBuffer(feed)
    while buffer.receive():
        buffer.frame(10)
    taken = buffer.take(1, int(buffer.stops(0, 1)[-1]), b"\0" * 9)
    assert isinstance(taken, bytearray)
    assert taken.find(large + b"\0" * 9) == 5
    feed.more(data[-3:])
    buffer.receive()
    buffer.frame(10)
    assert events_of(buffer) == [b"next", b"last"]


@pytest.mark.parametrize("cuts", [1, 2, 7])
def test_an_event_in_pieces_makes_the_same_packets(cuts: int) -> None:
    for size in SIZES:
        whole = event(size, 3)
        step = size // cuts + 1
        pieces = [whole[at : at + step] for at in range(0, size, step)]
        assert b"".join(packets_of(*pieces)) == packet(whole)
