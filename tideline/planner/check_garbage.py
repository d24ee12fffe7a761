"""Which verification parts may go: those that are older than the retention, and are not needed by a
verification that is open: one whose request has not ended, or whose plan has no result yet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tideline.contract import layout
from tideline.contract.manifest import OpenState
from tideline.contract.verification import decode_verify_plan
from tideline.settings import Settings
from tideline.store.objects import Entry, ObjectStore


def old_checks(
    settings: Settings, store: ObjectStore, state: OpenState, now: datetime
) -> Iterator[tuple[Entry, bool]]:
    """Every verification part, and whether it may go. ``state`` is the newest open state."""
    retention = settings.retention
    before = now - timedelta(days=retention.parts_days)
    pinned = frozenset(_pinned(settings, store, now - timedelta(days=retention.plans_days)))
    begun = _first_open(state)
    for page in store.entries(layout.checks_prefix(settings.pipeline)):
        for entry in page:
            number = layout.parse_check_key(entry.key)
            if number is None:
                continue
            needed = entry.key in pinned or (begun is not None and number > begun)
            yield entry, entry.modified < before and not needed


def _first_open(state: OpenState) -> int | None:
    """The last manifest before any verification that is open began to be read; None without one."""
    begun = [
        dump.first_manifest
        for item in state.requests
        if item.request.verifies
        for dump in item.dumps
        if dump.first_manifest is not None
    ]
    return min(begun, default=None)


def _pinned(settings: Settings, store: ObjectStore, since: datetime) -> Iterator[str]:
    """What plans name that were made after ``since`` and have no result."""
    keys = {
        entry.key: entry
        for page in store.entries(layout.verifications_prefix(settings.pipeline))
        for entry in page
    }
    for key, entry in keys.items():
        folder, _, name = key.rpartition("/")
        if name != "plan.json" or entry.modified < since or f"{folder}/result.json" in keys:
            continue
        raw = store.get(key)
        if raw is not None:
            plan = decode_verify_plan(raw)
            yield from (c.key for table in plan.tables for c in table.checks if c.key is not None)
