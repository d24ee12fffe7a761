"""Whether a table changed in a chunk's window without a word in the log.

A change of the catalog can change rows that no event reports (PostgreSQL's ALTER TABLE, which does
not stand in its log). What a chunk read is then newer than such a change, and the rows that the log
told of in its window may be older: the chunk, which leaves these rows out because the log knows
better, must be read again. That a change came before the low mark is known from an earlier look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideline_capture.core.events import TableFacts
from tideline_capture.core.window import Window

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker


class Catalogs:
    """What chunks saw of their tables last. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self._core = core
        self._seen: dict[str, str] = {}

    def of(self, table: str) -> frozenset[str]:
        """What the table was at the last looks, of a chunk and of a round, that lie before this
        place of the log."""
        state = self._core.tables.states.get(table)
        looks = (self._seen.get(table), state.catalog if state is not None else None)
        return frozenset(look for look in looks if look is not None)

    def differs(self, window: Window, facts: TableFacts) -> bool:
        """Whether rows of the window may be older than a change that the chunk saw."""
        self._seen[facts.table] = facts.catalog
        return bool(window.events) and facts.catalog not in window.catalogs
