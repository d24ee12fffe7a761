"""The state of a target as jobs see it: its versions, commits' row counts and description."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import NamedTuple

import msgspec
from pyspark.sql import types

from tideline.contract.description import Described
from tideline.contract.external_commits import TableCommit
from tideline.contract.modes import Mode
from tideline.contract.target_properties import (
    build_of_properties,
    mode_of_properties,
)


class RowCounts(NamedTuple):
    """The row counts of a commit."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """A table as its log describes it now; ``version`` is -1 without a table. ``applied``: the
    applied manifest, by app id."""

    version: int
    applied: Mapping[str, int]
    properties: Mapping[str, str]
    schema: types.StructType

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def mode(self) -> Mode:
        """The table's mode."""
        return mode_of_properties(self.properties)

    @property
    def build(self) -> int:
        """The number of the rebuild that made the table; 0 for none."""
        return build_of_properties(self.properties)


class TargetVersion(ABC):
    """The version that was newest when it was looked up; ``number`` is -1 without a table.

    It is read on demand: `snapshot` may go through the whole log. ``read`` reads commits from a
    version back.
    """

    def __init__(self, number: int, read: Callable[[int], Iterator[TableCommit]]) -> None:
        self.number = number
        self._read: list[TableCommit] = []
        self._more = read(number)

    @abstractmethod
    def stored_bytes(self) -> int:
        """Return the size of its files in bytes, 0 without a table."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The properties of a table that exists."""

    @abstractmethod
    def snapshot(self) -> TargetSnapshot:
        """Return the full state that a merge begins from."""

    def commits(self) -> Iterator[TableCommit]:
        """Yield its commits, newest first, as far as the log has them; each is read once."""
        at = 0
        while True:
            if at == len(self._read):
                older = next(self._more, None)
                if older is None:
                    return
                self._read.append(older)
            yield self._read[at]
            at += 1

    def commits_from(self, commit: TableCommit) -> Iterator[TableCommit]:
        """Yield ``commit`` and the older ones."""
        return dropwhile(lambda one: one.version > commit.version, self.commits())

    def committed_number(self, app_id: str) -> int | None:
        """Return the number in the newest commit that carries one of ``app_id``."""
        for commit in self.commits():
            if app_id in commit.numbers:
                return commit.numbers[app_id]
        return self.snapshot().applied.get(app_id)

    def commit_of(self, app_id: str, number: int) -> TableCommit | None:
        """Return the commit that set ``app_id`` to ``number``, if the log still has it."""
        for commit in self.commits():
            found = commit.numbers.get(app_id)
            if found is not None and found <= number:
                return commit if found == number else None
        return None


@dataclass(frozen=True, slots=True)
class TableWords:
    """A table's description: comments by column (``""``: the table itself), the NOT NULL columns,
    and the source's share of both. ``columns`` are all columns of the table."""

    comments: dict[str, str]
    firm: frozenset[str]
    described: Described
    columns: frozenset[str] = field(default=frozenset(), compare=False)

    def holding(self, wanted: TableWords) -> TableWords:
        """Return the part of ``wanted`` whose columns exist here."""
        held = {n: text for n, text in wanted.comments.items() if not n or n in self.columns}
        return TableWords(held, wanted.firm & self.columns, wanted.described)


def undecided(described: Described) -> Described:
    """Return ``described`` so that the table will be described again in any case."""
    return msgspec.structs.replace(described, fingerprint="")
