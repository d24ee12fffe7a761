"""Compressed events that lie about themselves, and payloads built by the documented layout."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa
import pytest

from capture.sources.mysql.compressed import expand_payload, inflate
from tideline.contract.errors import CorruptData


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
        _compressed(b"x" * 101, 101),
    ],
)
def test_what_does_not_expand_to_what_it_says_is_refused(data: bytes) -> None:
    assert inflate(_compressed(b"12345", 5), expanded_bytes_max=100) == b"12345"
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
        inner = list(expand_payload(_payload(data, len(plain), algorithm), expanded_bytes_max=99))
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
        list(expand_payload(body, expanded_bytes_max=1000))


def test_events_larger_than_a_block_are_whole() -> None:
    rows = bytes(range(256)) * 10_000
    plain = _event(30, b"small") + _event(30, rows) + _event(16, bytes(8))
    data = pa.compress(plain, "zstd", True)
    body = b"\x02\x01\0\x03\x09\xfe" + len(plain).to_bytes(8, "little")
    body += b"\x01\x09\xfe" + len(data).to_bytes(8, "little") + b"\0" + data
    inner = list(expand_payload(body, expanded_bytes_max=len(plain)))
    assert [event.body for event in inner] == [b"small", rows, bytes(8)]
