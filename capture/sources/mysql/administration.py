"""MySQL and MariaDB, for those who set a pipeline up and take it down."""

from __future__ import annotations

from capture.sources.administration import AssessedTable
from capture.sources.mysql.assessment import assess
from capture.sources.mysql.setup import setup_sql
from tideline.settings import Settings


class MysqlAdministration:
    """An `Administration`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def setup_sql(self) -> str:
        """See `Administration.setup_sql`."""
        return setup_sql(self._settings)

    def assess(self) -> list[AssessedTable]:
        """See `Administration.assess`."""
        return assess(self._settings)
