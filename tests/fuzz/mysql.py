"""Targets: what MySQL and MariaDB write, from the whole log down to single values."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fixtures.odd_events import packet
from tests.fuzz.target import Target
from tideline.contract.errors import CorruptData, Misconfigured, SourceLost, Unavailable
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline_capture.core.events import PreparedSeen
from tideline_capture.sources.mysql.binlog.compressed import (
    expand_payload,
    expand_rows,
    inflate,
    parse_payload,
)
from tideline_capture.sources.mysql.binlog.decode import walk_events
from tideline_capture.sources.mysql.binlog.executed import make_executed
from tideline_capture.sources.mysql.binlog.framing import EventBuffer
from tideline_capture.sources.mysql.binlog.gtid import GtidSet, MariadbGtids
from tideline_capture.sources.mysql.binlog.log_events import parse_format_description
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rare import RareEvents
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.stream import BinlogStream
from tideline_capture.sources.mysql.binlog.table_cache import Role, TableCache
from tideline_capture.sources.mysql.binlog.table_map import parse_table_map
from tideline_capture.sources.mysql.binlog.transactions import BinlogReader
from tideline_capture.sources.mysql.ddl.classify import classify
from tideline_capture.sources.mysql.types.charsets import charset_of
from tideline_capture.sources.mysql.types.images import PADDING
from tideline_capture.sources.mysql.types.json_binary import json_text
from tideline_capture.sources.mysql.watermark_registry import WatermarkRegistry
from tideline_capture.sources.watermark_key import WatermarkKey

FILE = "binlog.000001"
MAGIC = b"\xfebin"
_HEADER, _SIZE_AT, _FLAGS_AT, _CHECKSUM = 19, 9, 17, 4
_IN_USE_FLAG = 1
_FORMAT_DESCRIPTION = 15
_TURNS_MAX = 400


def split_log(data: bytes) -> Iterator[bytes]:
    """The events of a log by the sizes that they state; what is left at the end is one more."""
    at = len(MAGIC) if data.startswith(MAGIC) else 0
    while at < len(data):
        size = int.from_bytes(data[at + _SIZE_AT : at + _SIZE_AT + 4], "little")
        stop = at + size if _HEADER <= size <= len(data) - at else len(data)
        yield data[at:stop]
        at = stop


def with_checksum(events: Iterator[bytes]) -> Iterator[bytes]:
    """The events with checksums that are right, where the log has them: a wrong one would be all
    that a reader sees of whatever else is wrong."""
    checksummed = False
    for event in events:
        whole = event
        if len(event) > _HEADER + _CHECKSUM and event[4] == _FORMAT_DESCRIPTION:
            # Its checksum is of a file that is closed.
            flags = bytes([event[_FLAGS_AT] & ~_IN_USE_FLAG])
            event = event[:_FLAGS_AT] + flags + event[_FLAGS_AT + 1 :]
            try:
                checksummed = parse_format_description(event[_HEADER:]).checksummed
            except CorruptData:
                checksummed = True
        if checksummed and len(event) > _HEADER + _CHECKSUM:
            body = event[:-_CHECKSUM]
            whole = body + zlib.crc32(body).to_bytes(4, "little")
        yield whole


def read_log(data: bytes) -> None:
    """The whole reader over a log file, to its end."""
    flavour = "mariadb" if b"MariaDB" in data[:80] else "mysql"
    sent = b"".join(map(packet, with_checksum(split_log(data))))
    stream = BinlogStream(EventBuffer(None, sent), MysqlPosition(FILE, 4))
    held: dict[str, SourcePosition] = {}
    reader = _reader(stream, flavour, held)
    seq = 1
    for _ in range(_TURNS_MAX):
        try:
            count = reader.poll(100, until_commit=False)
        except Unavailable:  # The end.
            count = 0
        if reader.must_take or not count:
            batch = reader.take(seq)
            seq += batch.changes
            for one in batch.controls:
                if isinstance(one, PreparedSeen):
                    _follow(held, one)
        if not count:
            return
    raise AssertionError("the reader does not come to an end")


def _follow(held: dict[str, SourcePosition], seen: PreparedSeen) -> None:
    """Know which prepared transactions there are, as the core does."""
    if seen.position is None:
        held.pop(seen.xid, None)
    else:
        held[seen.xid] = seen.position


def _reader(stream: BinlogStream, flavour: str, held: dict[str, SourcePosition]) -> BinlogReader:
    def refuse(place: MysqlPosition) -> Any:
        raise SourceLost(f"nothing is replayed, at {place}")

    def captures(table: str) -> bool:
        return "other" not in table

    def nothing(table: Any) -> frozenset[str]:
        return frozenset()

    def role(table: Any) -> Role:
        return Role.OURS if table.name == "watermark" else Role.CHOSEN

    rules = LogRules(True, True, captures, refuse, nothing, images=lambda table: True)
    tables = TableCache(role, lambda table: {}, captures)
    state = LogState(stream, make_executed(flavour, ""))
    rare = RareEvents(
        state, tables, WatermarkRegistry(), key=WatermarkKey("i"), prepared=held, rules=rules
    )
    return BinlogReader(state, tables, rare, rules)


_KINDS = b"cud"
_VERSIONS = ("9.7.4", "8.0.15", "10.11.19-MariaDB-log")


def read_rows(data: bytes) -> None:
    """A table map, then row images of that table, by the decoder itself.

    A byte for the version and one for the kind of rows, two for the length of the table map.
    """
    if len(data) < 4:
        return
    length = int.from_bytes(data[2:4], "little")
    server = _VERSIONS[data[0] % len(_VERSIONS)]
    kind = _KINDS[data[1] % len(_KINDS)]
    table = parse_table_map(data[4 : 4 + length], server=server).table
    images = data[4 + length :]
    padded = np.frombuffer(images + bytes(PADDING), np.uint8)
    ends = np.array([len(images)], np.int64)
    kinds = np.array([kind], np.uint8)
    walked = walk_events(padded, np.zeros(1, np.int64), ends, kinds, table)
    numbers = np.arange(int(walked.rows_per_event.sum()))
    if table.key:
        walked.to_batch(table.schema, seq=numbers, tx=numbers, ts=numbers)


def read_compressed(data: bytes) -> None:
    """A byte for the form: MySQL's payload, MariaDB's rows, its texts."""
    form, body = data[:1], data[1:]
    if form == b"p":
        payload = parse_payload(body)
        for event in expand_payload(payload, expanded_bytes_max=1 << 20, event_bytes_max=1 << 18):
            bytes(event.body)
    elif form == b"r":
        for code in (166, 167, 168):
            expand_rows(code, body, expanded_bytes_max=1 << 20)
    else:
        inflate(body, expanded_bytes_max=1 << 20)


def read_statement(data: bytes) -> None:
    """A byte for the collation and one for the sql_mode and the server, then the statement's text.

    Statements are words of whoever may write to the source: what is not understood is a kind of
    statement, not an error. Names that are not in their charset are corrupt.
    """
    if len(data) < 2:
        return
    charset, _ = charset_of(data[0])
    classify(
        data[2:],
        mariadb=not data[1] & 4,
        default_schema="shop",
        charset=charset,
        ansi_quotes=bool(data[1] & 1),
        no_backslash_escapes=bool(data[1] & 2),
    )


def read_gtids(data: bytes) -> None:
    """GTID sets, as text and encoded: what is read is written, and read again as the same."""
    form, body = data[:1], data[1:]
    if form == b"e":
        found = GtidSet.decode(body)
        assert GtidSet.decode(found.encode()) == found
        return
    text = body.decode("utf-8", "replace")
    if form == b"m":
        gtids = MariadbGtids.parse(text)
        assert MariadbGtids.parse(str(gtids)) == gtids
        return
    parsed = GtidSet.parse(text)
    assert GtidSet.parse(str(parsed)) == parsed
    assert GtidSet.decode(parsed.encode()) == parsed


def read_json(data: bytes) -> None:
    json_text(data)


def framed(version: int, kind: int, table_map: bytes, images: bytes) -> bytes:
    """An input of `read_rows`."""
    return struct.pack("<BBH", version, kind, len(table_map)) + table_map + images


TARGETS = (
    Target(
        "binlog",
        read_log,
        allows=(CorruptData, Misconfigured, SourceLost),
        place=re.compile(r"binlog\.\d{6}:\d+"),
        golden=("binlog",),
        length_max=16_384,
    ),
    Target("rows", read_rows, allows=(CorruptData, Misconfigured)),
    Target("json", read_json),
    Target("compressed", read_compressed, allows=(CorruptData, Misconfigured), length_max=8_192),
    Target("statements", read_statement, allows=(CorruptData,)),
    Target("gtids", read_gtids),
)
