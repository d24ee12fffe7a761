"""The window against a plain model of the source: whatever happens between the marks, the target
ends equal to the source for every key the chunk or an event named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.core import CLOCK_US, TABLE, WIDER, make_rows
from tideline.contract.part import PartCounts
from tideline.contract.schema import Column, TableSchema
from tideline_capture.arrow_types import part_schema
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.core.events import Rows
from tideline_capture.core.snapshots.emit import dump_rows, missing_rows
from tideline_capture.core.snapshots.window import (
    ChunkWindow,
    key_text,
    moved_incomplete,
    settle,
    untouched,
)

KEYS = range(1, 4)
PENDING = "pending"
Row = tuple[str, str]
"""The values of v and big."""


@dataclass(frozen=True)
class Event:
    """One change as the log carries it. ``unchanged``: big is not supplied."""

    op: str
    key: int
    row: Row | None
    before: int | None = None
    unchanged: bool = False


@dataclass
class History:
    """A table's rows at the low watermark, and what happened to it until the high watermark."""

    start: dict[int, Row]
    events: list[Event] = field(default_factory=list)

    def rows_after(self, count: int) -> dict[int, Row]:
        rows = dict(self.start)
        for event in self.events[:count]:
            if event.before is not None:
                del rows[event.before]
            if event.row is None:
                del rows[event.key]
            else:
                rows[event.key] = event.row
        return rows


@st.composite
def histories(draw: st.DrawFn) -> History:
    start = {key: (f"v{key}", f"big{key}") for key in draw(st.sets(st.sampled_from(KEYS)))}
    history, rows = History(start), dict(start)
    for number in range(draw(st.integers(0, 10))):
        free = [key for key in KEYS if key not in rows]
        kind = draw(st.sampled_from("cudm"))
        if kind == "c" and free:
            event = Event("c", draw(st.sampled_from(free)), (f"v.{number}", f"big.{number}"))
        elif kind == "c" or not rows:
            continue
        else:
            key = draw(st.sampled_from(sorted(rows)))
            keeps = draw(st.booleans())
            row = (f"v.{number}", rows[key][1] if keeps else f"big.{number}")
            if kind == "d":
                event = Event("d", key, None)
            elif kind == "m" and free:
                event = Event("u", draw(st.sampled_from(free)), row, before=key, unchanged=keeps)
            else:
                event = Event("u", key, row, unchanged=keeps)
        history.events.append(event)
        rows = history.rows_after(len(history.events))
    return history


def as_rows(events: Sequence[Event]) -> Rows:
    columns: list[Any] = [
        pa.array(range(1, len(events) + 1), pa.int64()),
        pa.array([event.op for event in events], pa.string()),
        pa.array([7] * len(events), pa.int64()),
        pa.array([CLOCK_US] * len(events), pa.timestamp("us", "UTC")),
        pa.array([event.key for event in events], pa.int64()),
        pa.array([event.row and event.row[0] for event in events], pa.string()),
        pa.array(
            [None if event.unchanged else event.row and event.row[1] for event in events],
            pa.string(),
        ),
    ]
    moved = any(event.before is not None for event in events)
    unchanged = any(event.unchanged for event in events)
    if moved:
        columns.append(pa.array([event.before for event in events], pa.int64()))
    if unchanged:
        lists = [["big"] if event.unchanged else None for event in events]
        columns.append(pa.array(lists, pa.list_(pa.string())))
    fields = part_schema(WIDER, ("id",) if moved else (), unchanged=unchanged, overflow=False)
    return Rows(
        WIDER,
        pa.RecordBatch.from_arrays(columns, schema=fields),
        PartCounts(
            unchanged_rows=sum(event.unchanged for event in events),
            before_rows=sum(event.before is not None for event in events),
        ),
    )


def as_chunk(rows: dict[int, Row]) -> pa.RecordBatch:
    keys = sorted(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array([rows[key][0] for key in keys], pa.string()),
            pa.array([rows[key][1] for key in keys], pa.string()),
        ],
        names=["id", "v", "big"],
    )


def opened() -> ChunkWindow:
    return ChunkWindow(ChunkOrder("t", "r", TABLE, 10, 1 << 20), np.array([], np.int64), 0)


def merge(target: dict[int, Row], event: Event) -> None:
    """What a merge makes of one event; a value that nobody gave is pending."""
    before = target.pop(event.before, None) if event.before is not None else target.get(event.key)
    if event.row is None:
        target.pop(event.key, None)
    elif event.unchanged:
        target[event.key] = (event.row[0], PENDING if before is None else before[1])
    else:
        target[event.key] = event.row


def dump_into(target: dict[int, Row], emitted: Sequence[Rows]) -> None:
    for rows in emitted:
        for row in rows.batch.to_pylist():
            key, absent = row["id"], row.get("_tl_unchanged") or []
            if row["_tl_op"] == "d":
                target.pop(key, None)
                continue
            assert not absent or key in target, "a partial row may bring no row of its own"
            old = target.get(key, (PENDING, PENDING))
            target[key] = (
                old[0] if "v" in absent else row["v"],
                old[1] if "big" in absent else row["big"],
            )


