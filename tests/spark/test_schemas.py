"""Schemas in the warehouse: types, evolution, generations, and names of every kind."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import History, Row, Shaped, blocked, schema_of
from tideline.contract.receipt import Outcome, TableReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"

_BOUNDARIES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int8": [-(2**7), -1, 0, 2**7 - 1],
    "int16": [-(2**15), 2**15 - 1],
    "int32": [-(2**31), 2**31 - 1],
    "int64": [-(2**63), -1, 0, 2**63 - 1],
    "float32": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 2.0**-149],
    "float64": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(0)],
    "decimal(38,38)": [Decimal(f"0.{'9' * 38}"), Decimal(f"-0.{'9' * 38}")],
    "decimal(10,2)": [Decimal("99999999.99"), Decimal("-0.01")],
    "string": ["", " ", "null", "\\N", "üñïçødé 🦀", "line\nbreak\ttab", "x" * 100_000, "'\"`;--"],
    "binary": [b"", b"\x00\xff", bytes(range(256))],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1), date.max],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    "timestamp_ntz": [
        datetime(1, 1, 1),
        datetime(1582, 10, 10, 1, 2, 3, 4),
        datetime(2024, 3, 31, 2, 30),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ],
}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def applied(history: History, spark: SparkSession) -> TableReceipt:
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED, receipt
    return receipt


def columns_of(history: History, spark: SparkSession, table: str = T) -> list[str]:
    frame = spark.newSession().read.format("delta").load(history.target(table))
    return [name for name in frame.columns if not name.startswith("_tl_")]


def test_every_boundary_value_of_every_type_round_trips(
    history: History, spark: SparkSession
) -> None:
    """By the create, by an insert and by an update of a MERGE; compared as text by Spark."""
    names = {f"c_{kind}": kind for kind in _BOUNDARIES}
    history.commit(Shaped(schema_of(T, {"id": "int32", **names}, ["id"])))
    rows = max(len(values) for values in _BOUNDARIES.values()) + 1

    def values(at: int) -> dict[str, Any]:
        found = {f"c_{kind}": (*given, None) for kind, given in _BOUNDARIES.items()}
        return {name: given[at % len(given)] for name, given in found.items()}

    history.commit(*(Row(T, "c", {"id": at, **values(at)}) for at in range(rows)))
    applied(history, spark)
    history.commit(
        *(Row(T, "u", {"id": at, **values(at + 1)}) for at in range(rows)),
        *(Row(T, "c", {"id": 100 + at, **values(at)}) for at in range(rows)),
    )
    expected = {at: values(at + 1) for at in range(rows)}
    expected |= {100 + at: values(at) for at in range(rows)}
    assert _texts(history, spark, names) == _expected_texts({at: values(at) for at in range(rows)})
    applied(history, spark)
    assert _texts(history, spark, names) == _expected_texts(expected)


def test_a_column_that_the_source_adds_appears_in_its_place(
    history: History, spark: SparkSession
) -> None:
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "string"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "a": "x"}))
    applied(history, spark)
    wider = {"id": "int32", "b": "timestamp_ntz", "a": "string", "odd name": "int8"}
    history.commit(Row(T, "u", {"id": 1, "a": "y"}), Shaped(schema_of(T, wider, ["id"])))
    applied(history, spark)
    assert columns_of(history, spark) == ["id", "b", "a", "odd name"]
    moment = datetime(2024, 3, 31, 2, 30)
    history.commit(Row(T, "c", {"id": 2, "b": moment, "a": "z", "odd name": 5}))
    applied(history, spark)
    rows = [(r["id"], r["b"], r["a"], r["odd name"]) for r in history.rows(spark, T)]
    assert rows == [(1, None, "y", None), (2, moment, "z", 5)]


def test_parts_of_two_schemas_in_one_plan(history: History, spark: SparkSession) -> None:
    history.commit(Shaped(schema_of(T, {"id": "int16", "n": "decimal(10,2)"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "n": Decimal("1.25")}))
    applied(history, spark)
    wider = schema_of(T, {"id": "int64", "n": "decimal(14,4)", "x": "string"}, ["id"])
    history.commit(
        Row(T, "c", {"id": 2, "n": Decimal("2.50")}),
        Shaped(wider),
        Row(T, "c", {"id": 2**40, "n": Decimal("3.0001"), "x": "new"}),
        Row(T, "u", {"id": 1, "n": Decimal("9999999999.9999"), "x": None}),
    )
    applied(history, spark)
    rows = [(row["id"], row["n"], row["x"]) for row in history.rows(spark, T)]
    assert rows == [
        (1, Decimal("9999999999.9999"), None),
        (2, Decimal("2.5000"), None),
        (2**40, Decimal("3.0001"), "new"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int8", "int16"),
        ("int32", "decimal(10,0)"),
        ("int64", "decimal(22,2)"),
        ("float32", "float64"),
    ],
)
def test_every_widening_that_the_contract_allows_is_taken(
    history: History, spark: SparkSession, before: str, after: str
) -> None:
    history.commit(Shaped(schema_of(T, {"id": "int32", "n": before}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "n": 7}))
    applied(history, spark)
    history.commit(Shaped(schema_of(T, {"id": "int32", "n": after}, ["id"])))
    history.commit(Row(T, "c", {"id": 2, "n": Decimal(8) if "decimal" in after else 8}))
    applied(history, spark)
    assert [int(row["n"]) for row in history.rows(spark, T)] == [7, 8]


def test_a_dropped_column_stays_and_rows_written_later_hold_null(
    history: History, spark: SparkSession
) -> None:
    """So when the source has a column of that name again, it does not show what it was before."""
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "string", "b": "string"}, ["id"])))
    history.commit(*(Row(T, "c", {"id": key, "a": "x", "b": "kept"}) for key in (1, 3)))
    applied(history, spark)
    history.commit(
        Shaped(schema_of(T, {"id": "int32", "a": "string"}, ["id"])),
        states={T: {"dropped": {"b": "string", "never there": "string"}}},
    )
    history.commit(Row(T, "c", {"id": 2, "a": "y"}), Row(T, "u", {"id": 1, "a": "z"}))
    applied(history, spark)
    rows = [(row["id"], row["a"], row["b"]) for row in history.rows(spark, T)]
    assert rows == [(1, "z", None), (2, "y", None), (3, "x", "kept")]


def test_a_type_that_no_step_reaches_fails_by_name(history: History, spark: SparkSession) -> None:
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "string"}, ["id"])))
    applied(history, spark)
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "int32"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "a": 1}))
    (receipt,) = history.merge(spark).tables
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "'a'" in (receipt.error or "")


def test_a_blocked_table_stops_before_its_event_and_a_dump_starts_a_generation(
    history: History, spark: SparkSession
) -> None:
    from tideline_spark.merge import run_plan

    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "int32"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "a": 1}), Row(T, "c", {"id": 5, "a": 5}))
    applied(history, spark)
    history.commit(Row(T, "c", {"id": 2, "a": 2}))
    retyped = schema_of(T, {"id": "int32", "a": "string"}, ["id"])
    history.commit(
        Shaped(retyped), states={T: blocked(history.last_seq + 1, "retype a int → text")}
    )
    history.commit(Row(T, "u", {"id": 1, "a": "one"}))
    plan = history.plan()
    assert "retype a" in plan.delayed[T]
    assert [table.to_manifest for table in plan.tables] == [3]
    applied(history, spark)
    assert [(row["id"], row["a"]) for row in history.rows(spark, T)] == [(1, 1), (2, 2), (5, 5)]
    assert history.plan().tables == ()

    began_after, low = history.last_number, history.last_seq
    history.commit(Row(T, "r", {"id": 1, "a": "one"}), Row(T, "r", {"id": 2, "a": "2"}))
    history.commit(
        Row(T, "u", {"id": 2, "a": "two"}),
        deletes_before=[(T, low)],
        states={
            T: {
                "condition": "live",
                "since_seq": None,
                "reason": None,
                "generation": 1,
                "generation_seq": low,
                "generation_manifest": began_after,
            }
        },
    )
    (table,) = history.plan().tables
    assert (table.replace, table.from_manifest, table.generation) == (True, began_after, 1)
    applied(history, spark)
    rows = [(row["id"], row["a"]) for row in history.rows(spark, T)]
    assert rows == [(1, "one"), (2, "two")]
    # A plan of the generation before, which stands where that ended, is run only now.
    (old,) = plan.tables
    late = replace(
        old,
        from_manifest=old.to_manifest,
        from_seq=old.to_seq,
        from_digest=old.to_digest,
        to_manifest=old.to_manifest + 1,
        to_digest="",
    )
    late = replace(late, schema=retyped)
    (refused,) = run_plan(spark, replace(plan, tables=(late,))).tables
    assert (refused.outcome, "generation 1" in (refused.error or "")) == (Outcome.REFUSED, True)
    assert [(row["id"], row["a"]) for row in history.rows(spark, T)] == rows
    history.commit(Row(T, "d", {"id": 1}))
    applied(history, spark)
    assert [row["id"] for row in history.rows(spark, T)] == [2]


def test_names_of_every_kind(history: History, spark: SparkSession) -> None:
    names = [
        "a b", "c.d", 'e"f', "g`h", "select", "i;j,k{}()=", "ü", "x\ty", "Upper", "%41", "t", "s",
        "name", "text", "key", "value", "it's", "back\\slash", "o", "life",
    ]  # fmt: skip
    table = '"odd schema/../x"."_tab`le.ü"'
    key = ["k.1", "K 2"]
    columns = dict.fromkeys(key, "string") | dict.fromkeys(names, "string")
    history.commit(Shaped(schema_of(table, columns, key)))

    def row(op: str, at: str, value: str, **more: Any) -> Row:
        carried = [name for name in names if name not in more.get("unchanged", ())]
        values = {name: f"{value} {name}" for name in carried} if op != "d" else {}
        return Row(table, op, {"k.1": at, "K 2": "x", **values}, **more)

    history.commit(row("c", "1", "first"), row("c", "2", "first"), row("c", "3", "first"))
    applied(history, spark)
    history.commit(
        row("u", "1", "second", unchanged=tuple(names[::2])),
        row("u", "22", "second", before={"k.1": "2", "K 2": "x"}, unchanged=tuple(names[1::2])),
        row("d", "3", ""),
    )
    applied(history, spark)
    found = {r["k.1"]: {name: r[name] for name in names} for r in history.rows(spark, table)}
    assert found == {
        "1": {n: f"{'first' if at % 2 == 0 else 'second'} {n}" for at, n in enumerate(names)},
        "22": {n: f"{'second' if at % 2 == 0 else 'first'} {n}" for at, n in enumerate(names)},
    }
    assert history.target(table).startswith(f"{history.settings.warehouse.url}/odd~20schema~2F")


def test_columns_that_delta_cannot_tell_apart_hold_only_their_table(
    history: History, spark: SparkSession
) -> None:
    history.commit(
        Shaped(schema_of("public.twins", {"id": "int32", "A": "int8", "a": "int8"}, ["id"]))
    )
    history.commit(Shaped(schema_of("public.meta", {"id": "int32", "_metadata": "int8"}, ["id"])))
    history.commit(
        Shaped(schema_of(T, {"ID": "int32", "b": "int8"}, ["ID"])), Row(T, "c", {"ID": 1})
    )
    assert applied(history, spark).table == T
    held = history.plan().delayed
    assert "'A'" in held["public.twins"] and "'a'" in held["public.twins"]
    assert "'_metadata'" in held["public.meta"]


def test_keys_of_every_type_match(history: History, spark: SparkSession) -> None:
    """A part's key must find the target's row whatever its type; -0.0 and NaN are keys too."""
    kinds = {f"k_{kind}": kind for kind in _BOUNDARIES}
    values = {f"k_{kind}": given for kind, given in _BOUNDARIES.items()}
    history.commit(Shaped(schema_of(T, {**kinds, "v": "int32"}, [*kinds])))
    keys = [{name: given[at % len(given)] for name, given in values.items()} for at in range(8)]
    history.commit(*(Row(T, "c", {**key, "v": 1}) for key in keys))
    applied(history, spark)
    history.commit(*(Row(T, "u", {**key, "v": 2}) for key in keys[:7]), Row(T, "d", keys[7]))
    receipt = applied(history, spark)
    assert (receipt.updated, receipt.deleted, receipt.inserted) == (7, 1, 0)


def _texts(history: History, spark: SparkSession, names: dict[str, str]) -> dict[int, list[Any]]:
    frame = spark.newSession().read.format("delta").load(history.target(T))
    shown = ", ".join(_shown(name, kind) for name, kind in names.items())
    frame.createOrReplaceTempView("shown")
    rows = frame.sparkSession.sql(f"SELECT id, {shown} FROM shown").collect()  # noqa: S608
    return {row[0]: list(row[1:]) for row in rows}


def _shown(name: str, kind: str) -> str:
    quoted = f"`{name}`"
    return f"hex({quoted})" if kind == "binary" else f"cast({quoted} as string)"


def _expected_texts(rows: dict[int, dict[str, Any]]) -> dict[int, list[Any]]:
    return {
        at: [_text(name.removeprefix("c_"), value) for name, value in values.items()]
        for at, values in rows.items()
    }


def _text(kind: str, value: Any) -> str | None:
    """The value as Spark casts it to text."""
    if value is None:
        return None
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "binary":
        return str(value.hex().upper())
    if kind.startswith("float"):
        return _float_text(kind, value)
    if kind.startswith("timestamp"):
        text = value.replace(tzinfo=None).isoformat(sep=" ")
        return str(text.rstrip("0") if "." in text else text)
    return str(f"{value:f}") if kind.startswith("decimal") else str(value)


def _float_text(kind: str, value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if kind == "float32" and value == 2.0**-149:
        return "1.4E-45"
    # Java 17 prints the smallest double with a digit that is not needed.
    return "4.9E-324" if value == 5e-324 else repr(value).replace("e+", "E").replace("e", "E")
