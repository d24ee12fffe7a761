"""``tideline status --metrics``: the tables' freshness in Prometheus' text format.

For a textfile collector or a push gateway, run at any interval: merges are short-lived jobs that
cannot be scraped. ``docs/METRICS.md`` lists the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from tideline.contract.timeliness import MergeRun, Stage
from tideline.control.merger import MergerStatus
from tideline.planner.publisher_status import PublisherState
from tideline_console.freshness import FreshnessWatch
from tideline_console.status.document import Status


def metrics(status: Status, watch: FreshnessWatch) -> str:
    """Return the metrics of ``status`` and of the window's merge runs; unknowns have no sample."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tideline_{name}", text, ["pipeline", *labels], registry=registry)

    through = gauge("table_complete_through_seconds", "Source's clock, as Unix time", "table")
    verified = gauge("table_verified_through_seconds", "The same of the last verification", "table")
    lag = gauge("table_lag_seconds", "How old the warehouse's table is", "table")
    late = gauge("table_late", "1: late, by the stage that it waits for", "table", "stage")
    pending = gauge("table_pending_rows", "Rows that lack values", "table")
    changes = gauge("slo_changes", "Changes that became queryable in the window", "table")
    missed = gauge("slo_late_changes", "Those that became so too late", "table")
    burn = gauge("slo_burn", "Share of late changes by the allowed one; 1: used up", "table")
    for one in status.tables:
        labels = (status.pipeline, one.table)
        if one.complete_through_us is not None:
            through.labels(*labels).set(one.complete_through_us / 1_000_000)
            lag.labels(*labels).set(one.lag_s or 0.0)
        holds = one.verified if one.verified and one.verified.invalid is None else None
        if holds is not None and holds.source_time_us is not None:
            verified.labels(*labels).set(holds.source_time_us / 1_000_000)
        if one.pending is not None:
            pending.labels(*labels).set(one.pending)
        for stage in Stage:
            waits = one.late is not None and one.late.stage is stage
            late.labels(*labels, stage.value).set(waits)
        if one.slo is not None:
            changes.labels(*labels).set(one.slo.changes)
            missed.labels(*labels).set(one.slo.late)
            burn.labels(*labels).set(one.slo.burn)
    merges = gauge("table_merges", "Merges in the window, by outcome", "table", "outcome")
    tries = gauge("table_merge_attempts", "Attempts that they took", "table")
    conflicts = gauge("table_merge_conflicts", "Those lost to another writer", "table")
    billed = gauge("table_merge_bytes_billed", "Bytes that BigQuery billed for them", "table")
    for (table, name), count in _counted(watch.runs).items():
        if name == "bytes_billed":
            billed.labels(status.pipeline, table).set(count)
        elif name == "attempts":
            tries.labels(status.pipeline, table).set(count)
        elif name == "conflicts":
            conflicts.labels(status.pipeline, table).set(count)
        else:
            merges.labels(status.pipeline, table, name).set(count)
    last = gauge("last_merge_seconds", "When the last merge run ended, Unix time")
    if watch.runs:
        last.labels(status.pipeline).set(watch.runs[-1].ended_us / 1_000_000)
    if status.merger is not None:
        _merger(gauge, status.merger)
    _publishers(gauge, status)
    return generate_latest(registry).decode()


def _publishers(gauge: Callable[..., Gauge], status: Status) -> None:
    up = gauge("publisher_up", "1 while a worker publishes", "publisher")
    events = gauge("publisher_events", "Events published in its life", "publisher")
    waiting = gauge("publisher_waiting_changes", "Changes behind its position", "publisher")
    lag = gauge("publisher_lag_seconds", "How old what is published is", "publisher")
    letters = gauge("publisher_dead_letters", "Events that were refused and put aside", "publisher")
    for one in status.publishers:
        labels = (status.pipeline, one.name)
        up.labels(*labels).set(one.state is PublisherState.PUBLISHING)
        events.labels(*labels).set(one.events)
        letters.labels(*labels).set(one.dead_letters)
        if one.waiting is not None:
            waiting.labels(*labels).set(one.waiting)
        if one.lag_s is not None:
            lag.labels(*labels).set(one.lag_s)


def _merger(gauge: Callable[[str, str], Gauge], merger: MergerStatus) -> None:
    for name, text, value in (
        ("merger_up", "1 while the merger has a Spark session", merger.state == "merging"),
        ("merger_waiting_tables", "Tables with changes to merge", merger.waiting),
        ("merger_failing_tables", "Tables whose merges fail", len(merger.failing)),
        ("merger_memory_bytes", "Resident memory of its Spark session", merger.memory_bytes),
        ("merger_sessions_replaced", "Spark sessions replaced since it started", merger.replaced),
    ):
        gauge(name, text).labels(merger.pipeline).set(value)


def _counted(runs: Iterable[MergeRun]) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for one in run.tables:
            counted[one.table, one.outcome] += 1
            counted[one.table, "attempts"] += one.attempts
            counted[one.table, "conflicts"] += one.conflicts
            if one.bytes_billed:
                counted[one.table, "bytes_billed"] += one.bytes_billed
    return counted
