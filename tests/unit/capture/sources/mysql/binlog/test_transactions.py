"""The reader over recorded logs and synthetic ones, without a server."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.fixtures.odd_events import FOLDER, MAGIC, packet
from tideline.contract.errors import (
    CorruptData,
    Misconfigured,
    SourceLost,
    TidelineError,
    Unavailable,
)
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.events import (
    Boundary,
    GapSeen,
    LogBatch,
    PreparedSeen,
    StatementSeen,
    Truncated,
)
from tideline_capture.sources.mysql.binlog import polling, unpack
from tideline_capture.sources.mysql.binlog import xa_buffer as kept
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.executed import make_executed
from tideline_capture.sources.mysql.binlog.log_events import STRICT
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rare import RareEvents
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.stream import over
from tideline_capture.sources.mysql.binlog.table_cache import Role, TableCache
from tideline_capture.sources.mysql.binlog.transactions import BinlogReader
from tideline_capture.sources.mysql.watermark_registry import WatermarkRegistry
from tideline_capture.sources.watermark_key import WatermarkKey

ANNOTATE = 160
FIRST = (EventCode.ROTATE, EventCode.FORMAT_DESCRIPTION)


class Feed:
    """A socket that gives what it was made with, and then nothing."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def setblocking(self, flag: bool) -> None:
        pass

    def recv_into(self, into: memoryview, count: int) -> int:
        taken = self._data[:count]
        if not len(taken):
            raise BlockingIOError
        into[: len(taken)] = taken
        self._data = self._data[len(taken) :]
        return len(taken)


class Connection:
    def __init__(self, data: bytes) -> None:
        self._sock = Feed(data)

    def _force_close(self) -> None:
        """Nothing is behind it."""


def raw_events(name: str) -> list[bytes]:
    """The events of a recorded file, whole."""
    data, events = (FOLDER / name).read_bytes(), []
    at = len(MAGIC)
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        events.append(data[at : at + size])
        at += size
    return events


def event(code: int, body: bytes, *, at: int, flags: int = 0) -> bytes:
    """An event without a checksum whose next position is ``at`` (32 bits of it)."""
    size = 19 + len(body)
    return struct.pack("<IBIIIH", 1, code, 7, size, at & 0xFFFFFFFF, flags) + body


def query(text: bytes, *, at: int, sql_mode: int | None = None) -> bytes:
    status = b"" if sql_mode is None else struct.pack("<BQ", 1, sql_mode)
    body = struct.pack("<IIBHH", 1, 0, 1, 0, len(status)) + status + b"d\0" + text
    return event(EventCode.QUERY, body, at=at)


def anonymous(at: int) -> bytes:
    return event(EventCode.ANONYMOUS_GTID, bytes(25), at=at)


def reader_of(
    sent: Iterable[bytes],
    *,
    flavour: str = "mysql",
    at: int = 4,
    goes_on: bool = False,
    prepared: Mapping[str, SourcePosition] | None = None,
    derives: bool = True,
) -> BinlogReader:
    """A reader that captures every table; nothing is replayed. ``derives``: they have generated
    columns. Without a beginning of a file it is in the middle of one without checksums."""
    start = MysqlPosition("binlog.000001", at)
    events = list(sent)
    stream = over(Connection(b"".join(map(packet, events))), start)
    stream.awaits_description = bool(events) and events[0][4] in FIRST
    state = LogState(stream, make_executed(flavour, ""))

    def refuse(place: MysqlPosition) -> Any:
        raise SourceLost("nothing is replayed")

    rules = LogRules(
        goes_on,
        True,
        lambda table: "other" not in table,
        refuse,
        lambda table: frozenset(),
        derives=lambda table: derives,
    )
    tables = TableCache(lambda table: Role.CHOSEN, lambda table: {}, lambda table: True)
    rare = RareEvents(
        state,
        tables,
        WatermarkRegistry(),
        key=WatermarkKey("i"),
        prepared={} if prepared is None else prepared,
        rules=rules,
    )
    return BinlogReader(state, tables, rare, rules)


