"""The toy format as the planner reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tests.conformance.toy_format.log import ToyLog
from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.manifest import digest
from tideline.warehouse.base import TableColumn


class ToyReader:
    """See `TableReader`."""

    readers_need_vectors = False
    reader_features: frozenset[str] = frozenset()
    once_clustered = False

    def __init__(self, log: ToyLog) -> None:
        self._log = log
        self._newest = log.newest()
        self.version = self._newest.version
        self.properties: Mapping[str, str] = self._newest.properties
        self.comment = self._newest.comments.get("", "")

    def columns(self) -> Sequence[TableColumn]:
        newest = self._newest
        return [
            TableColumn(
                name, json.loads(kind), name not in newest.firm, newest.comments.get(name, "")
            )
            for name, kind, _ in newest.columns
        ]

    def applied(self, app_id: str) -> int | None:
        return self._newest.applied.get(app_id)

    def commits(self, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        return self._log.commits(self.version, most)

    def commit_digest(self, version: int) -> str:
        raw = self._log.raw(version)
        return "" if raw is None else digest(raw)


def open_toy(url: str, options: Mapping[str, str]) -> ToyReader | None:
    reader = ToyReader(ToyLog(url))
    return None if reader.version < 0 else reader
