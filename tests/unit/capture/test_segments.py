"""Parts: what is written is what is read, and what the manifest will say of it."""

from __future__ import annotations

import datetime
import io
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.core import CLOCK_US, SCHEMA, TABLE, WIDER, make_rows
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Part, digest
from tideline.contract.part import PartCounts, total
from tideline.contract.schema import Column, TableSchema
from tideline_capture.arrow_types import arrow_type, part_schema
from tideline_capture.core.events import Rows
from tideline_capture.core.snapshots.emit import missing_rows
from tideline_capture.segments import encode_parts

UTC = datetime.UTC


def read_back(encoded: tuple[Part, bytes]) -> pa.Table:
    return pq.read_table(io.BytesIO(encoded[1]))


def encoded(*rows: Rows) -> list[tuple[Part, bytes]]:
    return encode_parts(rows, lambda schema: f"p/{schema.table}")


def one(*rows: Rows) -> tuple[Part, bytes]:
    parts = encoded(*rows)
    assert len(parts) == 1
    return parts[0]


def keyed(kind: str, source_type: str, values: list[Any], before: list[Any] | None = None) -> Rows:
    """Rows of a table whose only column is a key of type ``kind``."""
    schema = TableSchema(TABLE, (Column("k", kind, source_type, False),), ("k",))
    typed = arrow_type(schema.columns[0].logical)
    count = len(values)
    columns = [
        pa.array(range(1, count + 1), pa.int64()),
        pa.array(["u"] * count, pa.string()),
        pa.array([7] * count, pa.int64()),
        pa.array([CLOCK_US] * count, pa.timestamp("us", "UTC")),
        pa.array(values, typed),
    ]
    if before is not None:
        columns.append(pa.array(before, typed))
    fields = part_schema(schema, ("k",) if before else (), unchanged=False, overflow=False)
    return Rows(schema, pa.RecordBatch.from_arrays(columns, schema=fields))


def test_no_bit_of_a_page_is_another_value_to_who_looks_at_checksums() -> None:
    part = one(make_rows([("c", number, f"v{number * 7}") for number in range(1, 9)], 1))
    whole, was = part[1], read_back(part)
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    silent = found = 0
    for at in range(4, pages):
        raw = bytearray(whole)
        raw[at] ^= 1 << at % 8
        with suppress(OSError, pa.ArrowException, OverflowError):
            silent += not pq.read_table(io.BytesIO(bytes(raw))).equals(was)
        try:
            checked = pq.ParquetFile(io.BytesIO(bytes(raw)), page_checksum_verification=True).read()
        except (OSError, pa.ArrowException, OverflowError):
            found += 1
        else:
            assert checked.equals(was), f"bit {at % 8} of byte {at}"
    assert silent, "without them nobody would know"
    assert found > silent


def test_one_part_per_table_and_schema_version() -> None:
    other = TableSchema("public.other", SCHEMA.columns, ("id",))
    parts = encoded(
        make_rows([("c", 1, "a")], 1),
        make_rows([("c", 1, "a")], 2, schema=other),
        make_rows([("u", 1, "b")], 3),
        make_rows([("u", 1, "c")], 4, schema=WIDER),
    )
    forms = {(one.table, one.fingerprint): one for one in (SCHEMA, other, WIDER)}
    found = [
        (forms[part.table, part.schema], part.first_seq, part.last_seq, part.rows)
        for part, _ in parts
    ]
    assert found == [(SCHEMA, 1, 3, 2), (other, 2, 2, 1), (WIDER, 4, 4, 1)]


def test_what_the_manifest_says_of_it() -> None:
    part, data = one(
        make_rows([("c", 5, "a"), ("u", 9, "b")], 1),
        make_rows([("u", 7, "b"), ("d", 3, None)], 3, before=[2, None]),
        make_rows([("r", 4, None)], 5, unchanged=[["v"]]),
    )
    assert part.operations == {"c": 1, "u": 2, "d": 1, "r": 1}
    assert (part.first_seq, part.last_seq, part.rows) == (1, 5, 5)
    assert (part.key_min, part.key_max) == ("2", "9")
    assert total([part]) == PartCounts(unchanged_rows=1, before_rows=1)
    assert (part.digest, part.bytes, part.key) == (digest(data), len(data), f"p/{TABLE}")


def test_columns_that_only_some_rows_need_are_null_in_the_others() -> None:
    table = read_back(
        one(
            make_rows([("u", 1, "a")], 1, before=[8]),
            make_rows([("u", 2, "b")], 2, unchanged=[["v"]]),
            make_rows([("u", 3, "c")], 3),
        )
    )
    assert table.column_names[-2:] == ["_tl_before_id", "_tl_unchanged"]
    assert table.column("_tl_before_id").to_pylist() == [8, None, None]
    assert table.column("_tl_unchanged").to_pylist() == [None, ["v"], None]


