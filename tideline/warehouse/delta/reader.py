"""Reads a Delta table's log through deltalake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.manifest import digest
from tideline.contract.readers import Feature
from tideline.warehouse.base import TableColumn, unreadable
from tideline.warehouse.delta.log import DELETION_VECTORS, LOG_FOLDER, commit_file, parse_commit


def open_delta(url: str, options: Mapping[str, str]) -> DeltaReader | None:
    """Return the newest version of the table at ``url``; None where no table is.

    Raises Unavailable for one that cannot be read.
    """
    with _reading(url):
        try:
            return DeltaReader(url, delta_table(url, options))
        except TableNotFoundError:
            return None


def delta_table(url: str, options: Mapping[str, str] | None = None) -> DeltaTable:
    """Return deltalake's own table at ``url``. Raises what deltalake raises."""
    parts = urlsplit(url)
    path = unquote(parts.path) if parts.scheme == "file" else url
    return DeltaTable(path, storage_options=dict(options) if options else None)


class DeltaReader:
    """See `TableReader`."""

    def __init__(self, url: str, table: DeltaTable) -> None:
        self._url = url
        self._table = table
        self.version = int(table.version())
        metadata = table.metadata()
        self.properties: Mapping[str, str] = metadata.configuration
        self.comment = str(metadata.description or "")

    @property
    def readers_need_vectors(self) -> bool:
        """See `TableReader`."""
        vectors = Feature.DELETION_VECTORS in self.reader_features
        return vectors or self.properties.get(DELETION_VECTORS) == "true"

    @property
    def reader_features(self) -> frozenset[str]:
        """See `TableReader`: reader version 2 is column mapping alone."""
        with _reading(self._url):
            protocol = self._table.protocol()
        found = frozenset(protocol.reader_features or ())
        return found | ({Feature.COLUMN_MAPPING} if protocol.min_reader_version == 2 else set())

    @property
    def once_clustered(self) -> bool:
        """See `TableReader`: a table keeps the feature, which cannot be dropped."""
        with _reading(self._url):
            return "clustering" in (self._table.protocol().writer_features or ())

    def columns(self) -> Sequence[TableColumn]:
        """See `TableReader`."""
        with _reading(self._url):
            fields = json.loads(self._table.schema().to_json())["fields"]
        return [
            TableColumn(
                name=one["name"],
                type=one["type"],
                nullable=bool(one["nullable"]),
                comment=str(one.get("metadata", {}).get("comment", "")),
            )
            for one in fields
        ]

    def applied(self, app_id: str) -> int | None:
        """See `TableReader`."""
        with _reading(self._url):
            number: int | None = self._table.transaction_version(app_id)
        return number

    def commits(self, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        """See `TableReader`."""
        for version in range(self.version, max(-1, self.version - most), -1):
            raw = self._file(version)
            if raw is None:
                return
            yield parse_commit(version, raw)

    def commit_digest(self, version: int) -> str:
        """See `TableReader`."""
        raw = self._file(version)
        return "" if raw is None else digest(raw)

    def _file(self, version: int) -> bytes | None:
        with _reading(self._url):
            files = DeltaFileSystemHandler.from_table(self._table._table)
            try:
                file = files.open_input_file(commit_file(version))
            except FileNotFoundError:
                return None
            return bytes(file.read(file.size()))


@contextmanager
def _reading(url: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise unreadable(url, error, LOG_FOLDER) from None
