"""The walk side by side, the loop, and a model that never sees an image, all agree."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import mysql_images as model
from tests.fixtures.mysql_binlog import joined
from tests.fixtures.mysql_text import column_texts, mysql_text
from tideline.contract.errors import CorruptData
from tideline.contract.schema import TableId
from tideline_capture.arrow_types import part_schema
from tideline_capture.sources.decoded import Decoded
from tideline_capture.sources.mysql.binlog.decode import walk_events
from tideline_capture.sources.mysql.types import images
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn, MysqlTable
from tideline_capture.sources.mysql.types.images import ImageShape, image_starts, image_starts_loop
from tideline_capture.sources.mysql.types.values import slot

Value = tuple[bytes, str]
"""Stored bytes, and the text they must be read as."""
Row = tuple[Value | None, ...]

LABELS = ("a", "b,c", "", "ż")


@dataclass(frozen=True)
class Kind:
    column: Callable[[str, bool], MysqlColumn]
    values: st.SearchStrategy[Value]


@dataclass(frozen=True)
class Event:
    """``rows``: of an update the old and the new row by turns."""

    kind: str
    rows: tuple[Row, ...]


def _kind(code: int, values: st.SearchStrategy[Value], **facts: object) -> Kind:
    def column(name: str, nullable: bool) -> MysqlColumn:
        return MysqlColumn(name, code, nullable=nullable, **facts)  # type: ignore[arg-type]

    return Kind(column, values)


def _integers(code: int, bits: int, *, unsigned: bool) -> Kind:
    low = 0 if unsigned else -(1 << bits - 1)
    column = MysqlColumn("", code, unsigned=unsigned)
    values = st.integers(low, low + (1 << bits) - 1)
    return _kind(code, values.map(lambda v: (model.integer(column, v), str(v))), unsigned=unsigned)


def _decimals(precision: int, scale: int) -> Kind:
    def stored(units: int) -> Value:
        value = Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))
        return model.stored_decimal(value, precision, scale), format(value, "f")

    units = st.integers(1 - 10**precision, 10**precision - 1)
    return _kind(Code.NEWDECIMAL, units.map(stored), precision=precision, scale=scale)


def _varied(code: int, length: int, charset: str, text: st.SearchStrategy[str]) -> Kind:
    size = length if code == Code.BLOB else 1 if length < 256 else 2

    def stored(value: str) -> Value:
        raw = value.encode()
        return model.behind_length(raw, size), raw.hex().upper() if charset == BYTES else value

    return _kind(code, text.map(stored), length=length, charset=charset)


def _padded(raw: bytes) -> Value:
    return model.behind_length(raw.rstrip(b"\0"), 1), raw.hex().upper()


def _date(parts: tuple[int, int, int]) -> Value:
    return model.stored_date(*parts), day_text(parts)


def day_text(parts: tuple[int, int, int]) -> str:
    return f"{parts[0]:04d}-{parts[1]:02d}-{parts[2]:02d}"


def _datetime(parts: tuple[int, int, int], seconds: int, micros: int, fsp: int) -> Value:
    clock = (seconds // 3600, seconds // 60 % 60, seconds % 60)
    text = f"{day_text(parts)} {clock[0]:02d}:{clock[1]:02d}:{clock[2]:02d}"
    stored = model.stored_datetime((*parts, *clock), micros, fsp)
    return stored, text + (f".{micros:06d}"[: fsp + 1] if fsp else "")


def _timestamp(moment: dt.datetime) -> Value:
    return model.stored_timestamp(moment, 3), str(mysql_text(moment, 3))


def _time(micros: int, fsp: int) -> Value:
    shown = abs(micros) - abs(micros) % 10 ** (6 - fsp)
    seconds, fraction = divmod(shown, 1_000_000)
    sign = "-" if micros < 0 and shown else ""
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    signed = shown if micros > 0 else -shown
    return model.stored_time(signed, fsp), text + (f".{fraction:06d}"[: fsp + 1] if fsp else "")


def _set(members: int) -> Value:
    text = ",".join(label for at, label in enumerate(LABELS) if members >> at & 1)
    return bytes([members]), text


SMALL_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
DAYS = st.dates().map(lambda day: (day.year, day.month, day.day)) | st.sampled_from(
    [(0, 0, 0), (2004, 0, 10), (2004, 4, 31), (0, 1, 1), (1900, 2, 29), (2000, 13, 1)]
)
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(2038, 1, 19))
TIME_US = 838 * 3600 * 1_000_000 + 3599 * 1_000_000 + 999_999
KINDS: dict[str, Kind] = {
    **{
        f"int{bits}{'u' if unsigned else ''}": _integers(code, bits, unsigned=unsigned)
        for code, bits in (
            (Code.TINY, 8), (Code.SHORT, 16), (Code.INT24, 24), (Code.LONG, 32), (Code.LONGLONG, 64)
        )
        for unsigned in (False, True)
    },
    **{
        f"decimal{shape}": _decimals(*shape)
        for shape in ((5, 2), (18, 9), (20, 0), (38, 20), (39, 1), (65, 30), (30, 30))
    },
    "double": _kind(
        Code.DOUBLE,
        st.floats(allow_nan=False).map(lambda v: (struct.pack("<d", v), repr(v))),
    ),
    "float": _kind(
        Code.FLOAT,
        st.floats(width=32, allow_nan=False).map(lambda v: (struct.pack("<f", v), repr(v))),
    ),
    "date": _kind(Code.DATE, DAYS.filter(lambda day: day[1] < 13).map(_date)),
    **{
        f"datetime{fsp}": _kind(
            Code.DATETIME2,
            st.builds(
                lambda day, seconds, micros, fsp=fsp: _datetime(
                    day, seconds, micros - micros % 10 ** (6 - fsp), fsp
                ),
                DAYS.filter(lambda day: day[1] < 13),
                st.integers(0, 86_399),
                st.integers(0, 999_999),
            ),
            fsp=fsp,
        )
        for fsp in (0, 3, 6)
    },
    "timestamp3": _kind(
        Code.TIMESTAMP2,
        MOMENTS.map(lambda m: m.replace(microsecond=m.microsecond // 1000 * 1000)).map(_timestamp)
        | st.just((bytes(6), "0000-00-00 00:00:00.000")),
        fsp=3,
    ),
    **{
        f"time{fsp}": _kind(
            Code.TIME2,
            st.integers(-TIME_US, TIME_US).map(lambda micros, fsp=fsp: _time(micros, fsp)),  # type: ignore[misc]
            fsp=fsp,
        )
        for fsp in (0, 1, 4, 6)
    },
    "year": _kind(
        Code.YEAR, st.integers(0, 255).map(lambda v: (bytes([v]), str(v + 1900 if v else 0)))
    ),
    "bit11": _kind(
        Code.BIT, st.integers(0, 2047).map(lambda v: (v.to_bytes(2, "big"), f"{v:011b}")), length=11
    ),
    "enum": _kind(
        Code.ENUM,
        st.integers(0, 4).map(lambda v: (bytes([v]), ("", *LABELS)[v])),
        length=1,
        labels=LABELS,
    ),
    "set": _kind(Code.SET, st.integers(0, 15).map(_set), length=1, labels=LABELS),
    "varchar": _varied(Code.VARCHAR, 80, "utf8mb4", SMALL_TEXTS),
    "varchar long": _varied(Code.VARCHAR, 800, "utf8mb4", SMALL_TEXTS),
    "text": _varied(Code.BLOB, 3, "utf8mb4", SMALL_TEXTS),
    "longblob": _varied(Code.BLOB, 4, BYTES, SMALL_TEXTS),
    "binary": _kind(
        Code.STRING, st.binary(min_size=7, max_size=7).map(_padded), length=7, charset=BYTES
    ),
}  # fmt: skip
KEYS = ("int8", "int64", "int64u", "varchar", "binary", "enum", "datetime6", "decimal(5, 2)")


@pytest.mark.thorough
@given(st.data())
def test_every_walk_equals_the_model(data: st.DataObject) -> None:
    table = data.draw(tables())
    events = data.draw(st.lists(an_event(table), min_size=1, max_size=8))
    repeated = [event for event in events for _ in range(data.draw(st.integers(1, 5)))]
    areas = [area_of(table[0], event) for event in repeated]
    packed, starts, ends = joined(areas)
    shape = ImageShape(tuple(slot(column) for column in table[0].columns))
    places, counts = image_starts_loop(packed, starts, ends, shape)
    assert counts.tolist() == [len(event.rows) for event in repeated]
    for lanes_min in (1, 3, images.LANES_MIN, 1 << 30):
        with mock.patch.object(images, "LANES_MIN", lanes_min):
            found, how_many = image_starts(packed, starts, ends, shape)
        assert found.tolist() == places.tolist()
        assert how_many.tolist() == counts.tolist()
    check_against_model(decode(table[0], repeated, areas), table[0], repeated)
    for imaged in (table[0], replace(table[0], key=())):
        check_images(decode(imaged, repeated, areas, image=True), imaged, repeated)


@given(st.data())
def test_an_event_cut_short_is_named_and_never_read_as_data(data: st.DataObject) -> None:
    """Wherever it is cut but between two images; what lies behind it is readable all the same."""
    table, _ = data.draw(tables())
    event = data.draw(an_event((table, ())))
    area = area_of(table, event)
    boundaries, at = set(), 0
    for row in event.rows:
        boundaries.add(at)
        at += len(area_of(table, Event("c", (row,))))
    keep = data.draw(st.integers(1, len(area) - 1).filter(lambda size: size not in boundaries))
    packed, starts, ends = joined([area])
    shape = ImageShape(tuple(slot(column) for column in table.columns))
    for walk in (image_starts, image_starts_loop):
        with pytest.raises(CorruptData):
            walk(packed, starts, ends - (len(area) - keep), shape)


@given(st.data(), st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=40))
def test_damage_of_any_kind_is_refused_or_decoded(data: st.DataObject, areas: list[bytes]) -> None:
    """No bytes lead to another error than CorruptData, and both walks see the same rows."""
    table, _ = data.draw(tables())
    packed, starts, ends = joined(areas)
    shape = ImageShape(tuple(slot(column) for column in table.columns))
    kinds = np.full(len(areas), ord("c"), np.uint8)
    try:
        places, _ = image_starts_loop(packed, starts, ends, shape)
    except CorruptData:
        with pytest.raises(CorruptData):
            image_starts(packed, starts, ends, shape)
        return
    walked = walk_events(packed, starts, ends, kinds, table)
    assert walked.images.tolist() == places.tolist()
    numbers = np.arange(len(places))
    try:
        walked.to_batch(table.schema, seq=numbers, tx=numbers, ts=numbers)
    except CorruptData as error:
        assert error.args


@st.composite
def tables(draw: st.DrawFn) -> tuple[MysqlTable, tuple[str, ...]]:
    """A table, and the kind of each of its columns."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=18))
    names.insert(draw(st.integers(0, len(names))), draw(st.sampled_from(KEYS)))
    eligible = [at for at, name in enumerate(names) if name in KEYS]
    key = draw(st.lists(st.sampled_from(eligible), min_size=1, max_size=3, unique=True))
    columns = tuple(KINDS[name].column(f"c{at}", at not in key) for at, name in enumerate(names))
    table = MysqlTable(TableId("shop", "t"), columns, tuple(f"c{at}" for at in key))
    return table, tuple(names)


