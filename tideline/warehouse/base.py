"""The reading side of a warehouse table: the interface of every table format for the planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.external_commits import COMMITS_MAX, TableCommit

ColumnType = str | Mapping[str, Any]
"""A column's type as Spark's JSON has it: ``"long"``, ``{"type": "array", …}``."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as readers of the table see it; ``comment`` is empty without one."""

    name: str
    type: ColumnType
    nullable: bool = True
    comment: str = ""


class TableReader(Protocol):
    """One version of a table: the newest one when it was opened.

    ``version`` is its number, ``properties`` and ``comment`` ("" without one) are the table's;
    ``readers_need_vectors``: whether a reader has to know deletion vectors; ``reader_features``:
    all that it has to know, of `tideline.contract.readers.Feature`. ``once_clustered``: it is or
    was clustered, so that it cannot be partitioned.
    Every call raises Unavailable where the table's log cannot be read.
    """

    @property
    def version(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def comment(self) -> str: ...

    @property
    def readers_need_vectors(self) -> bool: ...

    @property
    def reader_features(self) -> frozenset[str]: ...

    @property
    def once_clustered(self) -> bool: ...

    def columns(self) -> Sequence[TableColumn]:
        """Return the columns, in order."""
        ...

    def applied(self, app_id: str) -> int | None:
        """Return the manifest that the table has applied under ``app_id``."""
        ...

    def commits(self, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        """Yield the commits from the newest one back, ``most`` of them, as far as the log has them.

        Raises CorruptData for a damaged one.
        """
        ...

    def commit_digest(self, version: int) -> str:
        """Return the digest of a version's commit; "" where the log no longer has it, or not
        yet."""
        ...


def unreadable(url: str, error: Exception, log: str = "log") -> Unavailable:
    """Make the error for a table at ``url`` whose ``log`` is there and cannot be read.

    No text of a store's client is shown: it may hold a secret.
    """
    hint = f"check that the warehouse can be reached and that its {log} is complete"
    why = type(error).__name__
    if isinstance(error, TidelineError):
        why, hint = error.message, error.hint or hint
    return Unavailable(f"the log of the table at {url} cannot be read: {why}", hint=hint)
