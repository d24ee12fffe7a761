"""What the commits of a table's log are taken to say, in whatever format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tideline.contract.external_commits import (
    SinceOurs,
    TableCommit,
    external_before,
    external_since,
    since_ours,
)
from tideline.contract.plan import CommitMetadata

APP = "shop/one/public.t/0"


def ours(version: int, *, read_version: int | None = None, numbered: bool = True) -> TableCommit:
    commit_metadata = CommitMetadata(
        APP, "shop", "one", "p", 0, version, version, read_version=read_version
    )
    return TableCommit(
        version, "MERGE", None, True, {APP: version} if numbered else {}, commit_metadata, 0
    )


def theirs(version: int, operation: str = "UPDATE", to: int | None = None) -> TableCommit:
    changes = operation not in ("OPTIMIZE", "SET TBLPROPERTIES")
    return TableCommit(version, operation, to, changes, {}, None, 0)


def since(*commits: TableCommit) -> SinceOurs:
    return since_ours(commits, APP, lambda version: ["id", "a" if version % 2 else "b"])


@pytest.mark.parametrize(
    ("commits", "external", "went_back"),
    [
        ([ours(2)], (), False),
        ([theirs(4), theirs(3, "OPTIMIZE"), ours(2), theirs(1)], ("version 4: UPDATE",), False),
        # What came while the run was under way, which knew version 1; its own commits aside.
        (
            [ours(5, read_version=1), theirs(4), ours(3, numbered=False), theirs(2), theirs(1)],
            ("version 4: UPDATE", "version 2: UPDATE"),
            False,
        ),
        # A run that took the columns' steps and was killed.
        (
            [ours(4, read_version=2, numbered=False), theirs(3), ours(2)],
            ("version 3: UPDATE",),
            False,
        ),
        ([theirs(4, "RESTORE", 3), theirs(3), ours(2)], ("4: RESTORE", "3: UPDATE"), False),
        ([theirs(4, "RESTORE", 1), ours(2)], ("version 4: RESTORE",), True),
        ([theirs(4, "RESTORE", None), ours(2)], ("version 4: RESTORE",), True),
        (
            [ours(5, read_version=3), theirs(4, "RESTORE", 1), ours(3)],
            ("version 4: RESTORE",),
            True,
        ),
        ([theirs(3, "RESTORE", 1), theirs(2)], ("3: RESTORE", "2: UPDATE"), True),
    ],
)
def test_what_others_did_since_our_last_commit_looked(
    commits: Sequence[TableCommit], external: Sequence[str], went_back: bool
) -> None:
    found = since(*commits)
    assert len(found.external) == len(external)
    assert all(
        one.endswith(reported) for one, reported in zip(found.external, external, strict=True)
    )
    assert found.went_back is went_back
    assert found.commit_metadata == next(
        (one.commit_metadata for one in commits if one.commit_metadata is not None), None
    )


def test_columns_that_came_back_are_those_that_our_commit_did_not_leave() -> None:
    assert since(theirs(3, "RESTORE", 1), ours(2)).came_back == ("a",)
    assert since(theirs(4, "RESTORE", 1), ours(2)).came_back == ()
    assert since(theirs(3, "RESTORE", 2), ours(2)).came_back == ()


def test_what_slips_in_before_a_commit_and_what_comes_behind_a_look() -> None:
    commits = [ours(6, read_version=2), theirs(5), theirs(4, "OPTIMIZE"), ours(3), theirs(2)]
    assert external_before(commits, APP) == ("version 5: UPDATE",)
    assert external_before([ours(6), theirs(5)], APP) == ()
    assert external_since(commits, 4, APP) == ("version 5: UPDATE",)
    assert external_since(commits, 5, APP) == ()


def test_a_change_that_a_later_run_knew_is_external_and_judged() -> None:
    """It has no version of its own, so that no metadata says whether it is."""
    change = TableCommit(4, "RENAME COLUMN", None, True, {}, None, 0)
    merge = ours(4, read_version=3)
    for judged, found in ((True, ()), (False, ("version 4: RENAME COLUMN",))):
        commits = [merge, replace(change, judged=judged), ours(3)]
        assert since(*commits).external == found
        assert external_before(commits, APP) == found
        assert external_since(commits, 3, APP) == ("version 4: RENAME COLUMN",)
