"""``tideline status``: read the chain, the queue and the warehouse, and say how things are.

The source is not asked, so that this works while it is down.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from console.freshness import Chain as ChainEnd
from console.freshness import Watch
from console.status_document import Status
from console.status_making import Merged, make_status
from console.status_text import print_status
from console.status_watch import objectives, watched
from tideline.contract.errors import TidelineError
from tideline.contract.manifest import OpenState
from tideline.contract.schema import parse_table
from tideline.contract.timeliness import Objective
from tideline.control import Asker, WorkerStatus
from tideline.planner import applied_state, recent_runs
from tideline.planner.consumers import let_go
from tideline.planner.merges import Planning
from tideline.planner.verified import verified_through
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def run(settings: Settings, *, as_json: bool, as_metrics: bool = False) -> None:
    """Print the status, as text, as its document, or as metrics."""
    watch = read_watch(settings)
    status = read_status(settings, watch)
    if as_metrics:
        from console.status_metrics import metrics  # prometheus_client comes with capture only

        sys.stdout.write(metrics(status, watch))
    elif as_json:
        sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    else:
        print_status(status)


def read_watch(settings: Settings) -> Watch:
    """What is asked of freshness, and the merge runs in the window."""
    since_us = time.time_ns() // 1_000 - round(settings.slo.window_s * 1_000_000)
    runs, reached_us = recent_runs(settings, since_us, settings.slo.runs_max)

    def objective_of(table: str) -> Objective:
        own = settings.of_table(parse_table(table)).slo_within_s if table else None
        return objectives(settings.slo.percent, settings.slo.within_s if own is None else own)

    return Watch(objective_of, runs, reached_us)


def read_status(settings: Settings, watch: Watch | None = None) -> Status:
    """The status now. Raises what the store raises; queue and warehouse may be away."""
    watch = read_watch(settings) if watch is None else watch
    merged, warehouse_error = _merged(settings)
    workers, control_error = _workers(settings)
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    state = OpenState() if tail is None else chain.open_state(tail)
    merged = _over(settings, state, merged)
    takeover_after_s, now_us = settings.capture.takeover_after_s, time.time_ns() // 1_000
    status = make_status(
        settings.pipeline,
        None if tail is None else tail.manifest,
        state,
        workers=workers,
        merged=merged,
        takeover_after_s=takeover_after_s,
        now_us=now_us,
    )
    if tail is not None:
        end = ChainEnd(tail.manifest, workers, takeover_after_s, now_us)
        known = merged if warehouse_error is None else None
        status = watched(status, end, state, known, watch)
        names = [table.table for table in status.tables]
        proofs = verified_through(settings, tail.manifest, state, names)
        tables = tuple(
            msgspec.structs.replace(table, verified=proofs.get(table.table))
            for table in status.tables
        )
        status = msgspec.structs.replace(status, tables=tables)
    return msgspec.structs.replace(
        status, control_error=control_error, warehouse_error=warehouse_error
    )


def _merged(settings: Settings) -> tuple[dict[str, Merged], str | None]:
    try:
        progress = applied_state(settings)
        sound = [name for name, one in progress.items() if one.problem is None]
        stops = Planning(settings, open_store(settings.store)).stops(sound)
    except TidelineError as error:
        return {}, str(error)
    return {
        name: Merged(
            manifest_number=one.manifest,
            seq=one.seq,
            source_time_us=one.complete_through_us,
            foreign=one.unproven,
            problem=one.problem,
            pending=one.pending,
            mode=one.mode,
            mode_wanted=one.mode_wanted,
            deletion_vectors=one.deletion_vectors,
            deletion_vectors_wanted=one.deletion_vectors_wanted,
            target=one.target,
            stop=stops.get(name),
        )
        for name, one in progress.items()
    }, None


def _over(settings: Settings, state: OpenState, merged: Mapping[str, Merged]) -> dict[str, Merged]:
    """``merged``, knowing which targets were removed when there was nothing more to come."""
    gone = {
        name: table
        for name, table in state.tables.items()
        if table.gone and name in merged and not merged[name].manifest_number
    }
    removed = let_go(settings, open_store(settings.store), gone)
    return {name: replace(one, over=name in removed) for name, one in merged.items()}


def _workers(settings: Settings) -> tuple[list[WorkerStatus] | None, str | None]:
    try:
        return Asker(settings.control, settings.pipeline).workers(), None
    except TidelineError as error:
        return None, str(error)
