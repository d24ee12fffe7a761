"""Patterns over schema.table: shell wildcards, quoting, system schemas, exclusion."""

from __future__ import annotations

import pytest

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns, matches
from tideline.contract.schema import TableId, parse_table


@pytest.mark.parametrize(
    ("table", "pattern", "expected"),
    [
        ("public.orders", "public.orders", True),
        ("public.orders", "public.order", False),
        ("public.orders", "public.*", True),
        ("public.orders", "*.orders", True),
        ("public.orders", "pub*.order?", True),
        ("public.orders", "public.[a-o]*", True),
        ("public.orders", "public.[!a-o]*", False),
        ("public.orders", "PUBLIC.orders", False),
        ("audit.orders", "public.*", False),
        ('public."a b"', 'public."a b"', True),
        ('public."a.b"', 'public."a.b"', True),
        ('public."a.b"', "public.*", True),
        ('public."*"', 'public."*"', True),
        ("public.orders", 'public."*"', False),
        ('"a""b".t', '"a""b".t', True),
        ('"a\nb".t', "*.t", True),
    ],
)
def test_pattern(table: str, pattern: str, expected: bool) -> None:
    assert matches(parse_table(table), [pattern]) is expected


@pytest.mark.parametrize("schema", ["pg_catalog", "information_schema", "pg_toast", "pg_temp_3"])
def test_star_schema_leaves_out_system_schemas(schema: str) -> None:
    table = TableId(schema, "t")
    assert not matches(table, ["*.*"])
    assert not matches(table, ["*.t"])
    assert matches(table, [f"{schema}.*"])


def test_a_schema_that_only_looks_like_a_system_one() -> None:
    assert matches(TableId("pg_catalogue", "t"), ["*.*"])


def test_exclude_wins() -> None:
    include, exclude = ["public.*"], ["public.tmp_*", '*."odd name"']
    assert matches(TableId("public", "orders"), include, exclude)
    assert not matches(TableId("public", "tmp_1"), include, exclude)
    assert not matches(TableId("public", "odd name"), include, exclude)


@pytest.mark.parametrize("name", ["*", "?", "[ab]", "a*", "plain", "Two words", 'q"q', "a.b"])
def test_a_tables_text_as_a_pattern_means_that_table_only(name: str) -> None:
    table = TableId("public", name)
    assert matches(table, [str(table)])
    assert not matches(TableId("public", "a"), [str(table)])


def test_nothing_matches_nothing() -> None:
    assert not matches(TableId("public", "orders"), [])


@pytest.mark.parametrize("pattern", ["orders", "a.b.c", "", ".", "a.", '"a.b', "a b.c", 'a."'])
def test_what_is_not_a_pattern(pattern: str) -> None:
    with pytest.raises(Misconfigured, match="not a pattern"):
        matches(TableId("a", "b"), [pattern])
    with pytest.raises(Misconfigured, match="not a pattern"):
        check_patterns(["a.b", pattern])