@st.composite
def an_event(draw: st.DrawFn, table: tuple[MysqlTable, tuple[str, ...]]) -> Event:
    kind = draw(st.sampled_from("cud"))
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        row = draw_row(draw, table[0])
        if kind == "u":
            old = draw_row(draw, table[0])
            if draw(st.booleans()):
                in_key = [column.name in table[0].key for column in table[0].columns]
                old = tuple(r if k else o for r, o, k in zip(row, old, in_key, strict=True))
            rows.append(old)
        rows.append(row)
    return Event(kind, tuple(rows))


def draw_row(draw: st.DrawFn, table: MysqlTable) -> Row:
    values: list[Value | None] = []
    for column in table.columns:
        absent = column.nullable and draw(st.integers(0, 3)) == 0
        values.append(None if absent else draw(values_of(column)))
    return tuple(values)


def values_of(column: MysqlColumn) -> st.SearchStrategy[Value]:
    for kind in KINDS.values():
        if kind.column(column.name, column.nullable) == column:
            return kind.values
    raise LookupError(column)


def area_of(table: MysqlTable, event: Event) -> bytes:
    return b"".join(
        model.image(table.columns, [None if value is None else value[0] for value in row])
        for row in event.rows
    )


def decode(
    table: MysqlTable, events: Sequence[Event], areas: list[bytes], *, image: bool = False
) -> Decoded:
    kinds = np.frombuffer("".join(event.kind for event in events).encode(), np.uint8)
    walked = walk_events(*joined(areas), kinds, table)
    per_event = [len(event.rows) // (2 if event.kind == "u" else 1) for event in events]
    assert walked.rows_per_event.tolist() == per_event
    numbers = np.arange(sum(per_event))
    given = {"seq": numbers + 100, "tx": numbers + 7, "ts": numbers * 1_000_000}
    return walked.to_batch(table.schema, **given, image=image)


def check_images(decoded: Decoded, table: MysqlTable, events: Sequence[Event]) -> None:
    """Updates and deletes carry the row before, by its other columns than the key's."""
    before: list[Row | None] = []
    for event in events:
        rows = event.rows[0::2] if event.kind == "u" else event.rows
        before += [None if event.kind == "c" else row for row in rows]
    batch, counts = decoded.rows.batch, decoded.rows.counts
    batch.validate(full=True)
    assert counts.before_image_rows == sum(row is not None for row in before)
    if not counts.before_image_rows:
        assert "_tl_image" not in batch.schema.names
        return
    assert batch.column("_tl_image").to_pylist() == [
        None if row is None else True for row in before
    ]
    # Read like a row's own columns: the same names, the same way of telling what did not fit.
    names = [column.name for column in table.columns if column.name not in table.key]
    arrays = [batch.column(f"_tl_before_{name}") for name in names]
    if "_tl_image_overflow" in batch.schema.names:
        arrays.append(batch.column("_tl_image_overflow"))
        names.append("_tl_overflow")
    as_row = pa.RecordBatch.from_arrays(arrays, names=names) if arrays else None
    for place, column in enumerate(table.columns):
        if as_row is not None and column.name not in table.key:
            expected = [None if row is None else text(row[place]) for row in before]
            assert column_texts(as_row, column) == expected, column


def check_against_model(decoded: Decoded, table: MysqlTable, events: Sequence[Event]) -> None:
    changes: list[tuple[str, Row | None, Row]] = []
    for event in events:
        if event.kind == "u":
            pairs = zip(event.rows[0::2], event.rows[1::2], strict=True)
            changes += [("u", old, new) for old, new in pairs]
        else:
            changes += [(event.kind, None, row) for row in event.rows]
    batch, counts = decoded.rows.batch, decoded.rows.counts
    batch.validate(full=True)
    assert batch.column("_tl_seq").to_pylist() == [100 + at for at in range(len(changes))]
    assert batch.column("_tl_op").to_pylist() == [kind for kind, _, _ in changes]
    for place, column in enumerate(table.columns):
        expected = [
            text(row[place]) if kind != "d" or column.name in table.key else None
            for kind, _, row in changes
        ]
        assert column_texts(batch, column) == expected, column
    places = [batch_place(table, name) for name in table.key]
    moved = [
        old is not None and any(old[at] != row[at] for at in places) for _, old, row in changes
    ]
    assert counts.before_rows == sum(moved)
    if any(moved):
        for name, place in zip(table.key, places, strict=True):
            column = table.columns[place]
            before = MysqlColumn(f"_tl_before_{name}", column.code, fsp=column.fsp)
            assert column_texts(batch, before) == [
                text(old[place]) if old is not None and was else None
                for (_, old, _), was in zip(changes, moved, strict=True)
            ]
    held = batch.schema.get_field_index("_tl_overflow") >= 0
    expected_schema = part_schema(
        table.schema, table.key if any(moved) else (), unchanged=False, overflow=held
    )
    assert batch.schema == expected_schema
    if held:
        assert counts.overflow_rows == len(batch) - batch.column("_tl_overflow").null_count > 0


def batch_place(table: MysqlTable, name: str) -> int:
    return [column.name for column in table.columns].index(name)


def text(value: Value | None) -> str | None:
    return None if value is None else value[1]