def test_overflow_is_a_map() -> None:
    rows = make_rows([("r", 1, None)], 1)
    overflow = pa.array([[("v", "infinity")]], pa.map_(pa.string(), pa.string()))
    batch = rows.batch.append_column("_tl_overflow", overflow)
    table = read_back(
        one(Rows(SCHEMA, batch, PartCounts(overflow_rows=1)), make_rows([("r", 2, "x")], 2))
    )
    assert table.column("_tl_overflow").to_pylist() == [[("v", "infinity")], None]


def test_a_delete_of_a_missing_key_holds_the_key_alone() -> None:
    schema = TableSchema(
        TABLE,
        (*SCHEMA.columns, Column("n", "decimal(20,2)", "numeric(20,2)")),
        ("id",),
    )
    keys = pa.RecordBatch.from_arrays([pa.array([4, 6], pa.int64())], names=["id"])
    table = read_back(one(*missing_rows(schema, keys, first_seq=3, ts_us=CLOCK_US)))
    assert table.select(["_tl_seq", "_tl_op", "id", "v", "n"]).to_pylist() == [
        {"_tl_seq": 3, "_tl_op": "d", "id": 4, "v": None, "n": None},
        {"_tl_seq": 4, "_tl_op": "d", "id": 6, "v": None, "n": None},
    ]
    assert table.schema.field("n").type == pa.decimal128(20, 2)


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        (keyed("int16", "smallint", [3, -7, 5]), ("-7", "5")),
        (keyed("int64", "bigint", [3, 9], [None, -(2**63)]), (str(-(2**63)), "9")),
        (keyed("date", "date", [datetime.date(2024, 2, 29)]), ("2024-02-29", "2024-02-29")),
        (
            keyed("timestamp", "timestamptz", [datetime.datetime(2024, 1, 1, 5, tzinfo=UTC)]),
            ("2024-01-01 05:00:00+00:00", "2024-01-01 05:00:00+00:00"),
        ),
        (keyed("string", "text", ["b", "a"]), (None, None)),
        (keyed("decimal(10,0)", "numeric(10)", [1]), (None, None)),
        (keyed("float64", "double precision", [1.0]), (None, None)),
    ],
    ids=["int", "before-key", "date", "timestamp", "text", "numeric", "float"],
)
def test_bounds_only_where_every_reader_orders_alike(
    rows: Rows, bounds: tuple[str | None, str | None]
) -> None:
    part, _ = one(rows)
    assert (part.key_min, part.key_max) == bounds


def test_rows_out_of_order_are_our_bug() -> None:
    with pytest.raises(InvariantBroken):
        encoded(make_rows([("c", 1, "a")], 5), make_rows([("c", 2, "a")], 4))


class TestEncodings:
    def columns(self, encoded: tuple[Part, bytes]) -> dict[str, Any]:
        group = pq.ParquetFile(io.BytesIO(encoded[1])).metadata.row_group(0)
        found = [group.column(number) for number in range(group.num_columns)]
        return {column.path_in_schema: column for column in found}

    def test_deltas_for_numbers_and_a_dictionary_only_for_what_repeats(self) -> None:
        rows = make_rows([("c", n, f"value {n}") for n in range(500)], 1)
        columns = self.columns(one(rows))
        assert "DELTA_BINARY_PACKED" in columns["_tl_seq"].encodings
        assert "DELTA_BINARY_PACKED" in columns["id"].encodings
        assert "DELTA_LENGTH_BYTE_ARRAY" in columns["v"].encodings
        assert "RLE_DICTIONARY" in columns["_tl_op"].encodings
        assert {column.compression for column in columns.values()} == {"ZSTD"}

    def test_statistics_of_the_sequence_only(self) -> None:
        columns = self.columns(one(make_rows([("c", 1, "secret")], 7)))
        assert columns["_tl_seq"].statistics.min == 7
        assert columns["v"].statistics is None or not columns["v"].statistics.has_min_max


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from("curd"),
            st.integers(-(2**63), 2**63 - 1),
            st.none() | st.text(max_size=20),
        ),
        min_size=1,
        max_size=40,
    ),
    cuts=st.sets(st.integers(1, 39)),
)
@settings(max_examples=60, deadline=None)
def test_what_is_read_is_what_was_written(
    changes: list[tuple[str, int, str | None]], cuts: set[int]
) -> None:
    ends = [*sorted(cut for cut in cuts if cut < len(changes)), len(changes)]
    starts = [0, *ends[:-1]]
    written = one(*(make_rows(changes[a:b], a + 1) for a, b in zip(starts, ends, strict=True)))
    table = read_back(written)
    assert table.column("_tl_seq").to_pylist() == list(range(1, len(changes) + 1))
    columns = [table.column(name).to_pylist() for name in ("_tl_op", "id", "v")]
    assert list(zip(*columns, strict=True)) == changes
    keys = [change[1] for change in changes]
    assert (written[0].key_min, written[0].key_max) == (str(min(keys)), str(max(keys)))
