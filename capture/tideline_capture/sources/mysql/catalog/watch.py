"""Rounds over the catalog, each between two of our marks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pymysql
import structlog

from tideline.contract.errors import InvariantBroken
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline.contract.schema import TableId
from tideline.settings import Source
from tideline_capture.core.events import CatalogRound, MarkKind, Snapshot, SourceLoad, TableFacts
from tideline_capture.sources.choices import Choices, no_choice
from tideline_capture.sources.mark_key import round_token
from tideline_capture.sources.mysql.catalog.tables import (
    CatalogTable,
    Flavour,
    list_tables,
    read_tables,
)
from tideline_capture.sources.mysql.connect import query_failed
from tideline_capture.sources.mysql.load import read_load
from tideline_capture.sources.mysql.marks import Marks
from tideline_capture.sources.nothing import nothing_chosen

EVERYTHING = Snapshot(0, 0, ())
"""What the log holds is visible in the log's order, so nothing of it is ever unseen."""

log = structlog.get_logger("tideline.mysql")


class Cascades:
    """Which captured tables change when another one does, without a word in the log; learnt from
    the catalog, asked by the log reader."""

    def __init__(self) -> None:
        self._children: Mapping[TableId, frozenset[str]] = {}

    def learn(self, found: Iterable[CatalogTable]) -> None:
        children: dict[TableId, set[str]] = {}
        for one in found:
            for parent in one.cascades_from:
                children.setdefault(parent, set()).add(one.facts.table)
        self._children = {parent: frozenset(names) for parent, names in children.items()}

    def children_of(self, parent: TableId) -> frozenset[str]:
        """The tables that changes of ``parent`` may be carried over to."""
        return self._children.get(parent, frozenset())


class CatalogWatch:
    """A `Watch`. ``connection`` is one in autocommit."""

    def __init__(
        self,
        connection: Any,
        marks: Marks,
        *,
        flavour: Flavour,
        settings: Source,
        ours: Collection[TableId],
        cascades: Cascades,
        choices: Choices = no_choice,
    ) -> None:
        self._connection = connection
        self._marks = marks
        self._flavour = flavour
        self._settings = settings
        self._ours = ours
        self._cascades = cascades
        self._choices = choices
        self._told_empty = False

    def round(self, register: Callable[[CatalogRound], None]) -> None:
        """See `Watch.round`."""
        token = round_token()
        self._marks.write(MarkKind.CATALOG_LOW, token)
        try:
            with self._connection.cursor() as cursor:
                self._marks.check(cursor)
                register(CatalogRound(token, tuple(self._look(cursor)), EVERYTHING))
        except pymysql.Error as error:
            raise query_failed(error) from None
        self._marks.write(MarkKind.HEARTBEAT, token)

    def snapshot(self) -> Snapshot:
        """See `Watch.snapshot`."""
        return EVERYTHING

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        """See `Watch.load`."""
        if not isinstance(position, MysqlPosition):
            raise InvariantBroken(f"{position} is no position of a binlog")
        try:
            return read_load(
                self._connection,
                flavour=self._flavour,
                position=position,
                source_time_us=source_time_us,
            )
        except pymysql.Error as error:
            raise query_failed(error) from None

    def close(self) -> None:
        self._marks.close()
        self._connection.close()

    def _look(self, cursor: Any) -> list[TableFacts]:
        settings = self._settings
        tables = list_tables(cursor, settings.tables, settings.exclude, ours=self._ours)
        found = read_tables(
            cursor,
            tables,
            flavour=self._flavour,
            cascades=settings.cascades,
            choices=self._choices,
        )
        if not found and not self._told_empty:
            log.warning(nothing_chosen().message, tables=settings.tables)
        self._told_empty = not found
        self._cascades.learn(found)
        return [one.facts for one in found]