def read_all(
    reader: BinlogReader, prepared: dict[str, SourcePosition] | None = None
) -> list[LogBatch]:
    """Everything that was sent, as the runtime takes it: schemas are adopted as they come.
    ``prepared`` follows what the log says of prepared transactions."""
    batches, seq, idle = [], 1, 0
    while idle < 3:
        count = reader.poll(100, until_commit=False)
        idle = 0 if count else idle + 1
        if reader.must_take or not count:
            batches.append(reader.take(seq))
            seq += batches[-1].changes
            follow(prepared, batches[-1])
    return batches


def follow(prepared: dict[str, SourcePosition] | None, batch: LogBatch) -> None:
    for one in batch.controls:
        if prepared is not None and isinstance(one, PreparedSeen):
            if one.position is None:
                prepared.pop(one.xid)
            else:
                prepared[one.xid] = one.position


def operations(batches: list[LogBatch]) -> str:
    return "".join(
        "".join(rows.batch.column("_tl_op").to_pylist()) for batch in batches for rows in batch.rows
    )


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("mysql-8.0.15-incident", SourceLost, "lost changes"),
        ("mysql-9.7.4-incident", SourceLost, "lost changes"),
        ("mariadb-10.11.19-incident", SourceLost, "lost changes"),
        ("mysql-8.0.15-partial-json", Misconfigured, "odd_partial_json.t"),
        ("mysql-9.7.4-partial-json", Misconfigured, "odd_partial_json.t"),
        ("mysql-8.0.15-minimal-image", Misconfigured, "odd_minimal_image.t"),
        ("mysql-9.7.4-minimal-image", Misconfigured, "odd_minimal_image.t"),
        ("mariadb-10.11.19-minimal-image", Misconfigured, "odd_minimal_image.t"),
        ("mysql-8.0.15-statement-form", SourceLost, "INSERT"),
        ("mysql-9.7.4-statement-form", SourceLost, "INSERT"),
        ("mariadb-10.11.19-statement-form", SourceLost, "INSERT"),
        ("mariadb-10.11.19-rollback-of-mixed-tables", SourceLost, "rolled back"),
        ("mariadb-10.11.19-old-temporals", Misconfigured, "mysql56_temporal_format"),
    ],
)
def test_recorded_logs_that_stop(name: str, error: type[TidelineError], says: str) -> None:
    flavour = name.partition("-")[0]
    with pytest.raises(error) as caught:
        read_all(reader_of(raw_events(f"{name}.bin"), flavour=flavour))
    assert says in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["mysql-8.0.15-incident", "mariadb-10.11.19-incident"])
def test_behind_an_incident_all_is_dumped_again(name: str) -> None:
    flavour = name.partition("-")[0]
    batches = read_all(reader_of(raw_events(f"{name}.bin"), flavour=flavour, goes_on=True))
    gaps = [one for batch in batches for one in batch.controls if isinstance(one, GapSeen)]
    assert [gap.tables for gap in gaps] == [None]
    assert not batches[-1].in_transaction


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mysql-9.7.4-transaction-payload", "c" * 40 + "u" * 20 + "d" * 4),
        ("mariadb-10.11.19-compressed-events", "c" * 40 + "u" * 20 + "d" * 4),
        ("mysql-8.0.15-no-checksum", "cc"),
        ("mysql-9.7.4-no-checksum", "cc"),
        ("mysql-8.0.15-savepoint", "cc"),
        ("mariadb-10.11.19-savepoint", "cc"),
        ("mariadb-10.11.19-domains", "cc"),
        ("mysql-9.7.4-tagged-gtid", "ccc"),
        ("mysql-9.7.4-rows-query", "c"),
        ("mariadb-10.11.19-alter-in-two-phases", "cc"),
    ],
)
def test_recorded_logs_that_are_read(name: str, expected: str) -> None:
    """Also in the smallest of steps; the last position is that of the file's end."""
    events = raw_events(f"{name}.bin")
    batches = read_all(reader_of(events, flavour=name.partition("-")[0]))
    found = operations(batches)
    assert expected.startswith(found) if "no-checksum" in name else found == expected
    assert sum(batch.changes for batch in batches) == len(found)
    ends = [batch.boundary for batch in batches if batch.boundary is not None]
    last = ends[-1].position
    assert isinstance(last, MysqlPosition)
    assert last.file == "binlog.000001" or last.offset == 4


