"""What the worker is asked for: dumps, verifications, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline.contract.errors import TidelineError
from tideline_console.commands.options import Config, Tables, settings_at
from tideline_console.errors import report

KeyTo = Annotated[
    str | None,
    typer.Option("--to", help="… and before this key.", metavar="KEY", show_default=False),
]
Priority = Annotated[
    int, typer.Option(min=-10, max=10, help="The higher one comes first, at the next chunk.")
]


def dump(  # noqa: PLR0913 - a command's options
    tables: Tables = None,
    config: Config = None,
    every: Annotated[bool, typer.Option("--all", help="Every captured table.")] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Only these keys of one table: CSV, a key per line (or JSON lines, *.jsonl); - is"
            " standard input. Those that the source lacks are deleted. Beside a range: read after"
            " it.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            help="Only rows whose COLUMN is in [FROM, TO).",
            metavar="COLUMN FROM TO",
            show_default=False,
        ),
    ] = None,
    key_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Only rows of one table from this key on: CSV, the first key columns or all.",
            metavar="KEY",
            show_default=False,
        ),
    ] = None,
    key_to: KeyTo = None,
    priority: Priority = 0,
    chunk_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows per chunk.", show_default=False)
    ] = None,
    delay_ms: Annotated[
        int | None, typer.Option(min=0, help="Pause between chunks.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, with progress.")] = False,
    request_id: Annotated[
        str | None,
        typer.Option("--id", help="Join the request of this id.", show_default=False),
    ] = None,
) -> None:
    """Ask the worker to dump tables, given keys, a range of keys or of time."""
    from tideline_console.dump import make_request, run

    request = make_request(
        tables or [],
        every=every,
        keys=keys,
        key_range=(key_from, key_to),
        time=time,
        priority=priority,
        chunk_rows=chunk_rows,
        delay_ms=delay_ms,
        request_id=request_id,
    )
    raise typer.Exit(run(settings_at(config), request, wait=wait))


def verify(  # noqa: PLR0913 - a command's options
    tables: Tables = None,
    config: Config = None,
    every: Annotated[bool, typer.Option("--all", help="Every captured table.")] = False,
    key_from: Annotated[
        str | None,
        typer.Option(
            "--keys-from",
            help="Only rows of one table from this key on: CSV, the first key columns or all.",
            metavar="KEY",
            show_default=False,
        ),
    ] = None,
    key_to: KeyTo = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Read so many chunks of a hundred only.",
            metavar="P",
            show_default=False,
        ),
    ] = None,
    priority: Priority = 0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Dump what differs, merge it, and prove it again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Prove tables equal to their source, or name the keys that differ; pauses nothing.

    Exits with 0 when all are equal, with 1 when one differs, with 2 when one could not be proven.
    """
    from tideline_console.verify import EXIT_ERROR, make_request, run

    try:
        request = make_request(
            tables or [],
            every=every,
            key_range=(key_from, key_to),
            sample=sample,
            priority=priority,
        )
        code = run(settings_at(config), request, repair=repair, as_json=as_json)
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
    """Begin no more chunks of requests, until they are resumed."""
    _steer("pause", requests, config, every=every)


def resume(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """Go on with requests that were paused."""
    _steer("resume", requests, config, every=every)


def cancel(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """End requests; what was read so far is kept."""
    _steer("cancel", requests, config, every=every)


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
    """Change the pace of requests while they run."""
    _steer("tune", requests, config, every=every, chunk_rows=chunk_rows, delay_ms=delay_ms)


def _steer(
    action: str, requests: list[str] | None, config: Path | None, *, every: bool, **pace: str | None
) -> None:
    from tideline.contract.request import Action
    from tideline_console.steer import make_command, run

    command = make_command(Action(action), requests or [], every=every, **pace)
    raise typer.Exit(run(settings_at(config), command))
