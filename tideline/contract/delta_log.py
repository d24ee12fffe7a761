"""What the commits of a Delta table's log say: which are ours, and what others did. Pure.

The one rule of what counts as a change by others, for Spark jobs and for whoever plans: a commit
that is not ours, and that adds or removes rows or has a name stand for another column's values.

A commit's stamp says which version its run had looked at. So whoever reads the log knows of every
commit by others whether a run of ours has judged it: all up to that version are, and those between
it and the commit itself are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.contract.errors import CorruptData
from tideline.contract.plan import Stamp

_OTHER_VALUES = frozenset({"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"})
"""Operations that touch no file, and by which rows have other values under a column's name all the
same. Two columns that were renamed into each other's names look as they did before."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table's log; ``changes_data``: it may have changed a value of a row;
    ``numbers``: the transaction versions it sets, by app id;
    ``at_us``: when its file was written, by the store's clock, µs since 1970 UTC."""

    version: int
    operation: str
    restored_to: int | None
    changes_data: bool
    numbers: Mapping[str, int]
    stamp: Stamp | None
    rows_written: int
    at_us: int = 0

    def __str__(self) -> str:
        return f"version {self.version}: {self.operation}"


@dataclass(frozen=True, slots=True)
class SinceOurs:
    """What the log holds that our last commit did not know of, newest first.

    ``foreign`` names data-changing commits by others; ``went_back`` says that one of them set the
    content back behind our last commit. ``stamp`` is that commit's, None when there is none.
    ``came_back``: columns that the table did not have then, and has because it was set back.
    """

    foreign: tuple[str, ...] = ()
    went_back: bool = False
    stamp: Stamp | None = None
    came_back: tuple[str, ...] = ()


def since_ours(
    commits: Iterable[Commit],
    app_id: str,
    columns_at: Callable[[int], Sequence[str]] = lambda version: (),
) -> SinceOurs:
    """What ``commits``, newest first, say since the last one that carries ``app_id``; and what
    others committed between the version that its run knew and itself. ``columns_at`` tells a
    version's columns, for ``came_back``."""
    foreign: list[str] = []
    restores: list[Commit] = []
    ours: Commit | None = None
    judged = -1
    for commit in commits:
        if ours is not None and commit.version <= judged:
            break
        if is_ours(commit, app_id):
            if ours is None:
                ours, judged = commit, _looked_at(commit)
            continue
        if commit.changes_data:
            foreign.append(str(commit))
        if commit.operation == "RESTORE":
            restores.append(commit)
    if ours is None:
        return SinceOurs(tuple(foreign), bool(restores), None)
    behind = [to for to in (one.restored_to for one in restores) if to is None or to < ours.version]
    came_back: tuple[str, ...] = ()
    if behind and restores[0].version > ours.version:
        before = columns_at(ours.version)
        came_back = tuple(n for n in columns_at(restores[0].version) if n not in before)
    return SinceOurs(tuple(foreign), bool(behind), ours.stamp, came_back)


def foreign_before(commits: Iterable[Commit], app_id: str) -> tuple[str, ...]:
    """What others changed between the first of ``commits``, ours, and the version that its run
    knew.

    Delta lets some writers in while a statement runs, and the statement sees what came before it
    began.
    """
    judged: int | None = None
    found: list[str] = []
    for commit in commits:
        judged = _looked_at(commit) if judged is None else judged
        if commit.version <= judged:
            break
        if commit.changes_data and not is_ours(commit, app_id):
            found.append(str(commit))
    return tuple(found)


def foreign_since(commits: Iterable[Commit], version: int, app_id: str) -> tuple[str, ...]:
    """Those above ``version`` that changed data and are not ours, of ``app_id``."""
    found = []
    for commit in commits:
        if commit.version <= version:
            break
        if commit.changes_data and not is_ours(commit, app_id):
            found.append(str(commit))
    return tuple(found)


def is_ours(commit: Commit, app_id: str) -> bool:
    stamped = commit.stamp is not None and commit.stamp.app_id == app_id
    return stamped or app_id in commit.numbers


_NOT_A_COMMIT = (
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError),
    CorruptData,
)
"""What lines lead to that are no JSON, or not of the shape that Delta's protocol has, or that hold
a damaged stamp."""


def parse_commit(version: int, raw: bytes, at_us: int = 0) -> Commit:
    """A commit from its file's lines; CorruptData, with the version, for lines that are none."""
    try:
        return _parsed(version, raw, at_us)
    except _NOT_A_COMMIT as error:
        raise CorruptData(
            f"version {version} in the log of a table cannot be read: {type(error).__name__}",
            hint=f"look at _delta_log/{version:020d}.json: whoever wrote to the table last has left"
            " it torn, or damaged",
        ) from error


def _parsed(version: int, raw: bytes, at_us: int) -> Commit:
    info: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    changes_data = False
    for line in raw.splitlines():
        action = json.loads(line)
        info = action.get("commitInfo", info)
        if "txn" in action:
            numbers[action["txn"]["appId"]] = int(action["txn"]["version"])
        for kind in ("add", "remove"):
            changes_data = changes_data or bool(action.get(kind, {}).get("dataChange", False))
    return Commit(
        version=version,
        operation=str(info.get("operation", "unknown")),
        restored_to=_restored_to(info.get("operationParameters", {})),
        changes_data=changes_data or info.get("operation") in _OTHER_VALUES,
        numbers=numbers,
        stamp=Stamp.parse(info.get("userMetadata")),
        rows_written=int(info.get("operationMetrics", {}).get("numOutputRows", 0)),
        at_us=at_us,
    )


def _looked_at(commit: Commit) -> int:
    """The version up to which the run of a commit of ours has judged what others did."""
    known = None if commit.stamp is None else commit.stamp.looked_at
    return commit.version - 1 if known is None else known


def _restored_to(parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None
