"""Makes the objects that the registry needs for PostgreSQL."""

from __future__ import annotations

from functools import partial

from tideline.programs.points import OnPoint
from tideline.settings import Settings
from tideline_capture.sources.administration import Administration
from tideline_capture.sources.postgres.assessment import assess
from tideline_capture.sources.postgres.removal import removals
from tideline_capture.sources.postgres.setup import setup_sql
from tideline_capture.sources.postgres.source import PostgresSource


def source(settings: Settings, on_point: OnPoint) -> PostgresSource:
    """See `SourceFactory.source`."""
    return PostgresSource(settings, on_point=on_point)


def administration(settings: Settings) -> Administration:
    """See `SourceFactory.administration`."""
    return Administration(
        setup_sql=partial(setup_sql, settings),
        assess=partial(assess, settings),
        removals=lambda incarnation: removals(settings),
    )
