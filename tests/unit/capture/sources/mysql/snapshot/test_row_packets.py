"""Framing and cutting of text rows, against a plain reading of the same bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline_capture.sources.mysql.snapshot.row_packets import RowPackets, read_rows

Row = Sequence[bytes | None]

FULL = 0xFFFFFF
END = b"\xfe\x00\x00\x22\x00"
ERROR = b"\xff\x25\x05#70100Query execution was interrupted"
LENGTHS = (0, 1, 3, 250, 251, 252, 255, 256, 65535, 65536)


def value(text: bytes | None) -> bytes:
    if text is None:
        return b"\xfb"
    length = len(text)
    if length < 0xFB:
        return bytes([length]) + text
    for first, form, limit in ((0xFC, "<H", 1 << 16), (0xFD, "<I", 1 << 24), (0xFE, "<Q", 1 << 64)):
        if length < limit:
            packed = struct.pack(form, length)[: 3 if first == 0xFD else None]
            return bytes([first]) + packed + text
    raise AssertionError(length)


def packets(payloads: Sequence[bytes], first: int = 7) -> bytes:
    """Payloads as packets, numbered from ``first``."""
    out, number = [], first
    for payload in payloads:
        at = 0
        while True:
            piece = payload[at : at + FULL]
            out.append(struct.pack("<I", len(piece))[:3] + bytes([number & 0xFF]) + piece)
            at, number = at + len(piece), number + 1
            if len(piece) < FULL:
                break
    return b"".join(out)


class Connection:
    """What `read_rows` uses of PyMySQL's: a socket that gives ``stream`` in pieces."""

    encoding = "utf8"

    def __init__(self, stream: bytes, pieces: Sequence[int], *, head: int = 0, active: bool = True):
        self._head, self._stream, self._pieces = stream[:head], stream[head:], list(pieces)
        self._next_seq_id = 7
        self._result: Any = None
        self._active = active
        self.closed = False
        self._sock = SimpleNamespace(recv_into=self._receive)
        self._rfile = SimpleNamespace(peek=lambda: self._head, read=lambda size: self._head[:size])

    def query(self, statement: str, unbuffered: bool) -> None:
        assert unbuffered
        self._result = SimpleNamespace(unbuffered_active=self._active, connection=self)

    def _force_close(self) -> None:
        self.closed = True

    def _receive(self, into: memoryview) -> int:
        assert self._pieces or self._stream, "read on behind the end"
        size = self._pieces.pop(0) if self._pieces else len(self._stream)
        piece = self._stream[: min(size, len(into))]
        self._stream = self._stream[len(piece) :]
        into[: len(piece)] = piece
        return len(piece)


def rows_of(read: RowPackets, width: int) -> list[tuple[bytes | None, ...]]:
    columns = [column.to_pylist() for column in read.columns(width)]
    return list(zip(*columns, strict=True))


def draw(random_: random.Random) -> bytes | None:
    length = random_.choice(LENGTHS)
    return None if random_.random() < 0.2 else random_.randbytes(min(length, 70000))


@pytest.mark.parametrize("seed", range(40))
def test_rows_come_out_however_the_bytes_come_in(seed: int) -> None:
    random_ = random.Random(seed)
    width = random_.choice((1, 2, 5))
    rows = [tuple(draw(random_) for _ in range(width)) for _ in range(random_.choice((0, 1, 30)))]
    stream = packets([*(b"".join(map(value, row)) for row in rows), END])
    pieces = [random_.choice((1, 3, 5, 100, 9000, 200_000)) for _ in range(random_.choice((0, 50)))]
    connection = Connection(stream, pieces, head=random_.choice((0, 1, min(len(stream), 8000))))
    read = read_rows(connection, "SELECT")
    assert rows_of(read, width) == rows and not read.cut
    assert connection._result is None and not connection.closed
    if rows:
        assert tuple(read.last()) == rows[-1]


