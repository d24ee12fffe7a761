"""Prints the status for people."""

from __future__ import annotations

from datetime import timedelta

from tideline.contract.printable import command
from tideline.contract.request import Answer, TableProgress
from tideline.contract.timeliness import Lateness
from tideline.control.merger import MergerStatus
from tideline.planner.table_status import EarlierRows, TableStage, TableStatus
from tideline_console.output import say
from tideline_console.places import heading, place_of
from tideline_console.status.document import Status
from tideline_console.tables import (
    format_differs,
    layout_differs,
    moment,
    print_table,
    unread,
    vectors_differ,
)

ENDED_SHOWN = 10
"""The number of ended requests to print; the document has all that the chain remembers."""


def print_status(status: Status) -> None:
    chain = status.chain
    lag = None if chain is None else _seconds(chain.lag_s)
    say(f"pipeline {status.pipeline}: worker {status.worker.value}, captured {lag or '-'} ago")
    for error in (status.control_error, status.warehouse_error):
        if error is not None:
            say(f"not known: {error}")
    if status.workers:
        _print_workers(status)
        _print_restarts(status)
    if status.merger is not None:
        _print_merger(status.merger)
    _print_publishers(status)
    if chain is None:
        say("nothing is captured yet; run `tideline capture`")
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
    if chain.clocks_apart is not None:
        say(f"{chain.clocks_apart}: set both right; until then freshness is not known")
    _print_tables(status.tables)
    _print_beginnings(status)
    _print_freshness(status)
    _print_verified(status)
    _print_dumps(status)


def _print_merger(merger: MergerStatus) -> None:
    lived = f"since {moment(merger.started_at_us)}"
    if merger.state == "starting":
        say(f"merger on {merger.host} (process {merger.pid}) {lived}, starts its Spark session")
    else:
        merged = merger.merged_at_us
        last = "nothing merged yet" if merged is None else f"last merge {moment(merged)}"
        say(
            f"merger on {merger.host} (process {merger.pid}) {lived}, has looked up to manifest"
            f" {merger.manifest_number}: {merger.waiting} tables have changes to merge, {last}"
        )
    if merger.replaced:
        times = "once" if merger.replaced == 1 else f"{merger.replaced} times"
        say(f"its Spark session was replaced {times}, last because: {merger.reason}")
    for table, error in merger.failing.items():
        say(f"{table} is not merged: {error}")


def _print_publishers(status: Status) -> None:
    if status.publishers:
        print_table(
            ("publisher", "to", "state", "through seq", "waiting", "lag", "events", "per second"),
            (
                (
                    one.name,
                    one.output,
                    one.state.value,
                    one.seq,
                    one.waiting,
                    _seconds(one.lag_s),
                    one.events,
                    None if one.per_s is None else round(one.per_s, 1),
                )
                for one in status.publishers
            ),
        )
    for one in status.publishers:
        if one.dead_letters:
            say(
                f"{one.name}: {one.dead_letters} changes were refused and are in its dead letters"
                " (docs/PUBLISHING.md#webhooks)"
            )
        if one.reason is not None:
            say(f"the publisher {one.name} is {one.state.value}: {one.reason}")


def _print_workers(status: Status) -> None:
    print_table(
        ("worker", "state", "host", "pid", "manifest", "heard of", "note"),
        (
            (
                one.writer,
                one.state
                if one.silent_since_us is None
                else f"{one.state} since {moment(one.silent_since_us)}",
                one.host,
                str(one.pid),
                one.manifest_number,
                moment(one.updated_at_us),
                one.note,
            )
            for one in status.workers
        ),
    )


def _print_restarts(status: Status) -> None:
    for one in status.workers:
        if one.restart_for:
            say(
                f"{one.writer} goes by other settings than its file says: restart it, for"
                f" {', '.join(one.restart_for)}"
            )


