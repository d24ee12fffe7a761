"""Rows of many events as one batch of a part's shape."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fixtures.mysql_binlog import joined
from tests.fixtures.mysql_images import behind_length, image, stored_date
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.part import PartCounts
from tideline.contract.schema import TableId
from tideline_capture.sources.decoded import Decoded
from tideline_capture.sources.mysql.binlog.decode import Walked, walk_events
from tideline_capture.sources.mysql.types import images
from tideline_capture.sources.mysql.types.columns import Code, MysqlColumn, MysqlTable

COLUMNS = (
    MysqlColumn("name", Code.VARCHAR, length=40, charset="utf8mb4"),
    MysqlColumn("id", Code.LONG, nullable=False),
    MysqlColumn("day", Code.DATE, nullable=False),
)
TABLE = MysqlTable(TableId("shop", "orders"), COLUMNS, ("id", "day"))
DAY, NO_DAY = stored_date(2026, 1, 2), stored_date(0, 0, 0)


def row(number: int, name: str | None = "x", day: bytes = DAY) -> bytes:
    text = None if name is None else behind_length(name.encode(), 1)
    return image(COLUMNS, [text, number.to_bytes(4, "little"), day])


def walk(*events: tuple[str, bytes]) -> Walked:
    kinds = np.frombuffer("".join(kind for kind, _ in events).encode(), np.uint8)
    return walk_events(*joined([area for _, area in events]), kinds, TABLE)


def decode(*events: tuple[str, bytes]) -> Decoded:
    walked = walk(*events)
    numbers = np.arange(int(walked.rows_per_event.sum()))
    return walked.to_batch(TABLE.schema, seq=numbers + 10, tx=numbers + 3, ts=numbers)


def test_rows_of_all_kinds_in_log_order() -> None:
    decoded = decode(
        ("c", row(1) + row(2, None)),
        ("u", row(1) + row(1, "y") + row(2) + row(3, "moved")),
        ("d", row(1)),
        ("c", row(4)),
    )
    batch = decoded.rows.batch
    assert batch.column("_tl_op").to_pylist() == list("ccuudc")
    assert batch.column("_tl_seq").to_pylist() == [10, 11, 12, 13, 14, 15]
    assert batch.column("id").to_pylist() == [1, 2, 1, 3, 1, 4]
    assert batch.column("name").to_pylist() == ["x", None, "y", "moved", None, "x"]
    assert batch.column("_tl_before_id").to_pylist() == [None, None, None, 2, None, None]
    assert batch.column("_tl_before_day").null_count == 5
    assert (decoded.rows.counts, decoded.key_overflow) == (PartCounts(before_rows=1), ())


def test_an_update_that_keeps_the_key_has_no_before() -> None:
    decoded = decode(("u", row(1, "a") + row(1, "b")))
    assert decoded.rows.counts.before_rows == 0
    assert decoded.rows.batch.schema.names[-1] == "day"


def test_deletes_alone_convert_their_key_only() -> None:
    """A label that is not in the type would be damage, were it looked at."""
    columns = (*COLUMNS, MysqlColumn("kind", Code.ENUM, length=1, labels=("a",)))
    table = MysqlTable(TABLE.table, columns, TABLE.key)
    area = image(columns, [None, b"\1\0\0\0", DAY, b"\7"])
    for kind in "dc":
        walked = walk_events(*joined([area]), np.frombuffer(kind.encode(), np.uint8), table)
        one = np.zeros(1, np.int64)
        if kind == "c":
            with pytest.raises(CorruptData, match="kind"):
                walked.to_batch(table.schema, seq=one, tx=one, ts=one)
        else:
            batch = walked.to_batch(table.schema, seq=one, tx=one, ts=one).rows.batch
            assert batch.column("kind").to_pylist() == [None]
            assert batch.column("id").to_pylist() == [1]


def test_a_key_that_its_type_cannot_hold_is_named() -> None:
    """In the row, in a delete, or before an update."""
    for kind, area, named in (
        ("c", row(1), ()),
        ("c", row(1, day=NO_DAY), ("day",)),
        ("d", row(1, day=NO_DAY), ("day",)),
        ("u", row(1, day=NO_DAY) + row(1), ("day",)),
        ("u", row(2) + row(1), ()),
    ):
        assert decode((kind, area)).key_overflow == named
    prepared = decode(("c", row(1)), ("c", row(1, day=NO_DAY)))
    assert prepared.rows.counts.overflow_rows == 1
    assert prepared.rows.batch.column("_tl_overflow").to_pylist() == [None, [("day", "0000-00-00")]]


def test_an_update_has_two_images() -> None:
    with pytest.raises(CorruptData, match="one row image"):
        walk(("u", row(1) + row(2) + row(3)))


def test_rows_per_event_tell_sequences_before_anything_is_converted() -> None:
    walked = walk(("u", row(1) + row(2)), ("c", row(3) * 4), ("d", row(1) * 2))
    assert walked.rows_per_event.tolist() == [1, 4, 2]
    short = np.arange(6)
    with pytest.raises(InvariantBroken, match="7 rows"):
        walked.to_batch(TABLE.schema, seq=short, tx=short, ts=short)


def test_another_tables_schema_is_refused() -> None:
    other = MysqlTable(TABLE.table, COLUMNS[1:], TABLE.key)
    one = np.zeros(1, np.int64)
    with pytest.raises(InvariantBroken, match="other columns"):
        walk(("c", row(1))).to_batch(other.schema, seq=one, tx=one, ts=one)


def test_another_tables_types_are_refused() -> None:
    wide = (COLUMNS[0], MysqlColumn("id", Code.LONGLONG), COLUMNS[2])
    other = MysqlTable(TABLE.table, wide, TABLE.key)
    one = np.zeros(1, np.int64)
    with pytest.raises(InvariantBroken, match="column id was decoded as int32"):
        walk(("c", row(1))).to_batch(other.schema, seq=one, tx=one, ts=one)


def test_bytes_behind_the_last_event_are_asked_for() -> None:
    data, starts, ends = joined([row(1)])
    kinds = np.frombuffer(b"c", np.uint8)
    with pytest.raises(InvariantBroken, match="too few bytes"):
        walk_events(data[: -images.PADDING + 10], starts, ends, kinds, TABLE)


def test_many_events_take_the_walk_side_by_side() -> None:
    """And agree with one by one."""
    events = [
        ("cud"[at % 3], (row(at) + row(at, None, NO_DAY)) * (1 + at % 4))
        for at in range(images.LANES_MIN * 4)
    ]
    fast = decode(*events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "image_starts", images.image_starts_loop)
        patch.setattr(
            "tideline_capture.sources.mysql.binlog.decode.image_starts", images.image_starts_loop
        )
        assert decode(*events) == fast
    assert fast.rows.batch.num_rows == sum(
        len(area) // len(row(0) + row(0, None)) * (1 if kind == "u" else 2) for kind, area in events
    )
