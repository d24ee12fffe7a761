"""Reads a BigQuery table's state through its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.settings import Warehouse
from tideline.warehouse.base import TableColumn
from tideline.warehouse.bigquery.client import BigQueryPlace, asking, open_client
from tideline.warehouse.bigquery.log import CommitLog, read_log
from tideline.warehouse.bigquery.names import name_of


def open_bigquery(url: str, place: Warehouse) -> BigQueryReader | None:
    """Return the newest version of the table at ``url``; None where no table of ours is.

    Raises Unavailable for one that cannot be read, Misconfigured without a project or Google's
    library.
    """
    client = open_client(BigQueryPlace.of(place))
    with asking(f"to read the log of {name_of(url)}"):
        log = read_log(client, name_of(url))
    return BigQueryReader(log) if log.exists else None


class BigQueryReader:
    """See `TableReader`. A table has no files, and every reader reads all of it."""

    readers_need_vectors = False
    reader_features: frozenset[str] = frozenset()
    once_clustered = False

    def __init__(self, log: CommitLog) -> None:
        assert log.table is not None
        self._log, self._entry = log, log.entry
        self.version = log.version
        self.properties: Mapping[str, str] = self._entry.properties
        self.comment = log.table.description or ""

    def columns(self) -> Sequence[TableColumn]:
        """See `TableReader`; a column that another program has made has BigQuery's own type."""
        known = self._entry.columns
        return [
            TableColumn(
                one.name,
                known.get(one.name, one.field_type.lower()),
                one.mode != "REQUIRED",
                one.description or "",
            )
            for one in self._log.fields
        ]

    def applied(self, app_id: str) -> int | None:
        """See `TableReader`."""
        return self._entry.applied.get(app_id)

    def commits(self, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        """See `TableReader`."""
        return self._log.table_commits(most=most)

    def commit_digest(self, version: int) -> str:
        """See `TableReader`."""
        return self._log.digest(version)
