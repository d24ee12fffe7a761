"""``tideline dump``: send a request, and with ``--wait`` follow it to its end.

A request without an answer is repeated under its id, which joins what it began: so a Redis that
was flushed, or a worker that was killed, costs time and nothing else.
"""

from __future__ import annotations

import os
import socket
import time as clock
import uuid
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from console.keys import read_keys
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    TableProgress,
    TimeRange,
    check_request,
)
from tideline.control import Asker
from tideline.settings import Settings

EVERY_TABLE = "*.*"
POLL_INTERVAL_S = 0.25
REPEAT_AFTER_S = 5.0
"""An asker without any answer for so long repeats its request."""
UNAVAILABLE_MAX_S = 60.0
"""How long ``--wait`` outlives a Redis that is away."""
EXIT_FAILED = 1


def make_request(
    tables: Sequence[str],
    *,
    every: bool = False,
    keys: Path | None = None,
    time: tuple[str, str, str] | None = None,
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
        chunk_rows=chunk_rows,
        delay_ms=delay_ms,
        requested_by=f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}",
    )
    check_request(request)
    return request


def run(settings: Settings, request: DumpRequest, *, wait: bool) -> int:
    """Send the request and print its id; returns the exit code: 1 when it failed or was refused."""
    asker = Asker(settings.control, settings.pipeline)
    asker.ask(request)
    print(f"request {request.request_id}", flush=True)
    if not asker.workers():
        print("no worker is running now; the request waits for one", flush=True)
    if not wait:
        return 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    ) as progress:
        answer = follow(asker, request, _Bars(progress))
    return _finish(answer)


def follow(asker: Asker, request: DumpRequest, bars: _Bars) -> Answer:
    """Poll until the request has ended; the final answer. Repeats the request when unanswered."""
    asked_at = reached_at = clock.monotonic()
    while True:
        try:
            answer = asker.answer(request.request_id)
            if answer is None and clock.monotonic() - asked_at > REPEAT_AFTER_S:
                asker.ask(request)
                asked_at = clock.monotonic()
            reached_at = clock.monotonic()
        except Unavailable:
            if clock.monotonic() - reached_at > UNAVAILABLE_MAX_S:
                raise
            answer = None
        if answer is not None:
            bars.show(answer)
            if answer.state.final:
                return answer
        clock.sleep(POLL_INTERVAL_S)


class _Bars:
    """One progress bar per table of an answer."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, answer: Answer) -> None:
        for table in answer.tables:
            task = self._tasks.get(table.table)
            if task is None:
                task = self._progress.add_task(table.table, total=None, note="")
                self._tasks[table.table] = task
            done = table.state is RequestState.DONE
            total = table.chunks if done else table.chunks_estimate
            self._progress.update(task, completed=table.chunks, total=total, note=_note(table))


def _note(table: TableProgress) -> str:
    text = f"{table.state.value}, {table.rows:,} rows"
    held_up = table.error or table.waiting
    return text if held_up is None else f"{text}: {held_up}"


def _finish(answer: Answer) -> int:
    rows = sum(table.rows for table in answer.tables)
    if answer.state is RequestState.DONE:
        print(f"done: {len(answer.tables)} tables, {rows} rows, manifest {answer.manifest_number}")
        return 0
    errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    errors.print(
        f"tideline: the request is {answer.state.value}: {answer.error or 'see its tables'}"
    )
    for table in answer.tables:
        if table.error is not None:
            errors.print(f"  {table.table}: {table.error}")
    if answer.hint is not None:
        errors.print(f"  hint: {answer.hint}")
    return EXIT_FAILED
