"""Parts of which one bit is another, read as merges read them: an error, or the same rows.

Pages have checksums, which Spark verifies. Nothing of the kind covers a footer: names of columns
that are not those of their chunks are refused by Spark, and rows that come or go by the counts of
the manifest.
"""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tests.fixtures.parts import Row, arrow_part, schema_of
from tideline.contract.errors import TidelineError
from tideline.contract.manifest import Part, digest
from tideline.contract.plan import TablePlan
from tideline.contract.planning.table_plans import planned_part
from tideline_capture.segments import write_part
from tideline_spark import parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(
    "public.t",
    {
        "id": "int64",
        "text": "string",
        "price": "decimal(12,2)",
        "day": "date",
        "moment": "timestamp_ntz",
        "raw": "binary",
        "small": "int16",
        "real": "float32",
        "yes": "boolean",
    },
    ["id"],
)
COUNT = 60
KEY = "shop/parts/1/part.parquet"
FOOTER_LENGTH_AT = -8


def value(number: int) -> dict[str, object]:
    return {
        "id": number,
        "text": f"text {number}",
        "price": Decimal(number) / 100,
        "day": date(2024, 1, 1 + number % 28),
        "moment": datetime(2024, 1, 1, 0, number % 60),
        "raw": bytes([number]),
        "small": number,
        "real": number / 2,
        "yes": number % 2 == 0,
    }


def a_part() -> bytes:
    rows = [(seq, Row(SCHEMA.table, "c", value(seq))) for seq in range(1, COUNT + 1)]
    return write_part(arrow_part(SCHEMA, rows))


def plan_of(raw: bytes) -> TablePlan:
    part = Part(
        key=KEY,
        table=SCHEMA.table,
        schema=SCHEMA.fingerprint,
        rows=COUNT,
        operations={"c": COUNT},
        bytes=len(raw),
        digest=digest(raw),
        first_seq=1,
        last_seq=COUNT,
    )
    return TablePlan(
        table=SCHEMA.table,
        target="unused",
        schema=SCHEMA,
        schemas={SCHEMA.fingerprint: SCHEMA},
        parts=(planned_part(part),),
        from_manifest=0,
        from_seq=0,
        to_manifest=1,
        to_seq=COUNT,
        app_id="unused",
    )


def put(folder: Path, raw: bytes) -> None:
    (folder / KEY).parent.mkdir(parents=True)
    (folder / KEY).write_bytes(raw)


def rows_in(spark: SparkSession, folder: Path, plan: TablePlan) -> list[str]:
    parts.count_parts(spark, folder.as_uri(), plan)
    return sorted(map(str, parts.read_changes(spark, folder.as_uri(), plan).collect()))


def read(spark: SparkSession, folder: Path, raw: bytes, plan: TablePlan) -> list[str] | None:
    """The rows of ``raw`` as the part there; None for an error, which a merge ends with."""
    put(folder, raw)
    try:
        return rows_in(spark, folder, plan)
    except (TidelineError, PySparkException, Py4JJavaError):
        return None


@pytest.mark.parametrize("flips", [25, pytest.param(600, marks=pytest.mark.long)])
def test_a_bit_of_a_footer_is_never_another_value(
    spark: SparkSession, tmp_path: Path, flips: int
) -> None:
    raw = a_part()
    plan = plan_of(raw)
    footer = len(raw) + FOOTER_LENGTH_AT - int.from_bytes(raw[FOOTER_LENGTH_AT:-4], "little")
    put(tmp_path, raw)
    whole, errors = rows_in(spark, tmp_path, plan), 0
    assert len(whole) == COUNT
    bits = [(at, bit) for at in range(footer, len(raw)) for bit in range(8)]
    for number, (at, bit) in enumerate(random.Random(7).sample(bits, flips)):
        changed = bytearray(raw)
        changed[at] ^= 1 << bit
        found = read(spark, tmp_path / str(number), bytes(changed), plan)
        errors += found is None
        assert found in (None, whole), f"bit {bit} of byte {at - footer} of the footer"
    assert errors > flips / 4
