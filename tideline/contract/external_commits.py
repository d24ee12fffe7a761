"""The one rule of what an external commit is, for Spark jobs and the planner alike. Pure.

A commit of a warehouse table is external when it is not ours and may have changed a value of a row
(`is_external`). A table format states for each commit whether it may (`TableCommit.changes_data`):
one that adds or removes rows, and one after which a column's name stands for other values, such as
a rename. A commit that only moves rows between files, or sets a property, may not.

A commit's metadata says which version its run had read. So the log shows for every external commit
whether a run of ours has judged it: those up to that version are judged, those between it and the
commit itself are not. A format whose log has changes of columns without a version of their own says
so of each (`TableCommit.judged`).

Every commit of ours names in its `CommitMetadata` those that no dump has healed. A format removes
the log's old entries: of a table without merges for so long our newest commit is then gone. Its
properties stay: `UNHEALED_PROPERTY` is set while there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.plan import CommitMetadata

COMMITS_MAX = 1_000
"""Maximum number of commits that are searched for our last one."""
UNHEALED_PROPERTY = "tideline.unproven"
RESTORE = "RESTORE"
"""The `TableCommit.operation` by which a table's content is set back to an earlier version's."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table's log; ``changes_data``: it may have changed a value of a row;
    ``numbers``: the transaction versions it sets, by app id;
    ``at_us``: when its file was written, by the store's clock, µs since 1970 UTC; ``judged``: the
    run of a later commit of ours knew of it, whatever that commit's metadata says."""

    version: int
    operation: str
    restored_to: int | None
    changes_data: bool
    numbers: Mapping[str, int]
    commit_metadata: CommitMetadata | None
    rows_written: int
    at_us: int = 0
    judged: bool = False

    def __str__(self) -> str:
        return f"version {self.version}: {self.operation}"


@dataclass(frozen=True, slots=True)
class SinceOurs:
    """The commits in the log that our last commit did not know of, newest first.

    ``external`` names the external commits; ``went_back``: one of them set the content back behind
    our last commit. ``commit_metadata`` is that commit's, None when there is none. ``came_back``:
    columns that the table did not have then, and has because it was set back.
    """

    external: tuple[str, ...] = ()
    went_back: bool = False
    commit_metadata: CommitMetadata | None = None
    came_back: tuple[str, ...] = ()


def since_ours(
    commits: Iterable[TableCommit],
    app_id: str,
    columns_at: Callable[[int], Sequence[str]] = lambda version: (),
) -> SinceOurs:
    """Return what ``commits``, newest first, say since the last one that carries ``app_id``; and
    the external commits between the version that its run knew and itself. ``columns_at`` gives a
    version's columns, for ``came_back``."""
    external: list[str] = []
    restores: list[TableCommit] = []
    ours: TableCommit | None = None
    judged = -1
    for commit in commits:
        if ours is not None and commit.version <= judged:
            break
        if is_ours(commit, app_id):
            if ours is None:
                ours, judged = commit, _looked_at(commit)
            continue
        if is_external(commit, app_id) and not commit.judged:
            external.append(str(commit))
        if commit.operation == RESTORE:
            restores.append(commit)
    if ours is None:
        return SinceOurs(tuple(external), bool(restores), None)
    behind = [to for to in (one.restored_to for one in restores) if to is None or to < ours.version]
    came_back: tuple[str, ...] = ()
    if behind and restores[0].version > ours.version:
        before = columns_at(ours.version)
        came_back = tuple(n for n in columns_at(restores[0].version) if n not in before)
    return SinceOurs(tuple(external), bool(behind), ours.commit_metadata, came_back)


def external_before(commits: Iterable[TableCommit], app_id: str) -> tuple[str, ...]:
    """Name the external commits between the first of ``commits``, ours, and the version that its
    run knew.

    A format may let some writers in while a statement runs, and the statement sees what came before
    it began.
    """
    judged: int | None = None
    found: list[str] = []
    for commit in commits:
        judged = _looked_at(commit) if judged is None else judged
        if commit.version <= judged:
            break
        if is_external(commit, app_id) and not commit.judged:
            found.append(str(commit))
    return tuple(found)


def external_since(commits: Iterable[TableCommit], version: int, app_id: str) -> tuple[str, ...]:
    """Name the external commits above ``version``."""
    later = takewhile(lambda commit: commit.version > version, commits)
    return tuple(str(commit) for commit in later if is_external(commit, app_id))


def is_external(commit: TableCommit, *app_ids: str) -> bool:
    """Return whether the commit is not ours, of ``app_ids``, and may have changed a value of a
    row."""
    return commit.changes_data and not any(is_ours(commit, app_id) for app_id in app_ids)


def is_ours(commit: TableCommit, app_id: str) -> bool:
    """Return whether a run for ``app_id`` made the commit."""
    ours = commit.commit_metadata is not None and commit.commit_metadata.app_id == app_id
    return ours or app_id in commit.numbers


def _looked_at(commit: TableCommit) -> int:
    """Return the version up to which the run of a commit of ours has judged external commits."""
    known = None if commit.commit_metadata is None else commit.commit_metadata.read_version
    return commit.version - 1 if known is None else known


class UnhealedCommits(msgspec.Struct, frozen=True, omit_defaults=True):
    """``changes`` as in `CommitMetadata.unhealed`, found when everything up to ``seq`` was
    applied."""

    changes: tuple[str, ...] = ()
    seq: int = 0

    @classmethod
    def parse(cls, text: str | None) -> UnhealedCommits:
        """Parse a target's property; empty where it has none."""
        try:
            return cls() if text is None else _DECODER.decode(text)
        except msgspec.MsgspecError:
            raise CorruptData(
                "the warehouse's table does not say what others have changed in it",
                hint=f"someone changed its property {UNHEALED_PROPERTY}: remove it, dump the table"
                " and merge again",
            ) from None

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_DECODER = msgspec.json.Decoder(UnhealedCommits)
