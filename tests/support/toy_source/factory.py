"""Makes what the registry asks of the toy."""

from __future__ import annotations

from contextlib import closing

from tests.support.toy_source.source import ToySource, connect
from tideline.contract.patterns import matches
from tideline.contract.schema import parse_table
from tideline.programs.points import OnPoint
from tideline.settings import Settings, SourceSettings
from tideline_capture.sources.administration import Administration, AssessedTable


def source(settings: Settings, on_point: OnPoint) -> ToySource:
    """See `SourceFactory.source`."""
    return ToySource(settings, on_point)


def administration(settings: Settings) -> Administration:
    """See `SourceFactory.administration`."""
    return Administration(
        setup_sql=lambda: "-- nothing\n",
        assess=lambda: _assess(settings.source),
        removals=lambda incarnation: (),
    )


def _assess(source: SourceSettings) -> list[AssessedTable]:
    with closing(connect(source)) as connection:
        schemas = [one.schema for one in connection.versions()]
    return [
        AssessedTable(parse_table(one.table), one)
        for one in schemas
        if matches(parse_table(one.table), source.tables, source.exclude)
    ]
