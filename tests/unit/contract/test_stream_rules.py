"""The tables that a stream can write, and the layout that says it."""

from __future__ import annotations

import pytest

from tests.fixtures.parts import schema_of
from tideline.contract.layout_rules import format_problem, layout_problem
from tideline.contract.modes import Mode
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.contract.target_url import TableFormatName
from tideline.settings.tables import TableSettings, check_layouts

STREAMED = TableLayout(streamed=True)


def test_a_table_with_a_key_in_the_mode_current() -> None:
    names = {f"k{at}": kind for at, kind in enumerate(["int64", "string", "date", "decimal(9,2)"])}
    schema = schema_of("public.t", {**names, "f": "float64"}, list(names))
    assert layout_problem(STREAMED, schema, Mode.CURRENT, "bigquery") is None
    clustered = TableLayout((), ("k0",), streamed=True)
    assert layout_problem(clustered, schema, Mode.CURRENT, "bigquery") is None


@pytest.mark.parametrize(
    ("columns", "key", "mode", "why"),
    [
        ({"id": "int64"}, ["id"], Mode.HISTORY, "not history"),
        ({"id": "int64"}, ["id"], Mode.APPEND, "not append"),
        ({"id": "int64"}, ["id"], Mode.SOFT_DELETES, "not soft_deletes"),
        ({"id": "int64"}, [], Mode.CURRENT, "needs a key"),
        ({"id": "binary"}, ["id"], Mode.CURRENT, "no key of binary"),
        ({"id": "float32"}, ["id"], Mode.CURRENT, "no key of float32"),
        ({f"k{at}": "int64" for at in range(17)}, [f"k{at}" for at in range(17)], Mode.CURRENT,
         "at most 16 columns, which has 17"),
        ({f"k{at}": "int64" for at in range(1_996)}, ["k0"], Mode.CURRENT, "at most 1995 columns"),
    ],
)  # fmt: skip
def test_what_no_stream_writes(
    columns: dict[str, str], key: list[str], mode: Mode, why: str
) -> None:
    schema = schema_of("public.t", columns, key)
    problem = layout_problem(STREAMED, schema, mode, "bigquery")
    assert problem is not None and why in problem
    assert problem.endswith('leave out writes = "stream"') or "key" in problem


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_other_formats_have_no_streams(table_format: TableFormatName) -> None:
    assert "for BigQuery tables" in str(format_problem(STREAMED, table_format))
    entries = {"*.*": TableSettings(writes="stream", format=table_format)}
    with pytest.raises(ValueError, match="for BigQuery tables"):
        check_layouts(entries, "bigquery")


def test_the_layout_says_it() -> None:
    assert STREAMED and str(STREAMED) == "written by streams"
    assert STREAMED != NO_LAYOUT
    assert TableLayout.of_properties(STREAMED.properties()) == STREAMED
    assert TableSettings(writes="stream").layout == STREAMED
    assert TableSettings().layout == NO_LAYOUT
    both = TableLayout((), ("a",), streamed=True)
    assert str(both) == "clustered by 'a' and written by streams"
    assert both.renamed({"a": "b"}) == TableLayout((), ("b",), streamed=True)
