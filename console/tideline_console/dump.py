"""``tideline dump``: send a request, and with ``--wait`` follow it to its end.

Whoever may ask may write answers, so an end that the queue tells is looked up in the chain, and not
believed where that has no such end. A request without an answer is looked up there, too, and where
the chain does not know it repeated under its id, which joins what it began: so a Redis that was
flushed, is lost or stale, or a worker that was killed, costs time and nothing else.
"""

from __future__ import annotations

import os
import socket
import sys
import time as clock
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.printable import printable
from tideline.contract.request import (
    Answer,
    DumpRequest,
    KeyRange,
    RequestState,
    TableProgress,
    TimeRange,
    check_request,
)
from tideline.control import Asker
from tideline.keys import parse_csv
from tideline.settings import Settings
from tideline_console.keys import read_keys
from tideline_console.output import say
from tideline_console.recorded import Record

EVERY_TABLE = "*.*"
POLL_INTERVAL_S = 0.25
REPEAT_AFTER_S = 5.0
"""After so long without news the chain is asked; and the worker again, where that knows nothing."""
UNAVAILABLE_MAX_S = 60.0
"""How long ``--wait`` outlives a Redis that is away, when the chain knows nothing either."""
EXIT_FAILED = 1


def make_request(  # noqa: PLR0913 - the options of a command
    tables: Sequence[str],
    *,
    every: bool = False,
    keys: Path | None = None,
    key_range: tuple[str | None, str | None] = (None, None),
    time: tuple[str, str, str] | None = None,
    priority: int = 0,
    chunk_rows: int | None = None,
    delay_ms: int | None = None,
    request_id: str | None = None,
) -> DumpRequest:
    """The request that the command line asks for; Misconfigured when its options do not fit."""
    if every == bool(tables):
        raise Misconfigured("name tables, or --all, one of the two")
    request = DumpRequest(
        request_id=request_id or f"cli-{uuid.uuid4().hex}",
        tables=(EVERY_TABLE,) if every else tuple(tables),
        keys=None if keys is None else read_keys(keys),
        time=None if time is None else TimeRange(*time),
        key_range=None if key_range == (None, None) else KeyRange(*map(bound, key_range)),
        priority=priority,
        chunk_rows=chunk_rows,
        delay_ms=delay_ms,
        requested_by=asked_by(),
    )
    check_request(request)
    return request


def asked_by() -> str:
    """Who is at this terminal."""
    return f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"


def bound(text: str | None) -> tuple[str, ...] | None:
    """A key, or the first columns of one, as a line of CSV."""
    if text is None:
        return None
    keys = parse_csv(text)
    if len(keys) != 1:
        raise Misconfigured("a bound of keys is one line of CSV: a field per key column")
    return keys[0]


def run(settings: Settings, request: DumpRequest, *, wait: bool) -> int:
    """Send the request and print its id; returns the exit code: 1 when it failed or was refused."""
    asker = Asker(settings.control, settings.pipeline)
    asker.ask(request)
    say(f"request {request.request_id}")
    tell_if_nobody_works(asker, say)
    if not wait:
        return 0
    return _finish(watch(settings, asker, request), request)


def tell_if_nobody_works(asker: Asker, tell: Callable[[str], None]) -> None:
    """For who just sent a request. It is sent, also where the queue has gone away since."""
    with suppress(Unavailable):
        if not asker.workers():
            tell("no worker is running now; the request waits for one")


def watch(settings: Settings, asker: Asker, request: DumpRequest, *, quiet: bool = False) -> Answer:
    """`follow` with a progress bar per table on a terminal, elsewhere with a line per table and
    state; ``quiet``: without a word."""
    if quiet:
        return follow(asker, request, Record(settings), lambda answer: None)
    if not sys.stdout.isatty():
        return follow(asker, request, Record(settings), Lines().show)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    ) as progress:
        return follow(asker, request, Record(settings), _Bars(progress).show)


def follow(
    asker: Asker, request: DumpRequest, record: Record, show: Callable[[Answer], None]
) -> Answer:
    """Poll until the request has ended; the final answer. ``show`` is given each one that is new.

    One that was refused for want of room is asked for again until there is room. Raises Unavailable
    when neither Redis nor the chain knew of it for `UNAVAILABLE_MAX_S`.
    """
    seen: Answer | None = None
    news_at = looked_at = reached_at = asked_at = clock.monotonic()
    while True:
        now, away = clock.monotonic(), None
        try:
            answer = record.confirmed(asker.answer(request.request_id))
            reached_at = now
        except Unavailable as error:
            answer, away = None, error
        if (answer is None or now - news_at > REPEAT_AFTER_S) and now - looked_at > REPEAT_AFTER_S:
            looked_at = now
            answer = record.answer(request.request_id) or answer
            if answer is None and away is None:
                _ask_again(asker, request)
            elif answer is not None:
                reached_at = now
        if answer is not None and answer != seen:
            seen, news_at = answer, now
            show(answer)
            if answer.state.final and not answer.again:
                return answer
        if answer is not None and answer.again and now - asked_at > REPEAT_AFTER_S:
            asked_at = now
            _ask_again(asker, request)
        if away is not None and now - reached_at > UNAVAILABLE_MAX_S:
            raise away
        clock.sleep(POLL_INTERVAL_S)


def _ask_again(asker: Asker, request: DumpRequest) -> None:
    with suppress(Unavailable):  # It was there a moment ago; the next look tells.
        asker.ask(request)


class Lines:
    """A line for each state that a table of an answer comes to."""

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
