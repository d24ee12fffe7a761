"""Makes the objects that the registry needs for PostgreSQL."""

from __future__ import annotations

from tideline.settings import Settings
from tideline_capture.points import OnPoint
from tideline_capture.sources.postgres.administration import PostgresAdministration
from tideline_capture.sources.postgres.source import PostgresSource


def source(settings: Settings, on_point: OnPoint) -> PostgresSource:
    """See `SourceFactory.source`."""
    return PostgresSource(settings, on_point=on_point)


def administration(settings: Settings) -> PostgresAdministration:
    """See `SourceFactory.administration`."""
    return PostgresAdministration(settings)
