"""Google's own analyzer accepts what jobs write for BigQuery, and what they cannot write is an
error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest
from pyspark.sql import types

from tests.fixtures.parts import schema_of
from tests.support.bigquery.analyzer import Analyzer, Refused
from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.evolution import Refill, TargetColumns
from tideline.contract.layout_rules import layout_problem
from tideline.contract.modes import Mode
from tideline.contract.part import OVERFLOW, PENDING, SEQ, TS
from tideline.contract.plan import PlannedEnd, TablePlan
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.bigquery.names import name_of
from tideline_spark.dialects.bigquery import TEXTS, BigQueryDialect, decimal_type
from tideline_spark.fold import MISSING, UNKNOWN
from tideline_spark.formats.bigquery.columns import updated_rows
from tideline_spark.formats.bigquery.layout import laid_out, making
from tideline_spark.formats.bigquery.reading import selection
from tideline_spark.formats.bigquery.types import bigquery_type, check_key, check_names
from tideline_spark.formats.statements import RowMerge
from tideline_spark.modes import history, soft_deletes
from tideline_spark.pending import LACKING
from tideline_spark.refill import refill_rows
from tideline_spark.schemas import STRING_LIST, STRING_MAP, field_of
from tideline_spark.statement import delete_rows, merge_rows
from tideline_spark.version_context import CURRENT, FROM, FROM_SEQ, TO, TO_SEQ
from tideline_spark.working_columns import GONE

DIALECT = BigQueryDialect()
SCHEMA = schema_of(
    "shop.t", {"id": "int32", "a b": "string", "n": "decimal(20,4)", "day": "date"}, ["id"]
)
PLAN = TablePlan(
    "shop.t", "", SCHEMA, {}, (), 1, 10, 2, 20, "shop/one/shop.t", key_min="-1", key_max="9"
)
ROWS = {"id": "INT64", "a b": "STRING", "n": "NUMERIC(20, 4)", "day": "DATE"}
OWN = {SEQ: "INT64", TS: "TIMESTAMP", OVERFLOW: TEXTS, PENDING: "ARRAY<STRING>"}
WORKING = {GONE: "BOOL", UNKNOWN: "ARRAY<STRING>", MISSING: "ARRAY<STRING>"}
VALID = {FROM: "TIMESTAMP", FROM_SEQ: "INT64", TO: "TIMESTAMP", TO_SEQ: "INT64", CURRENT: "BOOL"}
SOFT = {
    soft_deletes.DELETED: "BOOL",
    soft_deletes.DELETED_AT: "TIMESTAMP",
    soft_deletes.DELETED_SEQ: "INT64",
}
EVERYTHING = ROWS | OWN | VALID | SOFT
DATED = schema_of(
    "shop.dated",
    {
        "id": "int64",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "ok": "boolean",
        "raw": "binary",
    },
    ["id"],
)
DATED_COLUMNS = types.StructType([field_of(one.name, one.type) for one in DATED.columns])
ENDS = (PlannedEnd(15, 14, 1_700_000_000_000_000), PlannedEnd(18, 17, None))


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return Analyzer({"shop.t": EVERYTHING, "shop.staged": EVERYTHING | WORKING})


def written(rows: RowMerge) -> str:
    return replace(DIALECT.merge(rows), source="shop.staged").sql("`shop`.`t`", "")


@pytest.mark.parametrize(
    "rows",
    [
        merge_rows(PLAN, "v", ()),
        merge_rows(PLAN, "v", ("a b", "n"), dropped=["day"], carried=["n"]),
        merge_rows(msgspec.structs.replace(PLAN, delete_before=15), "v", ("a b",)),
        delete_rows(PLAN, "v"),
        soft_deletes._merge(PLAN),
        soft_deletes._merge(msgspec.structs.replace(PLAN, ends=ENDS)),
        history._merge(PLAN, {}),
        history._merge(msgspec.structs.replace(PLAN, ends=ENDS), {"n": 16}),
    ],
    ids=["whole", "lacking", "dumped", "twins", "soft", "soft ended", "history", "history ended"],
)
def test_every_merge_is_accepted(analyzer: Analyzer, rows: RowMerge) -> None:
    analyzer.check(written(rows))


def test_a_merge_of_another_type_is_refused(analyzer: Analyzer) -> None:
    """So that the analyzer does judge what is written."""
    wrong = written(merge_rows(PLAN, "v", ("a b",))).replace("`a b` END", "`day` END", 1)
    with pytest.raises(Refused):
        analyzer.check(wrong)


def test_every_refill_is_accepted(analyzer: Analyzer) -> None:
    held = types.StructType(
        [
            types.StructField("a b", types.StringType()),
            types.StructField("n", types.DecimalType(20, 4)),
            types.StructField(OVERFLOW, STRING_MAP),
            types.StructField(PENDING, STRING_LIST),
        ]
    )
    refill = Refill(names={"was": ("a b", "n"), "gone": ()})
    update = refill_rows(held, TargetColumns(seq=20, refill=refill), Mode.CURRENT)
    assert update is not None
    changed = DIALECT.update(update)
    analyzer.check(replace(changed, when=changed.when or "TRUE").sql("`shop`.`t`"))


@pytest.mark.parametrize(
    ("field", "clause"),
    [
        ("day", "PARTITION BY `day` "),
        ("day(day)", "PARTITION BY `day` "),
        ("month(day)", "PARTITION BY DATE_TRUNC(`day`, MONTH) "),
        ("hour(at)", "PARTITION BY TIMESTAMP_TRUNC(`at`, HOUR) "),
        ("year(local)", "PARTITION BY DATETIME_TRUNC(`local`, YEAR) "),
    ],
)
def test_partitions_are_of_a_date(analyzer: Analyzer, field: str, clause: str) -> None:
    layout = TableLayout((field,), ("ok",))
    assert layout_problem(layout, DATED, Mode.CURRENT, "bigquery") is None
    how = laid_out(DATED_COLUMNS, layout, ("id",))
    assert clause in how and how.endswith(" CLUSTER BY `ok`")
    listed = ", ".join(
        f"{DIALECT.quote(one.name)} {bigquery_type(one.dataType)}" for one in DATED_COLUMNS
    )
    analyzer.check(f"CREATE TABLE shop.made ({listed}){how}")


class _Access:
    """As much of a table's access as a statement needs."""

    name = name_of("bigquery://tideline/shop/made")
    labels: ClassVar[dict[str, str]] = {"tideline": "true"}


