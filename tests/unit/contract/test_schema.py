"""Schemas: names, fingerprints, differences and what they do to rows that exist."""

from __future__ import annotations

import pytest

from tideline.contract.errors import CorruptData
from tideline.contract.schema import (
    ChangeKind,
    Column,
    TableId,
    TableSchema,
    Verdict,
    difference,
    is_ours,
    is_reserved,
    parse_table,
    verdict,
)

ID = Column("id", "int64", "bigint", nullable=False)
NAME = Column("name", "string", "text")
PRICE = Column("price", "decimal(10,2)", "numeric(10,2)")


def table(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema("public.orders", columns, key)


BASE = table(ID, NAME, PRICE)


@pytest.mark.parametrize(
    ("table_id", "text"),
    [
        (TableId("public", "orders"), "public.orders"),
        (TableId("public", "Orders"), "public.Orders"),
        (TableId("my schema", "orders"), '"my schema".orders'),
        (TableId("a.b", "c"), '"a.b".c'),
        (TableId('q"q', "t"), '"q""q".t'),
        (TableId("s", "*"), 's."*"'),
        (TableId("ünï", "日本"), "ünï.日本"),
        (TableId("a\nb", "\t"), '"a\nb"."\t"'),
    ],
)
def test_quoting(table_id: TableId, text: str) -> None:
    assert str(table_id) == text
    assert parse_table(text) == table_id


@pytest.mark.parametrize("text", ["", "orders", "a.b.c", ".b", "a.", '"a.b', '"".b', "a b.c"])
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(CorruptData, match="not a table name"):
        parse_table(text)


def test_a_quoted_plain_name_is_the_same_table() -> None:
    assert parse_table('"public"."orders"') == parse_table("public.orders")


def test_fingerprint_is_pinned() -> None:
    """It is in the keys of stored parts: the same schema must have it for ever."""
    assert BASE.fingerprint == "451255158cc3b727"


@pytest.mark.parametrize(
    "other",
    [
        table(ID, NAME),
        table(ID, PRICE, NAME),
        table(ID, NAME, Column("price", "decimal(10,3)", "numeric(10,3)")),
        table(ID, Column("name", "string", "varchar(20)"), PRICE),
        table(ID, Column("name", "string", "text", nullable=False), PRICE),
        table(ID, NAME, PRICE, key=("id", "name")),
        TableSchema("public.other", BASE.columns, BASE.key),
    ],
)
def test_fingerprints_differ(other: TableSchema) -> None:
    assert other.fingerprint != BASE.fingerprint


def test_columns_by_name() -> None:
    assert BASE.column("price") is PRICE
    assert BASE.column_names == ("id", "name", "price")
    with pytest.raises(CorruptData, match=r"'cost' .* public\.orders"):
        BASE.column("cost")


def altered(column: Column) -> TableSchema:
    return table(*(column if column.name == old.name else old for old in BASE.columns))


NOTE = Column("note", "string", "text")
REQUIRED = Column("note", "string", "text", nullable=False)


@pytest.mark.parametrize(
    ("new", "changes", "expected"),
    [
        (BASE, [], Verdict.NEUTRAL),
        (table(ID, NAME, PRICE, NOTE), ["add note text"], Verdict.NEUTRAL),
        (table(ID, NAME, PRICE, REQUIRED), ["add note text"], Verdict.DOUBTFUL),
        (table(ID, NAME), ["drop price numeric(10,2)"], Verdict.DOUBTFUL),
        (
            table(ID, Column("title", "string", "text"), PRICE),
            ["drop name text", "add title text"],
            Verdict.DOUBTFUL,
        ),
        (
            altered(Column("price", "decimal(12,2)", "numeric(12,2)")),
            ["widen price numeric(10,2) → numeric(12,2)"],
            Verdict.DOUBTFUL,
        ),
        (
            altered(Column("price", "float64", "double precision")),
            ["retype price numeric(10,2) → double precision"],
            Verdict.INCOMPATIBLE,
        ),
        (
            altered(Column("name", "string", "character varying(20)")),
            ["source_type name text → character varying(20)"],
            Verdict.DOUBTFUL,
        ),
        (
            altered(Column("name", "string", "text", nullable=False)),
            ["nullable name null → not null"],
            Verdict.NEUTRAL,
        ),
        (table(ID, NAME, PRICE, key=("name",)), ["key id → name"], Verdict.INCOMPATIBLE),
        (table(ID, PRICE, NAME), ["order"], Verdict.NEUTRAL),
    ],
)
def test_difference_and_verdict(new: TableSchema, changes: list[str], expected: Verdict) -> None:
    found = difference(BASE, new)
    assert [str(change) for change in found] == changes
    assert verdict(found, new) is expected


def test_an_added_column_does_not_change_the_order_of_the_others() -> None:
    found = difference(BASE, table(NOTE, ID, NAME, PRICE))
    assert [change.kind for change in found] == [ChangeKind.ADD]


def test_the_gravest_verdict_wins() -> None:
    new = table(Column("id", "int32", "integer", nullable=False), REQUIRED)
    assert verdict(difference(BASE, new), new) is Verdict.INCOMPATIBLE


@pytest.mark.parametrize(
    ("column", "ours", "reserved"),
    [
        ("_tl_seq", True, True),
        ("_TL_x", True, True),
        ("_metadata", False, True),
        ("_Metadata", False, True),
        ("metadata", False, False),
        ("a_tl_b", False, False),
    ],
)
def test_names_that_no_target_can_hold(column: str, ours: bool, reserved: bool) -> None:
    assert (is_ours(column), is_reserved(column)) == (ours, reserved)
