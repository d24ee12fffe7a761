"""Finds the records that are removed by age: of merge runs and of maintenance, which are not used
any more, and of rebuilds that were killed and that no one has continued.

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
    """Yield every such record, and whether it may go; of rebuilds only those that may."""
    retention = settings.retention
    # The runs by which the objective is judged stay in any case.
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