def test_a_streamed_table_is_made_and_made_again(analyzer: Analyzer) -> None:
    """With its declared key, and in place of an UPDATE of its rows."""
    held = types.StructType([field_of(one.name, one.type) for one in SCHEMA.columns])
    held.add(OVERFLOW, STRING_MAP).add(PENDING, STRING_LIST)
    refill = Refill(fills={"n": ("decimal(20,4)", "1.5")}, names={"was": ("a b",)})
    update = refill_rows(held, TargetColumns(seq=20, refill=refill), Mode.CURRENT)
    assert update is not None and set(update.values) == {"n", OVERFLOW, PENDING}
    query = updated_rows("`shop`.`t`", held, DIALECT.update(update))
    access: Any = _Access
    sql = making(access, held, " CLUSTER BY `id`", query, ["id", "a b"])
    assert "PRIMARY KEY (`id`, `a b`) NOT ENFORCED" in sql and "`_tl_stream_" in sql
    analyzer.check(sql)
    wrong = making(access, held, "", query.replace("`day`", "`n` AS `day`"), ["id"])
    with pytest.raises(Refused):
        analyzer.check(wrong)


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (TableLayout(("id",)), "of type int64: partitions are of date"),
        (TableLayout(("at",)), "of type timestamp: partitions are of date"),
        (TableLayout(("hour(day)",)), "hours are of timestamp, timestamp_ntz"),
        (TableLayout(("bucket(4, id)",)), "which no BigQuery table has: name one column of dates"),
        (TableLayout(("day", "month(at)")), "more than 1 field"),
        (TableLayout((), ("raw",)), "of type binary, by which no table is clustered"),
    ],
)
def test_a_layout_that_bigquery_lacks_is_named(layout: TableLayout, why: str) -> None:
    assert why in str(layout_problem(layout, DATED, Mode.CURRENT, "bigquery"))


def test_rows_are_selected(analyzer: Analyzer) -> None:
    live = [DIALECT.expression(one) for one in (soft_deletes.SoftDeletes().live(), *LACKING)]
    schema = types.StructType([types.StructField("a b", types.StringType())])
    for past in ("", " FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-02T03:04:05.000006+00:00'"):
        analyzer.check(selection("`shop`.`t`", schema, live, past))


def test_what_is_not_known_is_an_error() -> None:
    for text in ("rand()", "aggregate(a, 0, (x, y) -> x + y)", "a LIKE 'b'", "a[0]"):
        with pytest.raises(InvariantBroken):
            DIALECT.expression(text)


def test_literals_hold_every_character(analyzer: Analyzer) -> None:
    analyzer.check(
        f"SELECT {DIALECT.literal(chr(39) + chr(92) + chr(10) + chr(13) + chr(0) + 'é')}"
    )


@pytest.mark.parametrize(
    ("precision", "scale", "name"),
    [(38, 9, "NUMERIC"), (29, 0, "NUMERIC"), (38, 0, "BIGNUMERIC"), (38, 10, "BIGNUMERIC")],
)
def test_decimals_have_the_smallest_type(
    analyzer: Analyzer, precision: int, scale: int, name: str
) -> None:
    written_type = decimal_type(precision, scale)
    assert written_type.startswith(f"{name}(")
    assert bigquery_type(types.DecimalType(precision, scale)) == written_type
    analyzer.check(f"CREATE TABLE shop.made (n {written_type})")


def test_each_name_has_one_of_its_own() -> None:
    urls = ["odd~20name", "odd~2520name", "odd-name", "odd_name", "oddname"]
    names = {name_of(f"bigquery://my-project/shop/{one}").table for one in urls}
    assert len(names) == len(urls)
    assert all(name.replace("_", "").isalnum() for name in names)
    assert name_of("bigquery://my-project/erp/shop/t").sql == "`my-project`.`erp__shop`.`t`"


@pytest.mark.parametrize("name", ["a.b", "a`b", "_PARTITIONTIME", "x" * 301, "A B"])
def test_a_column_that_bigquery_refuses_is_named(name: str) -> None:
    columns = [types.StructField(one, types.StringType()) for one in ("a b", name)]
    with pytest.raises(Misconfigured):
        check_names(types.StructType(columns))


def test_a_key_of_which_nan_is_found_by_no_merge_is_refused() -> None:
    columns = types.StructType(
        [
            types.StructField("id", types.LongType()),
            types.StructField("weight", types.DoubleType()),
        ]
    )
    check_key(columns, ["id"])
    with pytest.raises(Misconfigured, match="'weight' has floating-point numbers"):
        check_key(columns, ["id", "weight"])
