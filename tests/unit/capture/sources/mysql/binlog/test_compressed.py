"""Compressed events that lie about themselves, and payloads built by the documented layout."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import pyarrow as pa
import pytest

from tideline.contract.errors import CorruptData, Misconfigured
from tideline_capture.sources.mysql.binlog.compressed import (
    InnerEvent,
    expand_payload,
    inflate,
    parse_payload,
)


def _expanded(body: bytes, *, most: int, event: int = 1 << 30) -> list[InnerEvent]:
    payload = parse_payload(body)
    return list(expand_payload(payload, expanded_bytes_max=most, event_bytes_max=event))


def _compressed(plain: bytes, size: int) -> bytes:
    return b"\x82" + size.to_bytes(2, "big") + zlib.compress(plain)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\0\x05" + zlib.compress(b"12345"),
        b"\x92\0\x05" + zlib.compress(b"12345"),
        _compressed(b"12345", 4),
        _compressed(b"12345", 6),
        _compressed(b"12345", 5)[:-1],
        b"\x82\0\x05nothing",
        _compressed(b"x" * 101, 100),
        _compressed(b"x" * 101, 0),
    ],
)
def test_what_does_not_expand_to_what_it_says_is_refused(data: bytes) -> None:
    assert b"".join(inflate(_compressed(b"12345", 5), expanded_bytes_max=100)) == b"12345"
    with pytest.raises(CorruptData):
        inflate(data, expanded_bytes_max=100)


def _payload(data: bytes, size: int, algorithm: bytes = b"\0") -> bytes:
    fields = b"\x02" + bytes((len(algorithm),)) + algorithm
    fields += b"\x03\x03\xfc" + size.to_bytes(2, "little")
    return fields + b"\x01\x03\xfc" + len(data).to_bytes(2, "little") + b"\0" + data


def _event(code: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, code, 1, 19 + len(body), 0, 0) + body


def test_a_payload_may_be_plain() -> None:
    plain = _event(30, b"rows") + _event(16, bytes(8))
    for data, algorithm in ((plain, b"\xfc\xff\0"), (pa.compress(plain, "zstd", True), b"\0")):
        inner = _expanded(_payload(data, len(plain), algorithm), most=99)
        assert [(event.code, event.body) for event in inner] == [(30, b"rows"), (16, bytes(8))]


@pytest.mark.parametrize(
    "body",
    [
        _payload(_event(30, b"rows"), 22, b"\xfc\xff\0"),
        _payload(_event(30, b"rows"), 24, b"\xfc\xff\0"),
        _payload(_event(30, b"rows")[:-1], 22, b"\xfc\xff\0"),
        _payload(struct.pack("<IBIIIH", 0, 30, 1, 18, 0, 0), 19, b"\xfc\xff\0"),
        _payload(b"not zstd", 8),
        _payload(b"x", 1, b"\x07"),
        b"\x09\x01\x00" + _payload(b"x", 1),
        _payload(b"x", 1)[:-1],
        b"\0",
        b"",
    ],
)
def test_a_payload_that_contradicts_itself_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptData):
        _expanded(body, most=1000)


def test_events_larger_than_a_block_are_whole() -> None:
    rows = bytes(range(256)) * 10_000
    plain = _event(30, b"small") + _event(30, rows) + _event(16, bytes(8))
    data = pa.compress(plain, "zstd", True)
    body = b"\x02\x01\0\x03\x09\xfe" + len(plain).to_bytes(8, "little")
    body += b"\x01\x09\xfe" + len(data).to_bytes(8, "little") + b"\0" + data
    inner = _expanded(body, most=len(plain))
    assert [event.body for event in inner] == [b"small", rows, bytes(8)]


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 16, 5 << 20])
def test_what_was_compressed_comes_in_pieces(size: int) -> None:
    """Also where one piece of what is compressed makes many."""
    for plain in (bytes(size), random.Random(size).randbytes(size)):
        data = b"\x84" + size.to_bytes(4, "big") + zlib.compress(plain)
        pieces = inflate(data, expanded_bytes_max=size)
        assert b"".join(pieces) == plain
        assert max(map(len, pieces), default=0) <= 1 << 20


class TestLimits:
    """What an event says of its size is looked at before anything of it is expanded."""

    def test_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(zlib, "decompressobj", None)
        with pytest.raises(
            Misconfigured, match=r"101 bytes, expanded: above .*event_bytes_max, 100"
        ):
            inflate(_compressed(b"x" * 101, 101), expanded_bytes_max=100)

    def test_rows_that_lie(self) -> None:
        """A bomb of 1 GiB that says it is small: of it, one byte more than it says is expanded."""
        stream = zlib.compressobj(1)
        block = bytes(1 << 20)
        bomb = b"".join([*(stream.compress(block) for _ in range(256)), stream.flush()])
        data = b"\x84" + (1000).to_bytes(4, "big") + bomb
        tracemalloc.start()
        try:
            with pytest.raises(CorruptData, match="does not hold the 1000 bytes"):
                inflate(data, expanded_bytes_max=1 << 30)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()

    def test_an_event_of_a_payload(self) -> None:
        """49 KB that expand to 1.5 GiB took 7.7 GB."""
        plain = _event(30, b"rows") + struct.pack("<IBIIIH", 0, 30, 1, 1 << 30, 0, 0)
        body = _payload(pa.compress(plain, "zstd", True), len(plain))
        with pytest.raises(Misconfigured, match=f"{1 << 30} bytes, in a transaction payload"):
            _expanded(body, most=1 << 31, event=(1 << 30) - 1)

    def test_a_payload_that_lies(self) -> None:
        """It says that it is small, and is not: no more than a block is expanded beyond that."""
        plain = _event(30, bytes(200 << 20))
        body = _payload(pa.compress(plain, "zstd", True), 1000)
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            with pytest.raises(CorruptData):
                _expanded(body, most=1 << 31)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
            assert pa.total_allocated_bytes() - before < 4 << 20
        finally:
            tracemalloc.stop()
