"""Requests to the worker: dumps, verifications, and commands to running requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.contract.errors import TidelineError
from tideline_console.commands.options import Config, Tables, job_settings_at, settings_at
from tideline_console.commands.request_options import request_options
from tideline_console.errors import report

EveryTable = Annotated[bool, typer.Option("--all", help="Every captured table.")]


@request_options("dump")
def dump(
    tables: Tables = None,
    config: Config = None,
    every: EveryTable = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, with progress.")] = False,
    request_id: Annotated[
        str | None,
        typer.Option("--id", help="Join the request of this id.", show_default=False),
    ] = None,
    **options: Any,
) -> None:
    """Ask the worker to dump tables, given keys, a range of keys or of time."""
    from tideline_console.dump import run
    from tideline_console.requests import make_request

    request = make_request(tables or [], every=every, request_id=request_id, **options)
    raise typer.Exit(run(settings_at(config), request, wait=wait))


@request_options("verify")
def verify(
    tables: Tables = None,
    config: Config = None,
    every: EveryTable = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Dump what differs, merge it, and verify it again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    **options: Any,
) -> None:
    """Compare tables with their source and name the keys that differ, without any pause.

    Exits with 0 when all are equal, with 1 when one differs, with 2 when one could not be compared.
    """
    from tideline_console.requests import make_request
    from tideline_console.verify import EXIT_ERROR, run

    try:
        request = make_request(tables or [], purpose="verify", every=every, **options)
        code = run(job_settings_at(config), request, repair=repair, as_json=as_json)
    except TidelineError as error:
        report(error)
        code = EXIT_ERROR
    raise typer.Exit(code)


Requests = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of requests; `tideline status` shows them.", metavar="ID…"),
]
Every = Annotated[bool, typer.Option("--all", help="All requests.")]


def pause(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """Start no more chunks of requests until they are resumed."""
    _control("pause", requests, config, every=every)


def resume(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """Continue paused requests."""
    _control("resume", requests, config, every=every)


def cancel(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """End requests; rows read so far are kept."""
    _control("cancel", requests, config, every=every)


def tune(
    requests: Requests = None,
    config: Config = None,
    every: Every = False,
    chunk_rows: Annotated[
        str | None, typer.Option(help="Rows per chunk, or default.", show_default=False)
    ] = None,
    delay_ms: Annotated[
        str | None, typer.Option(help="Pause between chunks, or default.", show_default=False)
    ] = None,
) -> None:
    """Change the throttle of requests while they run."""
    _control("tune", requests, config, every=every, chunk_rows=chunk_rows, delay_ms=delay_ms)


def _control(
    action: str,
    requests: list[str] | None,
    config: Path | None,
    *,
    every: bool,
    **tuning: str | None,
) -> None:
    from tideline.contract.request import Action
    from tideline_console.control import make_command, run

    command = make_command(Action(action), requests or [], every=every, **tuning)
    raise typer.Exit(run(settings_at(config), command))