@pytest.mark.parametrize(
    "name", ["mysql-9.7.4-transaction-payload", "mariadb-10.11.19-compressed-events"]
)
def test_compressed_events_are_expanded_in_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they expand to is in memory at once, so of many only some are expanded at a time."""
    monkeypatch.setattr(polling, "STEP_BYTES", 1)
    monkeypatch.setattr(unpack, "STEP_BYTES", 1)
    sent = [*raw_events(f"{name}.bin"), *raw_events(f"{name}.bin")]
    batches = read_all(reader_of(sent, flavour=name.partition("-")[0]))
    assert operations(batches) == 2 * ("c" * 40 + "u" * 20 + "d" * 4)


@pytest.mark.parametrize("size", [5 << 20, 40 << 20])
@pytest.mark.thorough
def test_a_large_compressed_event_is_expanded_while_the_buffer_is_looked_at(size: int) -> None:
    text = b"CREATE TABLE x (id INT) COMMENT '" + bytes(size) + b"'"
    plain = query(text, at=99)[19:]
    at = len(plain) - len(text)
    body = plain[:at] + b"\x84" + len(text).to_bytes(4, "big") + zlib.compress(text, 1)
    sent = [anonymous(48), event(EventCode.QUERY_COMPRESSED, body, at=99)]
    (read,) = [
        one
        for batch in read_all(reader_of(sent, flavour="mariadb"))
        for one in batch.controls
        if isinstance(one, StatementSeen)
    ]
    assert len(read.text) > size


def test_a_payload_that_expands_to_too_much_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "EXPANDED_BYTES_MAX", 100)
    with pytest.raises(CorruptData, match="limit is 100"):
        read_all(reader_of(raw_events("mysql-9.7.4-transaction-payload.bin")))


@pytest.mark.parametrize(
    ("name", "limit", "where"),
    [
        ("mysql-9.7.4-transaction-payload", 600, "in a transaction payload"),
        ("mysql-9.7.4-transaction-payload", 150, "behind binlog.000001 at 4"),
        ("mariadb-10.11.19-compressed-events", 400, "expanded"),
        ("mariadb-10.11.19-savepoint", 200, "behind binlog.000001 at 4"),
    ],
)
def test_an_event_above_the_limit_stops(name: str, limit: int, where: str) -> None:
    sent = [one for one in raw_events(f"{name}.bin") if one[4] != ANNOTATE]
    reader = reader_of(sent, flavour=name.partition("-")[0])
    reader._state.stream.event_bytes_max = limit
    with pytest.raises(Misconfigured, match=f"{where}.*event_bytes_max, {limit}") as caught:
        read_all(reader)
    assert "raise it" in str(caught.value.hint)


def test_a_large_event_stops_before_it_is_received() -> None:
    """By what it says of itself in its first packet."""
    large = query(bytes(40 << 20), at=99)
    reader = reader_of([anonymous(48), large])
    reader._state.stream.event_bytes_max = len(large) - 1
    with pytest.raises(Misconfigured, match=f"has {len(large)} bytes, behind binlog.000001"):
        read_all(reader)
    assert len(reader._state.stream.buffer.view()) < 20 << 20


XA_LOGS = ("mysql-8.0.15-xa", "mysql-9.7.4-xa", "mariadb-10.11.19-xa")


@pytest.mark.parametrize("name", XA_LOGS)
@pytest.mark.parametrize("known", [True, False])
def test_prepared_rows_are_left_for_their_commit(name: str, known: bool) -> None:
    """Unless it is ``known`` that they were held, they were prepared before the start."""
    prepared: dict[str, SourcePosition] | None = {} if known else None
    batches = read_all(
        reader_of(raw_events(f"{name}.bin"), flavour=name.partition("-")[0], prepared=prepared),
        prepared,
    )
    assert operations(batches) == ("cc" if known else "c")
    controls = [control for batch in batches for control in batch.controls]
    reported = [
        (one.xid, one.position is None) for one in controls if isinstance(one, PreparedSeen)
    ]
    one, two = "X'6f6e65',X'6272616e6368',7", "X'74776f',X'',1"
    ended = [(one, True)] if known else []
    assert reported == [(one, False), *ended, (two, False), (two, True)]
    assert len([one for one in controls if isinstance(one, GapSeen)]) == (not known)


@pytest.mark.parametrize("name", XA_LOGS)
@pytest.mark.parametrize("limit", ["TRANSACTION_BYTES_MAX", "BYTES_MAX"])
def test_large_prepared_transactions_are_read_from_the_log(
    name: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, limit, 40)
    prepared: dict[str, SourcePosition] = {}
    with pytest.raises(SourceLost, match="nothing is replayed"):
        read_all(
            reader_of(raw_events(f"{name}.bin"), flavour=name.partition("-")[0], prepared=prepared),
            prepared,
        )


@pytest.mark.parametrize("code", [43, 99, 172, 255])
@pytest.mark.parametrize("flags", [0, 0x80])
def test_an_unknown_event_stops(code: int, flags: int) -> None:
    """Whatever the server says about ignoring it."""
    with pytest.raises(TidelineError) as caught:
        read_all(reader_of([event(code, b"what", at=40, flags=flags)]))
    assert isinstance(caught.value, CorruptData) or code == 172


def test_positions_beyond_4_gib() -> None:
    """The log's own positions have 32 bits; ours do not, and grow with every transaction."""
    begin = (1 << 32) - 250
    at, sent = begin, []
    for _ in range(4):
        at += 44
        sent.append(anonymous(at))
        at += 60
        sent.append(query(b"CREATE TABLE x (id INT)", at=at))
    batches = read_all(reader_of(sent, at=begin))
    ends = [b.boundary.position for b in batches if isinstance(b.boundary, Boundary)]
    offsets = [one.offset for one in ends if isinstance(one, MysqlPosition)]
    assert offsets == [begin + 104 * turn for turn in range(1, 5)]
    assert offsets[-1] > 1 << 32


