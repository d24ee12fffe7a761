"""Which versions of a member's table stand for a place of the chain."""

from __future__ import annotations

from typing import Any

from tideline.contract.external_commits import TableCommit
from tideline.contract.plan import CommitMetadata
from tideline.planner.aggregating import complete_versions

APP = "shop/one/public.t/0"


def commit(version: int, number: int | None = None, **more: Any) -> TableCommit:
    """Ours where it has a ``number``; by default whole, and one that changes rows."""
    through: int | None = more.pop("through", 1)
    changes: bool = more.pop("changes", True)
    app: str | None = more.pop("app", APP if number is not None else None)
    record = None
    if app is not None:
        record = CommitMetadata(app, "shop", "one", "p", 0, number or 0, 0, through)
    numbers = {} if number is None or app is None else {app: number}
    return TableCommit(version, "MERGE", None, changes, numbers, record, 0)


def found(*commits: TableCommit) -> list[tuple[int, int]]:
    return [(one.version, one.number) for one in complete_versions(commits, APP)]


def test_each_merge_newest_first() -> None:
    assert found(commit(5, 9), commit(4, 7)) == [(5, 9), (4, 7)]


def test_the_newest_version_with_a_merges_rows_stands_for_it() -> None:
    """Maintenance removes files that only older ones need."""
    rewritten = commit(6, changes=False)
    assert found(rewritten, commit(5, changes=False), commit(4, 7)) == [(6, 7)]


def test_versions_that_others_have_changed_stand_for_nothing() -> None:
    kept, theirs = commit(6, changes=False), commit(5)
    assert found(kept, theirs, commit(4, changes=False), commit(3, 7)) == [(4, 7)]


def test_half_of_a_merge_stands_for_nothing() -> None:
    """A commit of ours that moves no number: columns that were changed, keys that were mended."""
    steps = commit(6, app=APP, changes=False)
    assert found(steps, commit(5, 7)) == [(5, 7)]


def test_a_merge_before_the_dump_was_whole_stands_for_nothing() -> None:
    assert found(commit(5, 9), commit(4, 7, through=None)) == [(5, 9)]


def test_another_generations_merge_is_anothers() -> None:
    assert found(commit(5, 9, app="shop/one/public.t/1"), commit(4, 7)) == [(4, 7)]
