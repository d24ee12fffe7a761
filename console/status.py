"""``tideline status``: read the chain, the queue and the warehouse, and say how things are.

The source is not asked, so that this works while it is down.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import msgspec

from console.freshness import Chain as ChainEnd
from console.freshness import Watch
from console.status_document import Merged, Status, TableStage, TableStatus, make_status
from console.status_watch import objectives, watched
from console.tables import moment, print_table
from tideline.contract.errors import TidelineError
from tideline.contract.manifest import OpenState
from tideline.contract.request import Answer, TableProgress
from tideline.contract.schema import parse_table
from tideline.contract.timeliness import Objective
from tideline.control import Asker, WorkerStatus
from tideline.planner import applied_state, recent_runs
from tideline.planner.merges import Planning
from tideline.planner.verified import verified_through
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

ENDED_SHOWN = 10
"""Of the requests that ended; the document has all that the chain remembers."""


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
        _print(status)


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
        sound = not any(one.problem for one in progress.values())
        stops = Planning(settings, open_store(settings.store)).stops() if sound else {}
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
            stop=stops.get(name),
        )
        for name, one in progress.items()
    }, None


def _workers(settings: Settings) -> tuple[list[WorkerStatus] | None, str | None]:
    try:
        return Asker(settings.control, settings.pipeline).workers(), None
    except TidelineError as error:
        return None, str(error)


def _print(status: Status) -> None:
    chain = status.chain
    lag = None if chain is None else _seconds(chain.lag_s)
    print(f"pipeline {status.pipeline}: worker {status.worker.value}, captured {lag or '-'} ago")
    for error in (status.control_error, status.warehouse_error):
        if error is not None:
            print(f"not known: {error}")
    if status.workers:
        _print_workers(status)
    if chain is None:
        print("nothing is captured yet; run `tideline capture`")
        return
    print_table(
        ("manifest", "term", "last seq", "position", "source time", "writer"),
        [
            (
                chain.manifest_number,
                chain.term,
                chain.last_seq,
                chain.position,
                moment(chain.source_time_us),
                chain.writer,
            )
        ],
    )
    _print_tables(status.tables)
    _print_freshness(status)
    _print_verified(status)
    _print_dumps(status)


def _print_workers(status: Status) -> None:
    print_table(
        ("worker", "state", "host", "pid", "manifest", "heard of", "note"),
        (
            (
                one.writer,
                one.state,
                one.host,
                str(one.pid),
                one.manifest_number,
                moment(one.updated_at_us),
                one.note,
            )
            for one in status.workers
        ),
    )


def _print_tables(tables: tuple[TableStatus, ...]) -> None:
    print_table(
        ("table", "state", "captured seq", "merged seq", "complete through", "lag", "waiting"),
        (
            (
                one.table,
                one.state.value,
                one.captured.seq,
                None if one.merged is None else one.merged.seq,
                None if one.merged is None else moment(one.merged.source_time_us),
                _seconds(one.lag_s),
                "no" if one.up_to_date else "yes",
            )
            for one in tables
        ),
    )
    for one in tables:
        if one.state is not TableStage.LIVE and one.reason is not None:
            since = "" if one.since_seq is None else f" since seq {one.since_seq}"
            hint = "" if one.hint is None else f"; {one.hint}"
            print(f"{one.table} {one.state.value}{since}: {one.reason}{hint}")
        if one.mode is not None and one.mode_wanted is not None:
            print(
                f"{one.table} is kept as {one.mode.value}, the settings say"
                f" {one.mode_wanted.value}: `tideline rebuild {one.table}` switches it"
            )


def _print_freshness(status: Status) -> None:
    for one in status.tables:
        if one.late is not None:
            hint = "" if one.late.hint is None else f"; {one.late.hint}"
            print(f"{one.table} is late by {one.late.stage.value}: {one.late.reason}{hint}")
    for whose, kept in (("all tables", status.slo), *((t.table, t.slo) for t in status.tables)):
        if kept is None or kept.percent is None or (whose != "all tables" and not kept.late):
            continue
        print(
            f"{whose}: {kept.percent:g} % of {kept.changes:,} changes within {kept.within_s:g} s"
            f" since {moment(kept.since_us)} (objective {kept.objective_percent:g} %,"
            f" budget burn {kept.burn:g}×, slowest {kept.slowest_s:.0f} s)"
        )


def _print_verified(status: Status) -> None:
    for one in status.tables:
        found = one.verified
        if found is None:
            continue
        at = f"seq {found.seq}"
        if found.source_time_us is not None:
            at += f" (source time {moment(found.source_time_us)})"
        if found.invalid is None:
            print(f"{one.table} verified through {at}")
        else:
            print(f"{one.table} was verified at {at}; that holds no more: {found.invalid}")


def _print_dumps(status: Status) -> None:
    if status.paused:
        print("all dumps are paused: `tideline resume --all` goes on with them")
    if status.dumps:
        print_table(
            (
                "request",
                "table",
                "state",
                "chunk",
                "of about",
                "rows",
                "of about",
                "a second",
                "left",
                "held up by",
            ),
            (
                (answer.request_id, *_progress(table))
                for answer in status.dumps
                for table in answer.tables
            ),
        )
    if status.ended:
        print_table(
            ("ended lately", "state", "tables", "rows", "manifest", "why"),
            (_end(answer) for answer in status.ended[-ENDED_SHOWN:]),
        )


def _progress(table: TableProgress) -> tuple[object, ...]:
    return (
        table.table,
        table.state.value,
        table.chunks,
        table.chunks_estimate,
        table.rows,
        table.rows_estimate,
        table.rows_per_s,
        _span(table.remaining_s),
        table.error or table.waiting,
    )


def _end(answer: Answer) -> tuple[object, ...]:
    reasons = [reason for reason in (answer.error, answer.hint) if reason is not None]
    return (
        answer.request_id,
        answer.state.value,
        len(answer.tables),
        sum(table.rows for table in answer.tables),
        answer.manifest_number,
        "; ".join(reasons) or None,
    )


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else str(timedelta(seconds=round(seconds)))


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} s"
