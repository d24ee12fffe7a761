"""The modes in which a table is kept in the warehouse."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The content of a warehouse table in relation to its source table. All are made from the same
    parts."""

    CURRENT = "current"
    """The rows as they are now: a delete removes its row."""
    SOFT_DELETES = "soft_deletes"
    """As ``current``, but a deleted row stays with its last values, marked as deleted."""
    HISTORY = "history"
    """Every version of every row, each with the time and the sequences that it was valid for."""
    APPEND = "append"
    """The log of changes itself, one row each, in batches: no row is ever changed."""

    @property
    def keeps_history(self) -> bool:
        """Return whether a table keeps past rows, so that the newest full dump is not all that it
        needs."""
        return self is not Mode.CURRENT
