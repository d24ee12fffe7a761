"""Decides after which of a merger's plans the catalog's entries are seen to, and of which tables.

To see to an entry reads its table's log and asks the catalog. A merge of rows alone changes no
entry, so that is not done after each of the thousands: only of tables that a plan makes, or gives
other columns or words, and at times of all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tideline.contract.plan import Plan
from tideline.planner.registration import Registration, register
from tideline.settings import Settings

ALL_S = 600.0
"""The time after which all entries are seen to again: someone may have dropped one."""
RETRY_S = 60.0
"""The same, after the catalog did not answer."""


class CatalogEntries:
    """The catalog's entries, as one session sees to them. Used by many threads."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._all_s = float("-inf")
        self._lock = threading.Lock()

    def after(self, plan: Plan) -> Registration:
        """See to the entries that are due after ``plan`` was run. Raises nothing."""
        with self._lock:
            now_s = self._clock()
            of_all = now_s >= self._all_s
            if of_all:  # At once, so that no other plan's thread does the same.
                self._all_s = now_s + ALL_S
        names = changed_by(plan)
        if not (of_all or names):
            return Registration()
        found = register(self._settings, None if of_all else names)
        if found.failed is not None:
            with self._lock:
                self._all_s = min(self._all_s, self._clock() + RETRY_S)
        return found


def changed_by(plan: Plan) -> list[str]:
    """Return the tables whose entries a run of the plan may change."""
    made = [one.table for one in plan.tables if one.create or one.changes]
    names = (*made, *(one.table for one in plan.descriptions), *(one.table for one in plan.swaps))
    return list(dict.fromkeys(names))
