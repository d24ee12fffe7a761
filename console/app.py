"""The ``tideline`` command: names, options and help; what a command does is in its own module.

Nothing heavy is imported here or at the top of what this imports, so that ``tideline --help`` is
quick and a machine without Spark or Airflow can still capture.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.errors import (
    EXIT_INTERRUPTED,
    EXIT_MISCONFIGURED,
    OURS,
    exit_code,
    not_installed,
    report,
)
from tideline.contract.errors import TidelineError

if TYPE_CHECKING:
    from tideline.settings import Settings

app = typer.Typer(
    name="tideline",
    help="Keep warehouse tables equal to their source database, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
inspect_app = typer.Typer(
    name="inspect",
    help="Look into the chain: manifests, parts, rows, the open state.",
    no_args_is_help=True,
)
app.add_typer(inspect_app)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The settings file; without it $TIDELINE_CONFIG, else ./tideline.toml.",
        show_default=False,
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Tables as schema.table, or patterns such as public.*", metavar="TABLE…"),
]


def main() -> None:
    """The entry point of the installed program."""
    try:
        app()
    except TidelineError as error:
        report(error)
        sys.exit(exit_code(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OURS:
            raise
        report(not_installed(missing))
        sys.exit(EXIT_MISCONFIGURED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


@app.command()
def doctor(config: Config = None) -> None:
    """Check source, store, queue and warehouse; every finding names what fixes it.

    Exits with 0 when capture may start.
    """
    settings = _settings(config)
    from console.doctor import run

    raise typer.Exit(run(settings))


@app.command()
def capture(
    config: Config = None,
    until_idle: Annotated[
        float | None,
        typer.Option(
            "--until-idle",
            min=0.0,
            help="Stop after the log was quiet, requests done and all durable for S seconds.",
            metavar="S",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the capture worker until SIGTERM or SIGINT."""
    settings = _settings(config)
    from console.capture import run

    run(settings, until_idle_s=until_idle)


@app.command()
def dump(  # noqa: PLR0913 - a command's options
    tables: Tables = None,
    config: Config = None,
    every: Annotated[bool, typer.Option("--all", help="Every captured table.")] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Only these keys of one table: CSV, a key per line (or JSON lines, *.jsonl).",
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
    """Ask the worker to dump tables, given keys, or a time range."""
    from console.dump import make_request, run

    request = make_request(
        tables or [],
        every=every,
        keys=keys,
        time=time,
        chunk_rows=chunk_rows,
        delay_ms=delay_ms,
        request_id=request_id,
    )
    raise typer.Exit(run(_settings(config), request, wait=wait))


@app.command()
def merge(tables: Tables = None, config: Config = None) -> None:
    """Plan and run one Spark merge of what is new."""
    settings = _settings(config)
    from console.merge import run

    raise typer.Exit(run(settings, tables or []))


@app.command()
def status(
    config: Config = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; its schema is in docs/schemas.")
    ] = False,
) -> None:
    """Show the worker, the tables, dumps under way, and the lag."""
    settings = _settings(config)
    from console.status import run

    run(settings, as_json=as_json)


@inspect_app.command("manifests")
def inspect_manifests(
    config: Config = None,
    last: Annotated[int, typer.Option(min=1, help="How many, from the chain's end.")] = 20,
) -> None:
    """List the newest manifests."""
    settings = _settings(config)
    from console.inspect import manifests

    manifests(settings, last=last)


@inspect_app.command("manifest")
def inspect_manifest(
    number: Annotated[int, typer.Argument(min=1)],
    config: Config = None,
    values: Annotated[bool, typer.Option("--values", help="Show keys of rows, too.")] = False,
) -> None:
    """Print one manifest."""
    settings = _settings(config)
    from console.inspect import manifest

    manifest(settings, number, values=values)


@inspect_app.command("parts")
def inspect_parts(
    table: Annotated[str | None, typer.Argument(help="Only this table's.")] = None,
    config: Config = None,
    last: Annotated[int, typer.Option(min=1, help="Of how many manifests, from the end.")] = 20,
) -> None:
    """List the parts of the newest manifests."""
    settings = _settings(config)
    from console.inspect import parts

    parts(settings, table=table, last=last)


@inspect_app.command("rows")
def inspect_rows(
    part: Annotated[str, typer.Argument(help="The part's key, as `inspect parts` prints it.")],
    config: Config = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Rows at most.")] = 20,
) -> None:
    """Print rows of one part, values included."""
    settings = _settings(config)
    from console.inspect import rows

    rows(settings, part, limit=limit)


@inspect_app.command("state")
def inspect_state(config: Config = None) -> None:
    """Print what a successor of the worker would take over."""
    settings = _settings(config)
    from console.inspect import state

    state(settings)


@app.command()
def demo(
    source: Annotated[str, typer.Option(help="What the shop runs on: postgres, mariadb")] = (
        "postgres"
    ),
) -> None:
    """Show the main job on servers of its own; needs no settings."""
    from console.demo.app import run

    raise typer.Exit(run(source))


def _settings(config: Path | None) -> Settings:
    from tideline.settings import load_settings

    return load_settings(config)
