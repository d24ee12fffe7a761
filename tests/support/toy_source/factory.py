"""Makes what the registry asks of the toy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from tests.support.toy_source.database import Connection
from tests.support.toy_source.source import ToySource, path_of
from tideline.contract.patterns import matches
from tideline.contract.schema import parse_table
from tideline.settings import Settings
from tideline_capture.points import OnPoint
from tideline_capture.sources.administration import AssessedTable, Removal


def source(settings: Settings, on_point: OnPoint) -> ToySource:
    """See `SourceFactory.source`."""
    return ToySource(settings, on_point)


def administration(settings: Settings) -> ToyAdministration:
    """See `SourceFactory.administration`."""
    return ToyAdministration(settings)


class ToyAdministration:
    """An `Administration`."""

    def __init__(self, settings: Settings) -> None:
        self._source = settings.source

    def setup_sql(self) -> str:
        """See `Administration.setup_sql`."""
        return "-- nothing\n"

    def assess(self) -> Sequence[AssessedTable]:
        """See `Administration.assess`."""
        with closing(Connection(path_of(self._source))) as connection:
            schemas = [one.schema for one in connection.versions()]
        return [
            AssessedTable(parse_table(one.table), one)
            for one in schemas
            if matches(parse_table(one.table), self._source.tables, self._source.exclude)
        ]

    def removals(self, incarnation: str | None) -> Sequence[Removal]:
        """See `Administration.removals`."""
        return []
