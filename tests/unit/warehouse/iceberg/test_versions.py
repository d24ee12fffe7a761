"""Versions that are dropped, and those that are kept: for readers, for the number that is applied,
and for other programs' branches."""

from __future__ import annotations

import json
from typing import Any

from tideline.contract.plan import CommitMetadata
from tideline.warehouse.iceberg.metadata import (
    APPLIED_KEY,
    COMMIT_KEY,
    NUMBERS_KEY,
    IcebergMetadata,
    format_numbers,
)
from tideline.warehouse.iceberg.versions import needed_since, surplus

HOUR_MS = 3_600_000
EVERY_MS = 300_000
"""Twelve commits an hour."""
APP = "p/one/public.t/0"
COMMIT = CommitMetadata(APP, "p", "one", "plan", 0, 1, 10).text()


class Table:
    """The metadata of a table, snapshot by snapshot; ids are 100 and up, from the first hour on."""

    def __init__(self) -> None:
        self.snapshots: list[dict[str, Any]] = []
        self.log: list[dict[str, int]] = []
        self.refs: dict[str, int] = {}
        self.at_ms = HOUR_MS
        self.count = 0
        self.now: int | None = None

    def commit(self, *, ours: bool = True) -> int:
        number = 100 + self.count
        self.count += 1
        summary: dict[str, str] = {"operation": "append"}
        if ours:
            text = format_numbers({APP: number})
            summary |= {COMMIT_KEY: COMMIT, NUMBERS_KEY: text, APPLIED_KEY: text}
        one = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": self.at_ms,
            "summary": summary,
        }
        self.snapshots.append(one if self.now is None else {**one, "parent-snapshot-id": self.now})
        self.log.append({"timestamp-ms": self.at_ms, "snapshot-id": number})
        self.now = number
        self.at_ms += EVERY_MS
        return number

    def roll_back(self, to: int) -> None:
        self.log.append({"timestamp-ms": self.at_ms, "snapshot-id": to})
        self.now = to

    def without(self, ids: list[int]) -> None:
        self.snapshots = [one for one in self.snapshots if one["snapshot-id"] not in ids]

    @property
    def metadata(self) -> IcebergMetadata:
        found = {
            "format-version": 3,
            "current-snapshot-id": self.now,
            "snapshots": self.snapshots,
            "snapshot-log": self.log,
            "refs": {name: {"snapshot-id": one} for name, one in self.refs.items()},
        }
        return IcebergMetadata(json.dumps(found))

    def ids(self) -> list[int]:
        return [one["snapshot-id"] for one in self.snapshots]


def made(count: int) -> Table:
    table = Table()
    for _ in range(count):
        table.commit()
    return table


def test_the_newest_and_the_last_of_each_hour_stay() -> None:
    table = made(60)
    table.without(surplus(table.metadata, 20))
    older, newest = table.ids()[:-20], table.ids()[-20:]
    assert newest == list(range(140, 160))
    # Four hours of which the last one's end is among the newest.
    assert older == [111, 123, 135, 139]


def test_it_stays_bounded_however_often_it_is_done() -> None:
    """And what is dropped is never the last of its hour but for a while."""
    table = made(1)
    for _ in range(400):
        table.commit()
        table.without(surplus(table.metadata, 24))
        hours = len(table.log) // 12 + 1
        assert len(table.ids()) <= 24 + 24 // 10 + hours + 1
    kept = table.ids()
    assert kept[-24:] == list(range(477, 501))
    assert {one for one in kept if one < 470} <= {*range(111, 501, 12), *range(466, 480)}
    assert set(range(111, 460, 12)) <= set(kept)


def test_nothing_is_dropped_below_the_limit_or_for_a_few() -> None:
    assert surplus(made(22).metadata, 20) == []
    assert surplus(made(23).metadata, 20) != []


def test_the_line_back_to_our_last_commit_stays_whole() -> None:
    """However much another program commits: what it has changed must be found."""
    table = made(30)
    for _ in range(100):
        table.commit(ours=False)
    assert surplus(table.metadata, 20) == [], "its newest commit does not say what is applied"
    table.commit()
    dropped = surplus(table.metadata, 20)
    assert dropped
    table.without(dropped)
    # Behind the newest twenty: each of the other's commits that stays leads to one of ours.
    for one in table.ids():
        at = next(s for s in table.snapshots if s["snapshot-id"] == one)
        while APPLIED_KEY not in at["summary"]:
            at = next(s for s in table.snapshots if s["snapshot-id"] == at["parent-snapshot-id"])


def test_what_is_applied_is_the_same_before_and_after() -> None:
    table = made(200)
    before = table.metadata.applied()
    table.without(surplus(table.metadata, 50))
    assert table.metadata.applied() == before == {APP: 299}


def test_branches_and_tags_and_what_a_rollback_left_stay() -> None:
    table = made(80)
    table.refs = {"audit": 115}
    table.roll_back(150)
    for _ in range(30):
        table.commit()
    dropped = surplus(table.metadata, 20)
    assert 115 not in dropped
    assert not set(range(151, 180)) & set(dropped), "they are in no line"
    assert 116 in dropped


def test_a_snapshot_is_needed_as_long_as_one_may_read_it() -> None:
    """However old it is: what counts is until when it was the present one."""
    table = made(1)
    table.at_ms += 200 * HOUR_MS
    table.commit()
    second = table.snapshots[-1]["timestamp-ms"]
    assert needed_since(table.metadata, second - 1) == HOUR_MS
    assert needed_since(table.metadata, second) == second
    assert needed_since(table.metadata, second + HOUR_MS) == second


def test_a_snapshot_that_a_rollback_went_back_to_is_needed() -> None:
    table = made(30)
    table.at_ms += 10 * HOUR_MS
    cutoff = table.at_ms - 5 * HOUR_MS
    table.roll_back(105)
    table.at_ms += HOUR_MS
    table.commit()
    assert needed_since(table.metadata, cutoff) == HOUR_MS + 5 * EVERY_MS
    assert needed_since(table.metadata, table.at_ms) == table.snapshots[-1]["timestamp-ms"]


def test_of_dropped_versions_the_one_before_stays_as_long_as_they_may_be_read() -> None:
    table = made(60)
    table.without(surplus(table.metadata, 20))
    table.log = table.log[-20:]
    # Version 120 was the present one for a while before this, and 123 follows it.
    cutoff = HOUR_MS + 20 * EVERY_MS + 1
    assert needed_since(table.metadata, cutoff) == HOUR_MS + 11 * EVERY_MS
