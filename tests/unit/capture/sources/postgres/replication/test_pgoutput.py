"""The rare messages of pgoutput, byte by byte as the manual describes them."""

from __future__ import annotations

import struct

import pytest

from tideline.contract.errors import CorruptData
from tideline_capture.sources.postgres.replication.pgoutput import (
    POSTGRES_EPOCH_US,
    Begin,
    CommitMessage,
    LogicalMessage,
    OriginMessage,
    Relation,
    RelationColumn,
    TruncateMessage,
    Type,
    parse_message,
)

MESSAGES = {
    b"B" + struct.pack(">QqI", 0x1_0000_0002, 5, 4_294_967_295): Begin(
        0x1_0000_0002, POSTGRES_EPOCH_US + 5, 4_294_967_295
    ),
    b"C" + struct.pack(">BQQq", 0, 100, 140, -1): CommitMessage(100, 140, POSTGRES_EPOCH_US - 1),
    b"O" + struct.pack(">Q", 7) + b"other\0": OriginMessage(7, "other"),
    b"R"
    + struct.pack(">I", 16_400)
    + "shöp\0orders\0f".encode()
    + struct.pack(">H", 2)
    + b"\1id\0"
    + struct.pack(">Ii", 20, -1)
    + b"\0price\0"
    + struct.pack(">Ii", 1700, 786_438): Relation(
        16_400,
        "shöp",
        "orders",
        "f",
        (RelationColumn("id", True, 20, -1), RelationColumn("price", False, 1700, 786_438)),
    ),
    b"R" + struct.pack(">I", 1) + b"\0empty\0d" + struct.pack(">H", 0): Relation(
        1, "pg_catalog", "empty", "d", ()
    ),
    b"Y" + struct.pack(">I", 16_500) + b"public\0mood\0": Type(16_500, "public", "mood"),
    b"T" + struct.pack(">IBII", 2, 3, 10, 11): TruncateMessage((10, 11)),
    b"T" + struct.pack(">IBI", 1, 2, 10): TruncateMessage((10,)),
    b"M"
    + struct.pack(">BQ", 1, 9)
    + b"tideline\0"
    + struct.pack(">I", 3)
    + b"a\0b": LogicalMessage(True, 9, "tideline", b"a\0b"),
    b"M" + struct.pack(">BQ", 0, 9) + b"\0" + struct.pack(">I", 0): LogicalMessage(
        False, 9, "", b""
    ),
}


@pytest.mark.parametrize("payload", MESSAGES)
def test_each_message_is_read_whole(payload: bytes) -> None:
    assert parse_message(payload) == MESSAGES[payload]


@pytest.mark.parametrize("payload", MESSAGES)
def test_a_message_cut_short_is_corrupt(payload: bytes) -> None:
    for length in range(1, len(payload)):
        with pytest.raises(CorruptData, match=r"broken: kind b'.'"):
            parse_message(payload[:length])


@pytest.mark.parametrize("payload", [b"", b"X123", b"S\0\0\0\1\1", b"I\0\0\0\1N\0\0"])
def test_another_kind_is_named(payload: bytes) -> None:
    """Streamed and row messages too: they never belong here."""
    with pytest.raises(CorruptData, match="protocol version 1: kind"):
        parse_message(payload)