@given(history=histories(), data=st.data(), dumped_before=st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_target_ends_equal_to_the_source(
    history: History, data: st.DataObject, dumped_before: bool
) -> None:
    events, count = history.events, len(history.events)
    read_at = data.draw(st.integers(0, count), label="events the chunk saw")
    split_at = data.draw(st.integers(0, count), label="where the log's batches split")
    window = opened()
    for batch in (events[:split_at], events[split_at:]):
        if batch:
            window.saw_rows(as_rows(batch))

    target = dict(history.start) if dumped_before else {}
    for event in events:
        merge(target, event)
    chunk = as_chunk(history.rows_after(read_at))
    dump_into(
        target, dump_rows(WIDER, chunk, settle(window, WIDER, chunk), first_seq=9, ts_us=CLOCK_US)
    )

    source = history.rows_after(count)
    reread = {int(key) for (key,) in moved_incomplete(as_rows(events))} if events else set()
    assert target.keys() == source.keys()
    for key, row in source.items():
        if PENDING in target[key]:
            assert not dumped_before, "a target that had the row needs nothing more"
            assert key in reread or any(e.before == key for e in events), key
        else:
            assert target[key] == row


@given(history=histories(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_repair_deletes_what_is_gone_and_nothing_else(
    history: History, data: st.DataObject
) -> None:
    """Every key is asked for; the target also holds rows that the source never had."""
    count = len(history.events)
    read_at = data.draw(st.integers(0, count))
    window = opened()
    if count:
        window.saw_rows(as_rows(history.events))
    target = dict.fromkeys(KEYS, ("stale", "stale"))
    for event in history.events:
        merge(target, event)
    seen = history.rows_after(read_at)
    gone = [key for key in KEYS if key not in seen]
    missing = pa.RecordBatch.from_arrays([pa.array(gone, pa.int64())], names=["id"])
    dump_into(
        target,
        missing_rows(WIDER, untouched(window, WIDER, missing), first_seq=9, ts_us=CLOCK_US),
    )
    chunk = as_chunk(seen)
    settled = settle(window, WIDER, chunk)
    dump_into(target, dump_rows(WIDER, chunk, settled, first_seq=9, ts_us=CLOCK_US))
    assert target.keys() == history.rows_after(count).keys()


def test_only_the_chunks_own_table_counts() -> None:
    window = opened()
    other = TableSchema("public.other", WIDER.columns, ("id",))
    rows = as_rows([Event("u", 1, ("v", "big"))])
    window.saw_rows(Rows(other, rows.batch))
    chunk = as_chunk({1: ("a", "b")})
    assert settle(window, WIDER, chunk).whole.to_pylist() == [True]


def test_a_window_keeps_keys_only() -> None:
    window = opened()
    window.saw_rows(as_rows([Event("u", 1, ("v" * 1000, "big" * 1000))]))
    assert window.events[0].batch.schema.names == ["_tl_op", "id"]


@given(
    rows=st.lists(
        st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=2)),
        max_size=20,
        unique=True,
    )
)
def test_different_keys_have_different_texts(rows: list[tuple[str, str, bytes]]) -> None:
    columns = [pa.array([row[n] for row in rows], t) for n, t in enumerate(KEY_TYPES)]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "b", "c"])
    texts = key_text(batch, ("a", "b", "c")).to_pylist()
    assert len(set(texts)) == len(rows)


KEY_TYPES = (pa.string(), pa.string(), pa.binary())


def test_moved_keys_are_given_as_the_source_reads_them() -> None:
    schema = TableSchema(
        TABLE, (Column("id", "binary", "bytea", False), Column("v", "string", "text")), ("id",)
    )
    fields = part_schema(schema, ("id",), unchanged=True, overflow=False)
    columns: list[Any] = [
        pa.array([1], pa.int64()),
        pa.array(["u"]),
        pa.array([7], pa.int64()),
        pa.array([CLOCK_US], pa.timestamp("us", "UTC")),
        pa.array([b"\x00\xff"], pa.binary()),
        pa.array([None], pa.string()),
        pa.array([b"\x01"], pa.binary()),
        pa.array([["v"]], pa.list_(pa.string())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=fields)
    counts = PartCounts(unchanged_rows=1, before_rows=1)
    assert moved_incomplete(Rows(schema, batch, counts)) == [(r"\x00ff",)]


def test_a_window_holds_so_many_changes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline_capture.core.snapshots.window.ROWS_MAX", 3)
    window = ChunkWindow(ChunkOrder("t", "r", TABLE, 10, 1000), np.empty(0, np.int64), 0)
    window.saw_rows(make_rows([("u", 1, "a"), ("u", 2, "a")], 1))
    seen = [window.disturbed]
    window.saw_rows(make_rows([("u", 3, "a"), ("u", 4, "a")], 3))
    seen.append(window.disturbed)
    assert seen == [None, "more changes than a window holds"]
    window.saw_rows(make_rows([("u", 5, "a")], 5))
    assert window.events == []
