"""Rounds over the catalog, each between two of our watermarks, and snapshots in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.contract.errors import Unavailable
from tideline.contract.position import SourcePosition
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot, SourceLoad, TableFacts
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.postgres.catalog.tables import list_tables, read_tables
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.connect import querying
from tideline_capture.sources.postgres.load import read_load
from tideline_capture.sources.postgres.publication import has_publication, publish, withdraw
from tideline_capture.sources.postgres.watermarks import take_snapshot, write_watermark
from tideline_capture.sources.rounds import CatalogRounds
from tideline_capture.sources.watermark_key import WatermarkKey


class PostgresWatch(CatalogRounds):
    """A `SourceWatch` on one SQL connection in autocommit."""

    def __init__(
        self,
        connection: Any,
        *,
        key: WatermarkKey,
        publication: str,
        slot: str,
        include: Sequence[str],
        exclude: Sequence[str],
        key_configurations: KeyConfigurations = default_key,
    ) -> None:
        super().__init__(include)
        self._connection = connection
        self._key = key
        self._publication = publication
        self._slot = slot
        self._exclude = exclude
        self._key_configurations = key_configurations
        self._types = TypeNames()

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """See `CatalogRounds.write_watermark`."""
        with querying(), self._connection.cursor() as cursor:
            write_watermark(cursor, self._key, kind, token)

    def look(self) -> tuple[Snapshot, list[TableFacts]]:
        """See `CatalogRounds.look`."""
        with querying(), self._connection.cursor() as cursor:
            snapshot = take_snapshot(cursor)
            return snapshot, self._look(cursor)

    def snapshot(self) -> Snapshot:
        """See `SourceWatch.snapshot`."""
        with querying(), self._connection.cursor() as cursor:
            return take_snapshot(cursor)

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        """See `SourceWatch.load`. The slot gives the part of the log that is needed."""
        with querying(), self._connection.cursor() as cursor:
            return read_load(cursor, self._slot)

    def close(self) -> None:
        self._connection.close()

    def _look(self, cursor: Any) -> list[TableFacts]:
        """Look at all tables that the patterns name. Those that can be captured are put into the
        publication, the others taken out.

        After a table was added all are read once more, so that the report is not older than its
        membership. Raises like `has_publication`.
        """
        if not has_publication(cursor, self._publication):
            raise Unavailable(f"publication {self._publication!r} was dropped: it is made again")
        found = self._read(cursor)
        changed = withdraw(cursor, self._publication, found)
        if not all(facts.membership or facts.problem for facts in found):
            changed |= publish(cursor, self._publication, found)
            found = self._read(cursor)
        return [changed.get(facts.table, facts) for facts in found]

    def _read(self, cursor: Any) -> list[TableFacts]:
        """Read everything as of one moment: else an ALTER in between looks like two, and the second
        has the table dumped once more."""
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            oids = list(list_tables(cursor, self._include, self._exclude))
            found = read_tables(
                cursor,
                oids,
                publication=self._publication,
                types=self._types,
                key_configurations=self._key_configurations,
            )
        finally:
            if not self._connection.closed:
                cursor.execute("ROLLBACK")
        return [table.facts for table in found]
