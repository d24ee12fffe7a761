"""``tideline status``: reads the chain, the queue and the warehouse, and reports their state.

The source is not queried, so that this works while it is down.
"""

from __future__ import annotations

import time
from contextlib import closing

from msgspec.structs import replace

from tideline.contract.errors import TidelineError
from tideline.contract.open_state import OpenState
from tideline.contract.schema import parse_table
from tideline.contract.timeliness import Objective
from tideline.control import ControlClient, Heard
from tideline.control.merger import MergerClient, MergerStatus
from tideline.planner import WarehouseTables, applied_state, recent_runs
from tideline.planner.consumers import removed_after_end
from tideline.planner.merges import Planning
from tideline.planner.publisher_status import publisher_statuses
from tideline.planner.table_status import TableStage
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_console.freshness import FreshnessWatch
from tideline_console.output import write_document, write_text
from tideline_console.status.document import STATUS_VERSION, Status, version_1
from tideline_console.status.text import print_status
from tideline_console.status.watch import SilenceLimits, StatusInputs, objectives, status_of


def run(
    settings: Settings,
    *,
    as_json: bool,
    as_metrics: bool = False,
    document_version: int = STATUS_VERSION,
) -> None:
    """Print the status, as text, as its document, or as metrics."""
    watch = read_watch(settings)
    status = read_status(settings, watch)
    if as_metrics:
        from tideline_console.status.metrics import (
            metrics,  # prometheus_client comes with capture only
        )

        write_text(metrics(status, watch))
    elif as_json:
        write_document(version_1(status) if document_version == 1 else status)
    else:
        print_status(status)


def read_watch(settings: Settings) -> FreshnessWatch:
    """Read the freshness objectives, and the merge runs in the window."""
    since_us = time.time_ns() // 1_000 - round(settings.slo.window_s * 1_000_000)
    runs, reached_us = recent_runs(settings, since_us, settings.slo.runs_max)

    def objective_of(table: str) -> Objective:
        own = settings.of_table(parse_table(table)).slo_within_s if table else None
        return objectives(settings.slo.percent, settings.slo.within_s if own is None else own)

    return FreshnessWatch(objective_of, runs, reached_us)


def read_status(settings: Settings, watch: FreshnessWatch | None = None) -> Status:
    """Read the status now. Raises what the store raises; queue and warehouse may be unavailable."""
    watch = read_watch(settings) if watch is None else watch
    merged, warehouse_error = _merged(settings)
    heard, control_error = _heard(settings)
    merger = None if heard is None else _merger(settings)
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    state = OpenState() if tail is None else chain.open_state(tail)
    read = StatusInputs(
        tail=None if tail is None else tail.manifest,
        state=state,
        heard=heard,
        merged=None if warehouse_error is not None else _with_removed(settings, state, merged),
        began_us=None if tail is None else _began_us(chain),
        now_us=time.time_ns() // 1_000,
        merger=merger is not None,
    )
    limits = SilenceLimits(settings.capture.heartbeat_s, settings.capture.takeover_after_s)
    return replace(
        status_of(settings.pipeline, read, watch, limits),
        merger=merger,
        publishers=tuple(publisher_statuses(settings, store, read.tail, read.now_us)),
        control_error=control_error,
        warehouse_error=warehouse_error,
    )


def _merged(settings: Settings) -> tuple[WarehouseTables, str | None]:
    try:
        merged = applied_state(settings)
        sound = [
            n for n, one in merged.tables.items() if one.state is not TableStage.TARGET_BLOCKED
        ]
        laid_out = [n for n in sound if merged.tables[n].layout]
        stops = Planning(settings, open_store(settings.store)).stops(sound, laid_out)
    except TidelineError as error:
        return WarehouseTables(), str(error)
    return merged.stopped(stops), None


def _with_removed(settings: Settings, state: OpenState, merged: WarehouseTables) -> WarehouseTables:
    """Mark in ``merged`` the targets that were removed when nothing more was to come."""
    gone = {
        name: table
        for name, table in state.tables.items()
        if table.removed and name in merged.tables and merged.tables[name].merged is None
    }
    return merged.with_removed(removed_after_end(settings, open_store(settings.store), gone))


def _began_us(chain: Chain) -> int | None:
    """Return the time at which the pipeline's first manifest was written."""
    first = chain.read(1)
    return None if first is None else first.manifest.written_at_us


def _heard(settings: Settings) -> tuple[list[Heard] | None, str | None]:
    try:
        return ControlClient(settings.control, settings.pipeline).heard(), None
    except TidelineError as error:
        return None, str(error)


def _merger(settings: Settings) -> MergerStatus | None:
    try:
        with closing(MergerClient(settings.control, settings.pipeline)) as client:
            return client.status()
    except TidelineError:  # Away since the workers' statuses were read.
        return None
