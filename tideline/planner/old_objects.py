"""Finds the verification parts, the records and the mergers' plans that are removed by age.

Of verification parts those that no open verification needs. One is open while its request has not
ended, or has ended lately without a plan of the comparison yet, or while that has no result. A
verification of a large table may be read for longer than parts are kept, and the target is to be
merged that far before it is planned. So age alone never removes a part that it needs.

Records are those of merge runs, of maintenance and of aggregates, and of rebuilds that were killed
and that no one has continued. Plans, receipts and verifications stay: they say what a table is made
of, and what was verified. But a merger makes a plan every few seconds for ever. No one asks for one
of these by its id, except for the receipt of a table's last commit, which says whether rows are
pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tideline.contract import layout
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenRequest, OpenState
from tideline.contract.verification import decode_verify_plan
from tideline.planner.consumers import known_consumers, left_behind
from tideline.settings import Settings
from tideline.store.chain import Chain
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
        layout.aggregates_prefix(settings.pipeline),
    ):
        for page in store.entries(prefix):
            for entry in page:
                yield entry, entry.modified < now - kept
    for entry in left_behind(settings, store, now - timedelta(days=retention.plans_days)):
        yield entry, True


def old_plans(
    settings: Settings,
    store: ObjectStore,
    end: tuple[Manifest, OpenState],
    now: datetime,
) -> Iterator[tuple[Entry, bool]]:
    """Yield the plans that mergers made by themselves, and their receipts, and whether each may go.

    ``end``: the chain's tail, and the open state there. Raises as consumers do.
    """
    pipeline = settings.pipeline
    before = now - timedelta(days=settings.retention.plans_days)
    needed: set[str] | None = None
    for prefix in (layout.plans_prefix(pipeline), layout.receipts_prefix(pipeline)):
        for page in store.entries(prefix):
            for entry in page:
                if not layout.is_mergers(entry.key):
                    continue
                old = entry.modified < before
                if old and needed is None:
                    consumers = known_consumers(settings, store)
                    last = {one for consumer in consumers for one in consumer.last_plans(*end)}
                    needed = {layout.plan_key(pipeline, one) for one in last}
                    needed |= {layout.receipt_key(pipeline, one) for one in last}
                yield entry, old and entry.key not in (needed or ())


def old_verification_parts(
    settings: Settings, store: ObjectStore, state: OpenState, now: datetime
) -> Iterator[tuple[Entry, bool]]:
    """Yield every verification part, and whether it may go. ``state`` is the newest open state."""
    retention = settings.retention
    before = now - timedelta(days=retention.parts_days)
    entries = [
        (entry, number)
        for page in store.entries(layout.verification_parts_prefix(settings.pipeline))
        for entry in page
        if (number := layout.parse_verification_part_key(entry.key)) is not None
    ]
    old = [number for entry, number in entries if entry.modified < before]
    since = now - timedelta(days=retention.plans_days)
    plans = _plans(settings, store, since) if old else _Plans()
    needed = list(_open(state))
    if old:
        needed += _ended(settings, store, state, plans, (min(old), since))
    for entry, number in entries:
        within = any(first < number <= last for first, last in needed)
        pinned = entry.key in plans.pinned
        yield entry, entry.modified < before and not within and not pinned


_Span = tuple[int, float]
"""A range of parts: behind the first manifest, and up to the second one."""


def _open(state: OpenState) -> Iterator[_Span]:
    """Yield the ranges where verifications are being read."""
    for item in state.requests:
        first = _began(item)
        if first is not None:
            yield first, float("inf")


def _ended(
    settings: Settings,
    store: ObjectStore,
    state: OpenState,
    plans: _Plans,
    since: tuple[int, datetime],
) -> Iterator[_Span]:
    """Yield the ranges of verifications that ended behind manifest ``since``, and not before the
    time in it, and of which there is no plan yet. An answer does not hold its request; the open
    state before it does."""
    chain = Chain(store, settings.pipeline)
    for answer in state.recent:
        number = answer.manifest_number
        if number is None or number <= since[0] or answer.request_id in plans.requests:
            continue
        end, entry = chain.read(number), chain.read(number - 1)
        at_us = None if end is None else end.manifest.written_at_us
        if entry is None or (at_us is not None and at_us < since[1].timestamp() * 1_000_000):
            continue
        for item in chain.open_state(entry).requests:
            first = _began(item)
            if item.request.request_id == answer.request_id and first is not None:
                yield first, number


def _began(item: OpenRequest) -> int | None:
    """Return the last manifest before the request, if it is to verify, began to be read."""
    numbers = [dump.first_manifest for dump in item.dumps if dump.first_manifest is not None]
    return min(numbers, default=None) if item.request.verifies else None


@dataclass(slots=True)
class _Plans:
    """The ``requests`` of which there are plans, and the keys that recent plans without a result
    name."""

    requests: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)


def _plans(settings: Settings, store: ObjectStore, since: datetime) -> _Plans:
    keys = {
        entry.key: entry
        for page in store.entries(layout.verifications_prefix(settings.pipeline))
        for entry in page
    }
    found = _Plans()
    for key, entry in keys.items():
        folder, _, name = key.rpartition("/")
        raw = store.get(key) if name == "plan.json" and entry.modified >= since else None
        if raw is None:
            continue
        plan = decode_verify_plan(raw, key)
        found.requests.add(plan.request_id)
        if f"{folder}/result.json" not in keys:
            found.pinned |= {c.key for t in plan.tables for c in t.chunks if c.key is not None}
    return found
