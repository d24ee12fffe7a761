"""The merge runs on record, by time: what happened lately, without listing what happened ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.timeliness import MergeRun, decode_run, encode_run
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store

_READS_AT_ONCE = 8


def record_run(settings: Settings, run: MergeRun, store: ObjectStore | None = None) -> None:
    """Put a run on record; before its receipt, so that one that is killed in between is run again
    and repeats its figures."""
    store = open_store(settings.store) if store is None else store
    key = layout.run_key(settings.pipeline, run.ended_us, run.plan_id)
    store.put(key, with_checksum(encode_run(run)))


def recent_runs(
    settings: Settings, since_us: int, runs_max: int, store: ObjectStore | None = None
) -> tuple[list[MergeRun], int]:
    """The runs that ended at ``since_us`` or later, oldest first: the newest ``runs_max`` of them,
    and since when these are all there are.

    One request per thousand runs and one per run.
    """
    store = open_store(settings.store) if store is None else store
    prefix = layout.runs_prefix(settings.pipeline)
    pages = store.entries(prefix, layout.runs_since(settings.pipeline, since_us))
    keys = sorted({entry.key for page in pages for entry in page})
    kept = keys[-runs_max:]
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        found = zip(kept, pool.map(store.get, kept), strict=True)
        runs = [decode_run(raw, key) for key, raw in found if raw is not None]
    if len(kept) < len(keys) and runs:
        return runs, runs[0].ended_us
    return runs, since_us
