"""Makes the objects that the registry needs for MySQL and MariaDB."""

from __future__ import annotations

from functools import partial

from tideline.programs.points import OnPoint
from tideline.settings import Settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.administration import Administration
from tideline_capture.sources.mysql.assessment import assess
from tideline_capture.sources.mysql.removal import removals
from tideline_capture.sources.mysql.setup import setup_sql
from tideline_capture.sources.mysql.source import MysqlSource


def source(settings: Settings, on_point: OnPoint) -> MysqlSource:
    """See `SourceFactory.source`."""
    return MysqlSource(settings, on_point=on_point)


def administration(settings: Settings) -> Administration:
    """See `SourceFactory.administration`."""
    return Administration(
        setup_sql=partial(setup_sql, settings),
        assess=partial(assess, settings),
        removals=partial(removals, settings),
        writes_watermarks=not settings.source.section(MysqlSection).read_only,
    )
