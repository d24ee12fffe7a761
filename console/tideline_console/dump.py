"""``tideline dump``: send a request, and with ``--wait`` follow it to its end.

The queue's clients may write answers, so an end that the queue reports is checked in the chain,
and rejected where that has no such end (`tideline.control.exchange`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from tideline.contract.errors import Unavailable
from tideline.contract.printable import printable
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    TableProgress,
)
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import DUMP_WAITS
from tideline.control.record import Record
from tideline.settings import Settings
from tideline_console.output import say

EXIT_FAILED = 1


def run(settings: Settings, request: DumpRequest, *, wait: bool) -> int:
    """Send the request and print its id; returns the exit code: 1 when it failed or was refused."""
    with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
        client = RequestClient(control_client, request, Record(settings))
        client.send()
        say(f"request {request.request_id}")
        warn_if_none_runs(control_client, say)
        return _finish(watch(client), request) if wait else 0


def warn_if_none_runs(control_client: ControlClient, report: Callable[[str], None]) -> None:
    """Warn the sender of a request that no worker runs. The request stays sent, even if the queue
    has become unavailable since."""
    with suppress(Unavailable):
        if not control_client.workers():
            report("no worker is running now; the request waits for one")


def watch(client: RequestClient, *, quiet: bool = False) -> Answer:
    """Follow a sent request, with a progress bar per table on a terminal, elsewhere with a line
    per table and state; ``quiet``: without output. Raises Unavailable when neither Redis nor the
    chain knew of it for as long as `DUMP_WAITS` allow."""
    if quiet:
        return _followed(client, lambda answer: None)
    if not sys.stdout.isatty():
        return _followed(client, Lines().show)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    ) as progress:
        return _followed(client, _Bars(progress).show)


def _followed(client: RequestClient, show: Callable[[Answer], None]) -> Answer:
    ended = client.follow(DUMP_WAITS, show)
    if ended.final is not None:
        return ended.final
    raise ended.unanswered(DUMP_WAITS.timeout_s)


class Lines:
    """A line for each state that a table of an answer reaches."""

    def __init__(self) -> None:
        self._states: dict[str, RequestState] = {}

    def show(self, answer: Answer) -> None:
        for table in answer.tables:
            if self._states.get(table.table) is not table.state:
                self._states[table.table] = table.state
                say(f"{table.table}: {_note(table)}")


class _Bars:
    """One progress bar per table of an answer."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, answer: Answer) -> None:
        for table in answer.tables:
            task = self._tasks.get(table.table)
            if task is None:
                task = self._progress.add_task(printable(table.table), total=None, note="")
                self._tasks[table.table] = task
            done = table.state is RequestState.DONE
            total = table.chunks if done else table.chunks_estimate
            self._progress.update(
                task, completed=table.chunks, total=total, note=printable(_note(table))
            )


def _note(table: TableProgress) -> str:
    text = f"{table.state.value}, {table.rows:,}"
    if table.rows_estimate is not None and not table.state.final:
        text += f" of about {max(table.rows, table.rows_estimate):,}"
    text += " rows"
    if table.rows_per_s is not None and not table.state.final:
        text += f", {table.rows_per_s:,.0f} a second"
    if table.remaining_s is not None:
        text += f", {timedelta(seconds=round(table.remaining_s))} left"
    held_up = table.error or table.waiting
    return text if held_up is None else f"{text}: {held_up}"


def _finish(answer: Answer, request: DumpRequest) -> int:
    rows = sum(table.rows for table in answer.tables)
    if answer.state is RequestState.DONE:
        say(f"done: {len(answer.tables)} tables, {rows} rows, manifest {answer.manifest_number}")
        if request.key_range is not None and not rows:
            say("no row lies in that range: see whether its ends are the wrong way round")
        return 0
    say(
        f"tideline: the request is {answer.state.value}: {answer.error or 'see its tables'}",
        error=True,
    )
    for table in answer.tables:
        if table.error is not None:
            say(f"  {table.table}: {table.error}", error=True)
    if answer.hint is not None:
        say(f"  hint: {answer.hint}", error=True)
    return EXIT_FAILED
