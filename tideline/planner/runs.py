"""Puts merge runs on record when they have ended, and lists the recent ones by time, without
listing all."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt, encode_receipt, stored_documents
from tideline.contract.timeliness import MergeRun, decode_run, encode_run
from tideline.openlineage import AnyReceipt, run_with_lineage
from tideline.planner.registration import Registration, register
from tideline.settings import Settings
from tideline.store.objects import open_store

_READS_AT_ONCE = 8
_SHARES = (64, 8, 1)
"""The parts of the time asked for, counted from now, in which runs are looked for."""


def record_run(settings: Settings, run: MergeRun) -> None:
    """Put a run on record."""
    key = layout.run_key(settings.pipeline, run.ended_us, run.plan_id)
    open_store(settings.store).put(key, with_checksum(encode_run(run)))


def run_merge(
    settings: Settings,
    plan: Plan,
    execute: Callable[[], AnyReceipt],
    report: Callable[[str], None],
    *,
    stores: bool = True,
    see_to_entries: Callable[[], Registration] | None = None,
) -> AnyReceipt:
    """Have ``execute`` run ``plan``, and do what is due after every merge: events of lineage, the
    run on record, its receipt in the store, the tables in the catalog. Returns the receipt, None
    where the run left none.

    A separate Spark job puts run and receipt there itself: ``stores`` is False then. ``report``
    receives other problems, in words. ``see_to_entries`` sees to the catalog's entries; None: to
    those of all tables.
    """
    receipt = run_with_lineage(settings, plan, execute, report)
    if stores and receipt is not None:
        store_receipt(settings, receipt)
    if receipt is None:
        return None
    found = register(settings) if see_to_entries is None else see_to_entries()
    return _warned(settings, receipt, found)


def registered(settings: Settings, receipt: Receipt) -> Receipt:
    """Register the pipeline's tables in the catalog; return the receipt, which is in the store
    already, with what could not be registered among its warnings."""
    return _warned(settings, receipt, register(settings))


def _warned(settings: Settings, receipt: Receipt, found: Registration) -> Receipt:
    warned = found.added_to(receipt)
    if warned != receipt:
        key = layout.receipt_key(receipt.pipeline, receipt.plan_id)
        open_store(settings.store).put(key, with_checksum(encode_receipt(warned)))
    return warned


def store_receipt(settings: Settings, receipt: Receipt) -> None:
    """Put the receipt of a run that has just ended next to its plan, and the run on record."""
    store = open_store(settings.store)
    for key, document in stored_documents(receipt, time.time_ns() // 1_000):
        store.put(key, document)


def record_delayed(settings: Settings, plan: Plan) -> None:
    """Put on record the tables that are delayed, of a plan that is not run."""
    if plan.delayed:
        record_run(settings, MergeRun(plan.plan_id, time.time_ns() // 1_000, delayed=plan.delayed))


def recent_runs(settings: Settings, since_us: int, runs_max: int) -> tuple[list[MergeRun], int]:
    """Return the runs that ended at ``since_us`` or later, oldest first: the newest ``runs_max`` of
    them, and the time since when these are complete.

    One request per thousand runs and one per run. A merger leaves a run every few seconds, and keys
    can only be listed forwards: so first those of the latest parts of the time are.
    """
    store = open_store(settings.store)
    prefix = layout.runs_prefix(settings.pipeline)
    now_us = time.time_ns() // 1_000
    keys: list[str] = []
    for share in _SHARES:
        start_us = max(since_us, now_us - (now_us - since_us) // share)
        pages = store.entries(prefix, layout.runs_since(settings.pipeline, start_us))
        keys = sorted({entry.key for page in pages for entry in page})
        if len(keys) > runs_max:
            break
    kept = keys[-runs_max:]
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        found = zip(kept, pool.map(store.get, kept), strict=True)
        runs = [decode_run(raw, key) for key, raw in found if raw is not None]
    if len(kept) < len(keys) and runs:
        return runs, runs[0].ended_us
    return runs, since_us
