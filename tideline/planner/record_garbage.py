"""Which records may go that only time makes superfluous: of merge runs and of maintenance, from
which nothing is done any more, and of rebuilds that were killed and that nobody has gone on with.

Plans, receipts and verifications stay: they say what a table is made of, and what was proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tideline.contract import layout
from tideline.planner.consumers import left_behind
from tideline.settings import Settings
from tideline.store.objects import Entry, ObjectStore


def old_records(
    settings: Settings, store: ObjectStore, now: datetime
) -> Iterator[tuple[Entry, bool]]:
    """Every such record, and whether it may go; of rebuilds those only that may."""
    retention = settings.retention
    # What the objective is judged by stays in any case.
    kept = max(timedelta(days=retention.runs_days), timedelta(seconds=settings.slo.window_s))
    for prefix in (
        layout.runs_prefix(settings.pipeline),
        layout.maintenance_prefix(settings.pipeline),
    ):
        for page in store.entries(prefix):
            for entry in page:
                yield entry, entry.modified < now - kept
    for entry in left_behind(settings, store, now - timedelta(days=retention.plans_days)):
        yield entry, True