@pytest.mark.parametrize("bytes_max", [1, 50, 104, 105, 416, 10_000])
@pytest.mark.parametrize("piece", [1, 104, 300, 10_000])
def test_rows_behind_the_limit_are_thrown_away(bytes_max: int, piece: int) -> None:
    """Each row takes 104 bytes with its header; the one that the limit falls into is kept."""
    rows = [(bytes([65 + n]) * 99,) for n in range(4)]
    stream = packets([*(value(row[0]) for row in rows), END])
    connection = Connection(stream, [piece] * (len(stream) // piece))
    read = read_rows(connection, "SELECT", bytes_max=bytes_max)
    kept = min(4, -(-bytes_max // 104))
    assert rows_of(read, 1) == rows[:kept]
    assert read.cut == (kept < 4)


@pytest.mark.parametrize(
    "length",
    [
        *(FULL - 5, FULL - 4, FULL - 3),
        *(
            pytest.param(length, marks=pytest.mark.thorough)
            for length in (2 * FULL, 2 * FULL + 100)
        ),
    ],
)
@pytest.mark.parametrize("bytes_max", [None, 1])
def test_a_row_of_several_packets_is_one_row(length: int, bytes_max: int | None) -> None:
    rows = [(b"a" * length, None), (b"\xfe" * length, b"x"), (b"c", None)]
    payloads = [b"".join(map(value, row)) for row in rows]
    connection = Connection(packets([*payloads, END]), [])
    read = read_rows(connection, "SELECT", bytes_max=bytes_max)
    assert rows_of(read, 2) == (rows if bytes_max is None else rows[:1])
    assert read.cut == (bytes_max is not None)


def test_what_looks_like_an_end_in_a_long_row_is_none() -> None:
    row = (b"y" * 10, b"x" * (FULL - 15) + END)
    payload = b"".join(map(value, row))
    assert payload[FULL:] == END
    for bytes_max in (None, 1):
        connection = Connection(packets([payload, payload, END]), [])
        read = read_rows(connection, "SELECT", bytes_max=bytes_max)
        assert rows_of(read, 2) == ([row, row] if bytes_max is None else [row])


def test_a_value_that_begins_like_an_end_is_a_row() -> None:
    connection = Connection(packets([value(b""), value(None), END]), [1] * 30)
    assert rows_of(read_rows(connection, "SELECT"), 1) == [(b"",), (None,)]


@pytest.mark.parametrize("bytes_max", [None, 1])
def test_the_servers_error_leaves_the_connection_usable(bytes_max: int | None) -> None:
    connection = Connection(packets([value(b"a"), value(b"b"), ERROR]), [])
    with pytest.raises(pymysql.err.OperationalError) as raised:
        read_rows(connection, "SELECT", bytes_max=bytes_max)
    assert raised.value.args[0] == 1317 and not connection.closed


def test_a_lost_connection_is_closed() -> None:
    connection = Connection(packets([value(b"a")]), [3, 3, 0])
    with pytest.raises(pymysql.err.OperationalError):
        read_rows(connection, "SELECT")
    assert connection.closed


def test_packets_out_of_order_close_the_connection() -> None:
    connection = Connection(packets([value(b"a")]) + packets([END], first=9), [])
    assert len(read_rows(connection, "SELECT")) == 1  # the end's number says nothing of rows
    connection = Connection(packets([value(b"a")], first=8) + packets([END], first=9), [])
    with pytest.raises(pymysql.err.OperationalError):
        read_rows(connection, "SELECT")
    assert connection.closed


@pytest.mark.parametrize(
    "payload",
    [
        value(b"a"),
        value(b"a") * 3,
        b"\x05ab",
        b"\x01a\xff",
        b"\x01a\xfc\x01",
        b"\x01a\xfe" + b"\xff" * 8,
    ],
)
def test_rows_of_another_width_are_corrupt(payload: bytes) -> None:
    good = value(b"a") * 2
    read = read_rows(Connection(packets([good, payload, good, END]), []), "SELECT")
    with pytest.raises(CorruptData):
        read.columns(2)


def test_a_statement_without_rows_is_ours_to_fix() -> None:
    with pytest.raises(InvariantBroken):
        read_rows(Connection(b"", [], active=False), "SET x = 1")
