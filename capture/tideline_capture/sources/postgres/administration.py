"""PostgreSQL, for those who set a pipeline up and take it down."""

from __future__ import annotations

from tideline.settings import Settings
from tideline_capture.sources.administration import AssessedTable, Removal
from tideline_capture.sources.postgres.assessment import assess
from tideline_capture.sources.postgres.removal import removals
from tideline_capture.sources.postgres.setup import setup_sql


class PostgresAdministration:
    """An `Administration`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def setup_sql(self) -> str:
        """See `Administration.setup_sql`."""
        return setup_sql(self._settings)

    def assess(self) -> list[AssessedTable]:
        """See `Administration.assess`."""
        return assess(self._settings)

    def removals(self, incarnation: str | None) -> list[Removal]:
        """See `Administration.removals`."""
        return removals(self._settings)