def test_statements_of_the_log() -> None:
    sent = [
        anonymous(48),
        query(b"ALTER TABLE t ADD x INT", at=100),
        anonymous(148),
        query(b"TRUNCATE TABLE t", at=200),
        anonymous(248),
        query(b"DELETE FROM `other`.`memory``table`", at=300),
    ]
    batches = read_all(reader_of(sent))
    controls = [control for batch in batches for control in batch.controls]
    assert controls == [
        StatementSeen(
            "ALTER TABLE t ADD x INT",
            ("d.t",),
            True,
            steps=(ColumnStep(StepKind.ADD, "x"),),
        ),
        Truncated(("d.t",)),
    ]
    with pytest.raises(SourceLost, match="DELETE"):
        read_all(reader_of([anonymous(48), query(b"DELETE FROM `d`.`t`", at=99)]))


@pytest.mark.parametrize(("derives", "neutral"), [(False, True), (True, False)])
def test_a_text_that_is_recoded_is_harmless_unless_others_are_derived_from_it(
    derives: bool, neutral: bool
) -> None:
    text = b"ALTER TABLE t MODIFY v VARCHAR(50) CHARACTER SET utf8mb4"
    reader = reader_of([anonymous(48), query(text, at=200, sql_mode=STRICT)], derives=derives)
    controls = [control for batch in read_all(reader) for control in batch.controls]
    assert [one.neutral for one in controls if isinstance(one, StatementSeen)] == [neutral]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"\xff" + struct.pack("<H", 1236) + b"#HY000Could not find first log file", SourceLost),
        (
            b"\xff"
            + struct.pack("<H", 1236)
            + b"#HY000a slave with the same server_uuid/server_id",
            Unavailable,
        ),
        (b"\xfe\0\0\2\0", Unavailable),
        (b"\x07what", CorruptData),
    ],
)
def test_what_ends_a_stream(payload: bytes, error: type[TidelineError]) -> None:
    data = len(payload).to_bytes(3, "little") + b"\0" + payload
    reader = reader_of([])
    reader._state.stream.buffer._sock = Feed(data)
    with pytest.raises(error):
        read_all(reader)
