"""What a catalog comparison makes of each kind of change."""

from __future__ import annotations

import dataclasses

import pytest

from tests.fixtures.core import FACTS, SCHEMA, TABLE, WIDER, facts_with
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.tables.drift import drift, republished

SCHEMAS = {SCHEMA.fingerprint: SCHEMA}
NARROWER = TableSchema(TABLE, SCHEMA.columns[:1], ("id",))
SWAPPED = TableSchema(TABLE, SCHEMA.columns[::-1], ("id",))
WIDENED = TableSchema(TABLE, (Column("id", "int64", "bigint", False), WIDER.columns[2]), ("id",))


def drifted(facts: TableFacts, *, truncated: bool = False) -> str | None:
    return drift(FACTS.catalog, facts, SCHEMAS, truncated=truncated)


def test_nothing_changed() -> None:
    assert drifted(FACTS) is None
    assert drifted(FACTS, truncated=True) is None


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (facts_with(oid=2, storage="99"), "re-created"),
        (facts_with(membership="2"), "not published"),
        (facts_with(storage="11"), "rewritten"),
        (facts_with(members="n+"), "partitions"),
        (facts_with(columns=("id", "w")), "replaced by one of the same name"),
        (facts_with(WIDER, columns=("id", "v", "big"), backfilled=("big",)), "with a default: big"),
        (facts_with(WIDER, columns=("id", "w", "big")), "columns were replaced"),
        (facts_with(SWAPPED, columns=("v", "id")), "changed their names among each other"),
        (facts_with(NARROWER, columns=("id",)), "columns changed: drop v"),
        (facts_with(WIDENED, columns=("id", "big")), "columns changed"),
    ],
)
def test_what_may_have_changed_rows_is_named(facts: TableFacts, word: str) -> None:
    assert word in str(drifted(facts))


def test_a_nullable_column_without_a_default_changes_no_row() -> None:
    assert drifted(facts_with(WIDER, columns=("id", "v", "big"))) is None


def test_a_default_of_a_column_that_is_not_new_changes_no_row() -> None:
    assert drifted(facts_with(WIDER, columns=("id", "v", "big"), backfilled=("v",))) is None


class TestTruncate:
    def test_it_explains_the_new_storage_of_a_table(self) -> None:
        assert drifted(facts_with(storage="11"), truncated=True) is None

    @pytest.mark.parametrize(
        "facts",
        [
            facts_with(oid=2, storage="11"),
            facts_with(membership="2"),
            facts_with(members="n+"),
            facts_with(columns=("id", "w"), storage="11"),
            facts_with(WIDER, columns=("id", "v", "big"), storage="11"),
        ],
        ids=["re-created", "publication", "partitions", "columns", "a volatile default"],
    )
    def test_it_explains_nothing_else(self, facts: TableFacts) -> None:
        assert drifted(facts, truncated=True) is not None


class TestLabels:
    BEFORE = facts_with(members="m+aaaaaa,bbbbbb")

    @pytest.mark.parametrize(
        ("members", "same"),
        [
            ("m+aaaaaa,bbbbbb,cccccc", True),
            ("m+bbbbbb,aaaaaa", True),
            ("m+aaaaaa,cccccc", False),
            ("m+", False),
        ],
        ids=["added", "ordered again", "renamed", "gone"],
    )
    def test_only_added_ones_change_no_row(self, members: str, same: bool) -> None:
        now = dataclasses.replace(self.BEFORE, members=members)
        found = drift(self.BEFORE.catalog, now, SCHEMAS, truncated=False)
        assert (found is None) is same

    def test_the_first_ones_change_no_row(self) -> None:
        assert drifted(facts_with(members="m+aaaaaa")) is None


def test_a_schema_that_is_not_known_any_more_counts_as_changed() -> None:
    found = drift(FACTS.catalog, facts_with(columns=("id", "w")), {}, truncated=False)
    assert found == "columns changed"


def test_republished() -> None:
    assert not republished(FACTS.catalog, FACTS)
    assert republished(FACTS.catalog, facts_with(membership="2"))
