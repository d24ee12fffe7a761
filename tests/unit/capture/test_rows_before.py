"""The row before a change, from the log's rows to parts and roll-ups."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from tests.fixtures import pgoutput_messages as pgoutput
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Part
from tideline.contract.planning.bounds import key_bounds
from tideline.contract.schema import Column, TableSchema
from tideline_capture.rollup_file import RollUpFile
from tideline_capture.segments import encode_parts
from tideline_capture.sources.postgres.replication.decode import decode_rows

COLUMNS = (Column("a", "int64", "bigint"), Column("d", "date", "date"))
BAG = TableSchema("public.bag", COLUMNS, ())
KEYED = TableSchema("public.bag", COLUMNS, ("a",))


def part(schema: TableSchema, first_seq: int, *payloads: bytes) -> tuple[Part, bytes]:
    numbers = np.arange(len(payloads), dtype=np.int64)
    decoded = decode_rows(
        payloads, schema, seq=numbers + first_seq, tx=numbers, ts=numbers, image=True
    )
    (encoded,) = encode_parts([decoded.rows], lambda _: f"p/{first_seq}")
    return encoded


CHANGES = (
    pgoutput.insert([b"1", b"2026-01-01"]),
    pgoutput.update([b"2", None], old_row=[b"1", b"infinity"]),
    pgoutput.delete(old_row=[b"2", b"2026-01-02"]),
)


@pytest.mark.parametrize("schema", [BAG, KEYED], ids=["keyless", "keyed"])
def test_parts_and_roll_ups_hold_it(schema: TableSchema) -> None:
    changed, changed_data = part(schema, 1, *CHANGES)
    plain, plain_data = part(schema, 4, CHANGES[0])
    assert (changed.before_image_rows, plain.before_image_rows) == (2, 0)
    assert (changed.before_rows, changed.overflow_rows) == (int(bool(schema.key)), 0)
    both = [changed, plain]
    assert (key_bounds(both, [schema]) == (None, None)) is (not schema.key)
    rolled = RollUpFile(schema, both)
    rolled.add(changed, changed_data)
    rolled.add(plain, plain_data)
    rows = pq.read_table(io.BytesIO(rolled.finish())).to_pylist()
    assert [row["_tl_image"] for row in rows] == [None, True, True, None]
    assert [str(row["_tl_before_d"]) for row in rows] == ["None", "None", "2026-01-02", "None"]
    assert rows[1]["_tl_image_overflow"] == [("d", "infinity")]
    assert [row["_tl_before_a"] for row in rows] == [None, 1, None if schema.key else 2, None]


def test_a_roll_up_of_fewer_images_than_said_is_refused() -> None:
    changed, data = part(BAG, 1, *CHANGES)
    lying = replace(changed, before_image_rows=1)
    with pytest.raises(CorruptData):
        RollUpFile(BAG, [lying]).add(lying, data)
