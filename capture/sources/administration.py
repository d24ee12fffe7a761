"""What a source's owner is told and asked before, and after, it is captured."""

from __future__ import annotations

from typing import Protocol


class Administration(Protocol):
    """One database, as those who set a pipeline up and take it down see it. Making one asks the
    server nothing."""

    def setup_sql(self) -> str:
        """The statements that an owner runs once; no password in them, and no connection is needed.
        Raises Misconfigured for settings that name no user."""
