"""Rounds over the catalog, each between two of our watermarks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tideline.contract.errors import InvariantBroken
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline.contract.schema import TableId
from tideline.settings import SourceSettings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot, SourceLoad, TableFacts
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.mysql.catalog.tables import (
    Flavour,
    MysqlCatalogTable,
    list_tables,
    read_tables,
)
from tideline_capture.sources.mysql.connect import querying
from tideline_capture.sources.mysql.load import read_load
from tideline_capture.sources.mysql.watermark_writer import WatermarkWriter
from tideline_capture.sources.rounds import CatalogRounds

EVERYTHING = Snapshot(0, 0, ())
"""Every transaction in the log is visible in the log's order, so none is ever unseen."""


class Cascades:
    """The captured tables that change when another one does, without being logged; learnt from the
    catalog, asked by the log reader."""

    def __init__(self) -> None:
        self._children: Mapping[TableId, frozenset[str]] = {}

    def learn(self, found: Iterable[MysqlCatalogTable]) -> None:
        children: dict[TableId, set[str]] = {}
        for one in found:
            for parent in one.cascades_from:
                children.setdefault(parent, set()).add(one.facts.table)
        self._children = {parent: frozenset(names) for parent, names in children.items()}

    def children_of(self, parent: TableId) -> frozenset[str]:
        """Return the tables that changes of ``parent`` may be carried over to."""
        return self._children.get(parent, frozenset())


class MysqlWatch(CatalogRounds):
    """A `SourceWatch`. ``connection`` is one in autocommit."""

    def __init__(
        self,
        connection: Any,
        watermarks: WatermarkWriter,
        *,
        flavour: Flavour,
        settings: SourceSettings,
        ours: Collection[TableId],
        cascades: Cascades,
        key_configurations: KeyConfigurations = default_key,
    ) -> None:
        super().__init__(settings.tables)
        self._connection = connection
        self._watermarks = watermarks
        self._flavour = flavour
        self._settings = settings
        self._ours = ours
        self._cascades = cascades
        self._key_configurations = key_configurations

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """See `CatalogRounds.write_watermark`."""
        self._watermarks.write(kind, token)

    def look(self) -> tuple[Snapshot, list[TableFacts]]:
        """See `CatalogRounds.look`."""
        with querying(), self._connection.cursor() as cursor:
            self._watermarks.check(cursor)
            return EVERYTHING, self._look(cursor)

    def snapshot(self) -> Snapshot:
        """See `SourceWatch.snapshot`."""
        return EVERYTHING

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        """See `SourceWatch.load`."""
        if not isinstance(position, MysqlPosition):
            raise InvariantBroken(f"{position} is no position of a binlog")
        with querying():
            return read_load(
                self._connection,
                flavour=self._flavour,
                position=position,
                source_time_us=source_time_us,
            )

    def close(self) -> None:
        self._watermarks.close()
        self._connection.close()

    def _look(self, cursor: Any) -> list[TableFacts]:
        settings = self._settings
        tables = list_tables(cursor, settings.tables, settings.exclude, ours=self._ours)
        found = read_tables(
            cursor,
            tables,
            flavour=self._flavour,
            cascades=settings.section(MysqlSection).cascades,
            key_configurations=self._key_configurations,
        )
        self._cascades.learn(found)
        return [one.facts for one in found]
