"""``tideline status``: read the chain, the queue and the warehouse, and say how things are.

The source is not asked, so that this works while it is down.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import msgspec

from console.status_document import Merged, Status, TableStage, TableStatus, make_status
from console.tables import moment, print_table
from tideline.contract.errors import TidelineError
from tideline.contract.manifest import OpenState
from tideline.contract.request import Answer, TableProgress
from tideline.control import Asker, WorkerStatus
from tideline.planner import applied_state
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

ENDED_SHOWN = 10
"""Of the requests that ended; the document has all that the chain remembers."""


def run(settings: Settings, *, as_json: bool) -> None:
    """Print the status, as text or as its document."""
    status = read_status(settings)
    if as_json:
        sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    else:
        _print(status)


def read_status(settings: Settings) -> Status:
    """The status now. Raises what the store raises; queue and warehouse may be away."""
    merged, warehouse_error = _merged(settings)
    workers, control_error = _workers(settings)
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    status = make_status(
        settings.pipeline,
        None if tail is None else tail.manifest,
        OpenState() if tail is None else chain.open_state(tail),
        workers=workers,
        merged=merged,
        takeover_after_s=settings.capture.takeover_after_s,
        now_us=time.time_ns() // 1_000,
    )
    return msgspec.structs.replace(
        status, control_error=control_error, warehouse_error=warehouse_error
    )


def _merged(settings: Settings) -> tuple[dict[str, Merged], str | None]:
    try:
        progress = applied_state(settings)
    except TidelineError as error:
        return {}, str(error)
    return {
        name: Merged(
            manifest_number=one.manifest,
            seq=one.seq,
            source_time_us=one.complete_through_us,
            foreign=one.unproven,
            problem=one.problem,
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
