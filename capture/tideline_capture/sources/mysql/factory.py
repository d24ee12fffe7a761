"""Makes the objects that the registry needs for MySQL and MariaDB."""

from __future__ import annotations

from tideline.settings import Settings
from tideline_capture.points import OnPoint
from tideline_capture.sources.mysql.administration import MysqlAdministration
from tideline_capture.sources.mysql.source import MysqlSource


def source(settings: Settings, on_point: OnPoint) -> MysqlSource:
    """See `SourceFactory.source`."""
    return MysqlSource(settings, on_point=on_point)


def administration(settings: Settings) -> MysqlAdministration:
    """See `SourceFactory.administration`."""
    return MysqlAdministration(settings)
