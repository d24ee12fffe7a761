"""A version of a Delta table, as its log tells it: looked up once, read as far as somebody asks.

What Delta must go through the whole log for (the list of files, and with it the numbers applied) is
asked for by `Version.snapshot` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from pyspark.sql import types

from tideline.contract.delta_log import Commit
from tideline.contract.modes import Mode

MODE = "tideline.mode"
BUILD = "tideline.build"
VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as its log describes it now; ``version`` is -1 where no table is."""

    version: int
    applied: Mapping[str, int]
    properties: Mapping[str, str]
    schema: types.StructType

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def mode(self) -> Mode:
        """How the table is kept; those that do not say were made before there were modes."""
        return Mode(self.properties.get(MODE, Mode.CURRENT.value))

    @property
    def build(self) -> int:
        """Which rebuild made the table; 0 for none."""
        return int(self.properties.get(BUILD, "0"))


class Version:
    """The version that was the newest one when it was looked up; ``number`` is -1 without a table.

    ``found`` is Delta's own snapshot; ``read`` reads commits from a version back.
    """

    def __init__(self, found: Any, read: Callable[[int], Iterator[Commit]]) -> None:
        self.number = int(found.version())
        self._found = found
        self._read: list[Commit] = []
        self._more = read(self.number)

    def stored_bytes(self) -> int:
        """What its files hold, 0 without a table. Delta's checksum of the version says so; where
        there is none, as other writers leave it, Delta goes through the log."""
        if self.number < 0:
            return 0
        checksum = self._found.checksumOpt()
        known = checksum.get().tableSizeBytes() if checksum.isDefined() else None
        return int(self._found.sizeInBytes() if known is None else known)

    @property
    def properties(self) -> dict[str, str]:
        """Those of a table that exists."""
        return dict(_entries(self._found.metadata().configuration()))

    def snapshot(self) -> Snapshot:
        """All that a merge begins from."""
        if self.number < 0:
            return Snapshot(-1, {}, {}, types.StructType([]))
        found = self._found
        return Snapshot(
            version=self.number,
            applied={app: int(version) for app, version in _entries(found.transactions())},
            properties=self.properties,
            schema=types.StructType.fromJson(json.loads(found.schema().json())),
        )

    def commits(self) -> Iterator[Commit]:
        """Its commits, newest first, as far as the log has them; each is read once."""
        at = 0
        while True:
            if at == len(self._read):
                older = next(self._more, None)
                if older is None:
                    return
                self._read.append(older)
            yield self._read[at]
            at += 1

    def commits_from(self, commit: Commit) -> Iterator[Commit]:
        """``commit`` and the older ones."""
        return dropwhile(lambda one: one.version > commit.version, self.commits())

    def committed_number(self, app_id: str) -> int | None:
        """The number in the newest commit that carries one of ``app_id``."""
        for commit in self.commits():
            if app_id in commit.numbers:
                return commit.numbers[app_id]
        return self.snapshot().applied.get(app_id)

    def commit_of(self, app_id: str, number: int) -> Commit | None:
        """The commit that set ``app_id`` to ``number``, if the log still has it."""
        for commit in self.commits():
            found = commit.numbers.get(app_id)
            if found is not None and found <= number:
                return commit if found == number else None
        return None


def _entries(scala_map: Any) -> Iterator[tuple[str, Any]]:
    entries = scala_map.iterator()
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), entry._2()
