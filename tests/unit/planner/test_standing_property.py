"""A table's property that repeats what our last commit says, for when the log has lost that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tideline.contract.external_commits import TableCommit
from tideline.contract.plan import STANDING_PROPERTY, CommitMetadata, app_id
from tideline_spark.maintain import WEEK_US, remember

HOUR_US = 3_600_000_000
NOW_US = 1_800_000_000_000_000
OLD_US, YOUNG_US = WEEK_US + HOUR_US, WEEK_US - HOUR_US


def commit_metadata(incarnation: str = "one", table: str = "public.${env:HOME}") -> CommitMetadata:
    app = app_id("shop", incarnation, table, 0)
    return CommitMetadata(app, "shop", incarnation, "p", 3, 4, 40, digest="d4")


def commit(version: int, age_us: int, reported: CommitMetadata | None) -> TableCommit:
    return TableCommit(
        version, "MERGE", None, reported is not None, {}, reported, 0, NOW_US - age_us
    )


@dataclass
class Table:
    """As `Target` and as a `TargetVersion` of it."""

    log: list[TableCommit]
    properties: dict[str, str] = field(default_factory=dict)
    written: int = 0

    def commits(self) -> Any:
        return reversed(self.log)

    def set_property(self, name: str, value: str) -> None:
        self.properties[name] = value
        self.written += 1


def repeated(table: Table) -> CommitMetadata | None:
    remember(cast(Any, table), cast(Any, table), "one", now_us=NOW_US)
    return CommitMetadata.parse(table.properties.get(STANDING_PROPERTY))


def test_what_an_old_commit_of_ours_says_is_repeated_once() -> None:
    table = Table(
        [commit(0, 3 * OLD_US, None), commit(1, OLD_US, commit_metadata()), commit(2, 0, None)]
    )
    assert repeated(table) == commit_metadata()
    assert repeated(table) == commit_metadata()
    assert table.written == 1


def test_what_the_property_said_before_gives_way() -> None:
    table = Table([commit(1, OLD_US, commit_metadata())], {STANDING_PROPERTY: '{"b":2}'})
    assert repeated(table) == commit_metadata()


@pytest.mark.parametrize(
    "log",
    [
        [commit(1, OLD_US, commit_metadata()), commit(2, YOUNG_US, commit_metadata())],
        [commit(1, OLD_US, commit_metadata("another"))],
        [commit(1, OLD_US, None)],
        [],
    ],
    ids=["young", "another incarnation's", "nobody's", "none"],
)
def test_nothing_else_is(log: list[TableCommit]) -> None:
    assert repeated(Table(log)) is None