def _print_tables(tables: tuple[TableStatus, ...]) -> None:
    places = {one.table: place_of(one.target) for one in tables if one.target is not None}
    for warehouse in sorted({one.warehouse for one in places.values()}):
        say(warehouse)
    columns = ("table", "state", "captured seq", "merged seq", "complete through", "lag", "waiting")
    print_table(
        (*columns, heading(places.values())),
        (
            (
                one.table,
                one.state.value,
                one.captured.seq,
                None if one.merged is None else one.merged.seq,
                moment(one.complete_through_us),
                _seconds(one.lag_s),
                "no" if one.up_to_date else "yes",
                places[one.table].name if one.table in places else None,
            )
            for one in tables
        ),
    )
    for one in tables:
        if one.state is not TableStage.ACTIVE and one.reason is not None:
            since = "" if one.since_seq is None else f" since seq {one.since_seq}"
            hint = "" if one.hint is None else f"; {one.hint}"
            say(f"{one.table} {one.state.value}{since}: {one.reason}{hint}")
        if one.mode is not None and one.mode_wanted is not None:
            say(
                f"{one.table} is kept as {one.mode.value}, the settings say"
                f" {one.mode_wanted.value}: {command('rebuild', one.table)} switches it"
            )
        if one.deletion_vectors_wanted is not None:
            say(vectors_differ(one.table, wanted=one.deletion_vectors_wanted))
        if one.layout is not None and one.layout_wanted is not None:
            say(layout_differs(one.table, one.layout, one.layout_wanted))
        if one.unread_by:
            say(unread(one.table, one.unread_by))
        if one.format is not None and one.format_wanted is not None:
            say(format_differs(one.table, one.format, one.format_wanted))
        if one.former is not None:
            say(
                f"{one.table} was at {one.former}, which is no longer fed:"
                f" {command('delete-former', one.table)} removes that"
            )


def _print_beginnings(status: Status) -> None:
    """Print where capture began for tables that no dump completes."""
    for one in status.tables:
        begun = one.captured_from
        if begun is None or begun.earlier_rows is EarlierRows.DUMPED:
            continue
        if one.state in (TableStage.DUMPING, TableStage.QUARANTINED):
            continue
        at = f"seq {begun.seq}"
        if begun.source_time_us is not None:
            at += f" (source time {moment(begun.source_time_us)})"
        earlier = f"rows from before are not: {command('dump', one.table)} brings them"
        if begun.earlier_rows is EarlierRows.NONE:
            earlier = "where it was created"
        say(f"{one.table} is captured from {at} on; {earlier}")


def _print_freshness(status: Status) -> None:
    for one in status.tables:
        if one.late is not None:
            say(f"{one.table} is late by {one.late.stage.value}: {_why_late(one, one.late)}")
    for whose, compliance in (
        ("all tables", status.slo),
        *((t.table, t.slo) for t in status.tables),
    ):
        if (
            compliance is None
            or compliance.percent is None
            or (whose != "all tables" and not compliance.late)
        ):
            continue
        say(
            f"{whose}: {compliance.percent:g} % of {compliance.changes:,} changes"
            f" within {compliance.within_s:g} s"
            f" since {moment(compliance.since_us)} (objective {compliance.objective_percent:g} %,"
            f" budget burn {compliance.burn:g}×, slowest {compliance.slowest_s:.0f} s)"
        )


def _why_late(table: TableStatus, late: Lateness) -> str:
    """Return the reason, unless it was just printed with the table's state."""
    if table.state is not TableStage.ACTIVE and table.reason and table.reason in late.reason:
        return f"the table is {table.state.value}: see above"
    return late.reason if late.hint is None else f"{late.reason}; {late.hint}"


def _print_verified(status: Status) -> None:
    for one in status.tables:
        found = one.verified
        if found is None:
            continue
        at = f"seq {found.seq}"
        if found.source_time_us is not None:
            at += f" (source time {moment(found.source_time_us)})"
        if found.invalid is None:
            say(f"{one.table} verified through {at}")
        else:
            say(f"{one.table} was verified at {at}; that holds no more: {found.invalid}")


def _print_dumps(status: Status) -> None:
    if status.paused:
        say("all dumps are paused: `tideline resume --all` goes on with them")
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
