"""The vectorised decoder, the loop, and a model that never sees a message, all agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import pgoutput_messages as pgoutput
from tests.fixtures.pgoutput_messages import Missing, Value
from tests.fixtures.source_text import column_texts, source_text
from tideline.contract.errors import CorruptData
from tideline.contract.part import IMAGE, IMAGE_OVERFLOW, OVERFLOW, UNCHANGED, PartCounts
from tideline.contract.schema import Column, TableSchema
from tideline_capture.arrow_types import part_schema
from tideline_capture.core.events import WHOLE_ROW
from tideline_capture.sources.decoded import Decoded
from tideline_capture.sources.postgres.replication import decode
from tideline_capture.sources.postgres.replication.decode import decode_rows, decode_rows_loop

TEXTS: dict[str, st.SearchStrategy[str]] = {
    "int64": st.integers(-(2**63), 2**63 - 1).map(str),
    "int16": st.integers(-(2**15), 2**15 - 1).map(str),
    "string": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "boolean": st.sampled_from(["t", "f"]),
    "decimal(6,2)": st.decimals(-9999, 9999, places=2).map(lambda value: format(value, "f"))
    | st.just("NaN"),
    "date": st.dates().map(str) | st.sampled_from(["infinity", "0044-03-15 BC", "12026-01-01"]),
    "timestamp": st.datetimes().map(lambda value: f"{_clock(value)}+00")
    | st.sampled_from(["-infinity", "10000-01-01 00:00:00+00"]),
    "binary": st.binary().map(lambda value: "\\x" + value.hex()),
}
KEY_TYPES = ("int64", "int16", "string")


@dataclass(frozen=True)
class Change:
    """A message and what must be read from it: texts of the row, of the key before it, and of the
    whole row before it."""

    payload: bytes
    operation: str
    row: tuple[Value, ...]
    before: tuple[bytes, ...] | None
    image: tuple[Value, ...] | None = None


@given(st.data())
def test_fast_equals_loop_equals_model(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    changes = data.draw(st.lists(a_change(schema), max_size=12))
    repeated = [change for change in changes for _ in range(data.draw(st.integers(1, 4)))]
    fast = decode_fast([change.payload for change in repeated], schema)
    loop = decode_with(decode_rows_loop, [change.payload for change in repeated], schema)
    assert fast == loop
    assert fast.rows.batch.schema == loop.rows.batch.schema
    check_against_model(fast, schema, repeated)
    for imaged in (schema, TableSchema(schema.table, schema.columns, ())):
        fast = decode_fast([change.payload for change in repeated], imaged, image=True)
        payloads = [change.payload for change in repeated]
        assert fast == decode_with(decode_rows_loop, payloads, imaged, image=True)
        check_images(fast, imaged, repeated)
    reported = all(change.operation == "c" or change.image for change in repeated)
    assert fast.key_overflow == (() if reported else (WHOLE_ROW,))


@given(st.data())
def test_damage_is_named_and_never_read_as_data(data: st.DataObject) -> None:
    """A truncated message is refused by both decoders, wherever it ends."""
    schema = data.draw(schemas())
    changes = data.draw(st.lists(a_change(schema), min_size=1, max_size=5))
    payloads = [change.payload for change in changes]
    hurt = data.draw(st.integers(0, len(payloads) - 1))
    keep = data.draw(st.integers(0, len(payloads[hurt]) - 1))
    payloads[hurt] = payloads[hurt][:keep]
    with pytest.raises(CorruptData):
        decode_fast(payloads, schema)
    with pytest.raises(CorruptData):
        decode_with(decode_rows_loop, payloads, schema)


def test_many_rows_of_every_shape_take_the_vectorised_path() -> None:
    schema = TableSchema(
        "public.t", (Column("a", "int64", "bigint"), Column("b", "string", "text")), ("a",)
    )
    shapes: list[bytes] = []
    for number in range(200):
        key, text = str(number).encode(), b"x" * (number % 7)
        shapes += [
            pgoutput.insert([key, text]),
            pgoutput.update([key, pgoutput.UNCHANGED]),
            pgoutput.update([b"9" + key, None], old_key=[key, None]),
            pgoutput.update([key, pgoutput.UNCHANGED], old_row=[key, text]),
            pgoutput.delete(old_key=[key, None]),
        ]
    decoded = decode_with(decode_rows, shapes, schema)
    assert decoded == decode_with(decode_rows_loop, shapes, schema)
    assert decoded.rows.counts == PartCounts(unchanged_rows=200, before_rows=200)
    assert len(shapes) > decode.PLAIN_ROWS_MAX


def test_a_key_that_cannot_be_told_is_named() -> None:
    """Whether it does not fit its type, did not fit it before the update, or was not sent."""
    columns = (Column("day", "date", "date"), Column("id", "int16", "smallint"))
    schema = TableSchema("public.t", columns, ("id", "day"))
    row, other = [b"2026-01-01", b"1"], [b"infinity", b"2"]
    for payload, named in (
        (pgoutput.insert(row), ()),
        (pgoutput.insert(other), ("day",)),
        (pgoutput.update(row, old_key=other), ("day",)),
        (pgoutput.delete(old_key=[b"infinity", b"99999"]), ("id", "day")),
        (pgoutput.update([b"2026-01-01", pgoutput.UNCHANGED]), ("id",)),
    ):
        assert decode_fast([payload], schema).key_overflow == named
        assert decode_with(decode_rows_loop, [payload], schema).key_overflow == named


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    types = draw(st.lists(st.sampled_from(sorted(TEXTS)), min_size=0, max_size=5))
    types.insert(draw(st.integers(0, len(types))), draw(st.sampled_from(KEY_TYPES)))
    columns = tuple(Column(f"c{at}", kind, kind) for at, kind in enumerate(types))
    eligible = [column.name for column in columns if column.type in KEY_TYPES]
    key = draw(st.lists(st.sampled_from(eligible), min_size=1, max_size=3, unique=True))
    return TableSchema("public.t", columns, tuple(key))


@st.composite
def a_change(draw: st.DrawFn, schema: TableSchema) -> Change:
    row = draw_row(draw, schema)
    old = draw_row(draw, schema)
    if draw(st.booleans()):
        old = [
            o if c.name not in schema.key else r
            for o, r, c in zip(old, row, schema.columns, strict=True)
        ]
    old_key = [
        o if c.name in schema.key else None for o, c in zip(old, schema.columns, strict=True)
    ]
    shape = draw(st.sampled_from(["insert", "plain", "key", "full", "delete key", "delete full"]))
    if shape == "insert":
        return Change(pgoutput.insert(row), "c", tuple(row), None)
    if shape == "delete full":
        old = [
            pgoutput.UNCHANGED if c.name not in schema.key and draw(st.integers(0, 3)) == 0 else o
            for o, c in zip(old, schema.columns, strict=True)
        ]
    image = None if any(isinstance(value, Missing) for value in old) else tuple(old)
    if shape.startswith("delete"):
        payload = (
            pgoutput.delete(old_key=old_key)
            if shape == "delete key"
            else pgoutput.delete(old_row=old)
        )
        image = image if shape == "delete full" else None
        return Change(payload, "d", tuple(old_key), None, image)
    sent: list[Value] = list(row)
    for at, column in enumerate(schema.columns):
        in_key = column.name in schema.key
        if draw(st.integers(0, 3)) == 0 and not (in_key and shape == "plain"):
            sent[at] = pgoutput.UNCHANGED
            if shape == "full" or in_key:
                row[at] = old[at]
            else:
                row[at] = pgoutput.UNCHANGED
    if shape == "plain":
        return Change(pgoutput.update(sent), "u", tuple(row), None)
    payload = (
        pgoutput.update(sent, old_key=old_key)
        if shape == "key"
        else pgoutput.update(sent, old_row=old)
    )
    places = [schema.column_names.index(name) for name in schema.key]
    was = tuple(bytes_of(old[at]) for at in places)
    moved = was != tuple(row[at] for at in places)
    image = image if shape == "full" else None
    return Change(payload, "u", tuple(row), was if moved else None, image)


def draw_row(draw: st.DrawFn, schema: TableSchema) -> list[Value]:
    values: list[Value] = []
    for column in schema.columns:
        text = draw(TEXTS[column.type])
        absent = column.name not in schema.key and draw(st.integers(0, 3)) == 0
        values.append(None if absent else text.encode())
    return values


def check_against_model(decoded: Decoded, schema: TableSchema, changes: Sequence[Change]) -> None:
    batch, counts = decoded.rows.batch, decoded.rows.counts
    assert batch.column("_tl_seq").to_pylist() == [100 + at for at in range(len(changes))]
    assert batch.column("_tl_op").to_pylist() == [change.operation for change in changes]
    for at, column in enumerate(schema.columns):
        carried = [change.row[at] for change in changes]
        expected = [None if isinstance(v, Missing) or v is None else v.decode() for v in carried]
        assert column_texts(batch, column.name, column.logical) == expected
    missing = [
        [n for n, v in zip(schema.column_names, change.row, strict=True) if isinstance(v, Missing)]
        for change in changes
    ]
    assert optional(batch, UNCHANGED, len(changes)) == [names or None for names in missing]
    assert counts.unchanged_rows == sum(map(bool, missing))
    for place, name in enumerate(schema.key):
        logical = schema.column(name).logical
        texts = [
            source_text(v, logical) for v in optional(batch, f"_tl_before_{name}", len(changes))
        ]
        assert texts == [c.before[place].decode() if c.before else None for c in changes]
    assert counts.before_rows == sum(change.before is not None for change in changes)
    assert counts.overflow_rows == sum(map(bool, optional(batch, OVERFLOW, len(changes))))
    assert decoded.key_overflow == ()
    batch.validate(full=True)
    assert batch.schema == part_schema(
        schema,
        schema.key if counts.before_rows else (),
        unchanged=counts.unchanged_rows > 0,
        overflow=counts.overflow_rows > 0,
    )


def check_images(decoded: Decoded, schema: TableSchema, changes: Sequence[Change]) -> None:
    """The row before, by its other columns than the key's, wherever the message has all of it."""
    batch, rows = decoded.rows.batch, len(changes)
    counts = decoded.rows.counts
    batch.validate(full=True)
    assert counts.before_image_rows == sum(change.image is not None for change in changes)
    assert optional(batch, IMAGE, rows) == [True if change.image else None for change in changes]
    overflow = optional(batch, IMAGE_OVERFLOW, rows)
    for place, column in enumerate(schema.columns):
        if column.name in schema.key:
            continue
        typed = optional(batch, f"_tl_before_{column.name}", rows)
        texts = [
            dict(held or ()).get(column.name, source_text(value, column.logical))
            for value, held in zip(typed, overflow, strict=True)
        ]
        was = [None if change.image is None else change.image[place] for change in changes]
        assert texts == [None if value is None else bytes_of(value).decode() for value in was]


def optional(batch: pa.RecordBatch, name: str, rows: int) -> list[Any]:
    if batch.schema.get_field_index(name) < 0:
        return [None] * rows
    values: list[Any] = batch.column(name).to_pylist()
    return values


def decode_with(
    decoder: Callable[..., Decoded],
    payloads: Sequence[bytes],
    schema: TableSchema,
    *,
    image: bool = False,
) -> Decoded:
    numbers = np.arange(len(payloads), dtype=np.int64)
    given = {"seq": numbers + 100, "tx": numbers + 7, "ts": numbers * 1_000_000}
    return decoder(payloads, schema, **given, image=image)


def decode_fast(payloads: Sequence[bytes], schema: TableSchema, *, image: bool = False) -> Decoded:
    """The vectorised path, however few rows there are."""
    with mock.patch.object(decode, "PLAIN_ROWS_MAX", -1):
        return decode_with(decode_rows, payloads, schema, image=image)


def bytes_of(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _clock(value: Any) -> str:
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}"
