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

    run(settings, config, until_idle_s=until_idle)


@app.command()
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
    key_to: Annotated[
        str | None,
        typer.Option("--to", help="… and before this key.", metavar="KEY", show_default=False),
    ] = None,
    priority: Annotated[
        int, typer.Option(min=-10, max=10, help="The higher one comes first, at the next chunk.")
    ] = 0,
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
    from console.dump import make_request, run

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
    raise typer.Exit(run(_settings(config), request, wait=wait))


@app.command()
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
    key_to: Annotated[
        str | None,
        typer.Option("--to", help="… and before this key.", metavar="KEY", show_default=False),
    ] = None,
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
    priority: Annotated[
        int, typer.Option(min=-10, max=10, help="The higher one comes first, at the next chunk.")
    ] = 0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Dump what differs, merge it, and prove it again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Prove tables equal to their source, or name the keys that differ; pauses nothing.

    Exits with 0 when all are equal, with 1 when one differs, with 2 when one could not be proven.
    """
    from console.verify import EXIT_ERROR, make_request, run

    try:
        request = make_request(
            tables or [],
            every=every,
            key_range=(key_from, key_to),
            sample=sample,
            priority=priority,
        )
        code = run(_settings(config), request, repair=repair, as_json=as_json)
    except TidelineError as error:
        report(error)
        code = EXIT_ERROR
    raise typer.Exit(code)


Requests = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of requests; `tideline status` shows them.", metavar="ID…"),
]
Every = Annotated[bool, typer.Option("--all", help="All requests.")]


@app.command()
def pause(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """Begin no more chunks of requests, until they are resumed."""
    _steer("pause", requests, config, every=every)


@app.command()
def resume(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """Go on with requests that were paused."""
    _steer("resume", requests, config, every=every)


@app.command()
def cancel(requests: Requests = None, config: Config = None, every: Every = False) -> None:
    """End requests; what was read so far is kept."""
    _steer("cancel", requests, config, every=every)


@app.command()
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
    from console.steer import make_command, run
    from tideline.contract.request import Action

    command = make_command(Action(action), requests or [], every=every, **pace)
    raise typer.Exit(run(_settings(config), command))


@app.command()
def plan(
    tables: Tables = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show what a merge would do now, and do nothing."""
    settings = _settings(config)
    from console.plan import run

    run(settings, tables or [], as_json=as_json)


@app.command()
def merge(tables: Tables = None, config: Config = None) -> None:
    """Plan and run one Spark merge of what is new."""
    settings = _settings(config)
    from console.merge import run

    raise typer.Exit(run(settings, tables or []))


@app.command()
def maintain(tables: Tables = None, config: Config = None) -> None:
    """Rewrite small and worn files of warehouse tables where it pays; remove old ones."""
    settings = _settings(config)
    from console.maintain import run

    raise typer.Exit(run(settings, tables or []))


@app.command()
def rebuild(
    table: Annotated[str, typer.Argument(help="A table as schema.table.", metavar="TABLE")],
    config: Config = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Keep it as current, soft_deletes, history or append; without it as the settings"
            " say.",
            show_default=False,
        ),
    ] = None,
    since_dump: Annotated[
        bool,
        typer.Option(
            "--since-dump",
            help="Begin with the latest full dump, also where the mode keeps what was before it.",
        ),
    ] = False,
    accept_differences: Annotated[
        bool,
        typer.Option(
            "--accept-differences",
            help="Put it in the live table's place although that holds something else.",
        ),
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Give up a rebuild of the table that is under way.")
    ] = False,
) -> None:
    """Build a table anew from the chain, check it against the live one, and swap them.

    The live table is read and merged meanwhile. A rebuild that was killed goes on.
    """
    settings = _settings(config)
    from console.rebuild import make_options, run

    raise typer.Exit(
        run(
            settings,
            table,
            make_options(
                mode, since_dump=since_dump, accept_differences=accept_differences, anew=anew
            ),
        )
    )


@app.command()
def garbage(
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove parts that nobody needs any more; the active worker does so by itself."""
    settings = _settings(config)
    from console.garbage import run

    run(settings, dry_run=dry_run)


@app.command()
def status(
    config: Config = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; its schema is in docs/schemas.")
    ] = False,
    as_metrics: Annotated[
        bool, typer.Option("--metrics", help="The tables' freshness in Prometheus' text format.")
    ] = False,
) -> None:
    """Show the worker, the tables, dumps under way, and the lag."""
    settings = _settings(config)
    from console.status import run

    run(settings, as_json=as_json, as_metrics=as_metrics)


@app.command()
def cost(  # noqa: PLR0913 - a command's options
    config: Config = None,
    tables: Annotated[
        int | None, typer.Option(min=1, help="Captured tables.", show_default=False)
    ] = None,
    busy: Annotated[
        int | None, typer.Option(min=1, help="… of which change.", show_default=False)
    ] = None,
    changes_per_s: Annotated[
        float | None,
        typer.Option(min=0.0, help="Changed rows per second, of all tables.", show_default=False),
    ] = None,
    row_bytes: Annotated[
        float | None, typer.Option(min=1.0, help="Bytes of one in a part.", show_default=False)
    ] = None,
    flush_s: Annotated[
        list[float] | None,
        typer.Option(min=0.01, help="Flush interval; several are compared.", show_default=False),
    ] = None,
    heartbeat_s: Annotated[float | None, typer.Option(min=0.01, show_default=False)] = None,
    merge_every: Annotated[
        float | None,
        typer.Option(min=1.0, help="Seconds from merge to merge.", show_default=False),
    ] = None,
    passive: Annotated[
        int | None, typer.Option(min=0, help="Workers that wait.", show_default=False)
    ] = None,
    put_price: Annotated[float, typer.Option(min=0.0, help="Of 1,000 PUTs or LISTs.")] = 0.005,
    get_price: Annotated[float, typer.Option(min=0.0, help="Of 1,000 GETs or HEADs.")] = 0.0004,
    gb_month_price: Annotated[
        float, typer.Option(min=0.0, help="Of 1 GB stored for a month.")
    ] = 0.023,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Compute requests and bytes per day at the object store; what is not given is in the settings.

    The prices are those that S3 Standard listed in us-east-1 in 2025, in dollars.
    """
    from console.cost import Asked, run
    from tideline.cost import Prices

    asked = Asked(
        tables=tables,
        busy=busy,
        changes_per_s=changes_per_s,
        row_bytes=row_bytes,
        flush_s=tuple(flush_s or ()),
        heartbeat_s=heartbeat_s,
        merge_every_s=merge_every,
        passive=passive,
    )
    run(asked, Prices(put_price, get_price, gb_month_price), config, as_json=as_json)


@app.command()
def simulate(  # noqa: PLR0913 - a command's options
    seed: Annotated[
        int | None, typer.Option(help="The first seed.", metavar="N", show_default=False)
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs, of successive seeds.")] = 1,
    mutant: Annotated[
        str | None, typer.Option(help="A seeded bug to be caught.", show_default=False)
    ] = None,
    all_mutants: Annotated[bool, typer.Option("--all-mutants", help="Each of them.")] = False,
    faults: Annotated[
        str | None, typer.Option(help="Only these of the run's faults.", show_default=False)
    ] = None,
    dumps: Annotated[
        str | None, typer.Option(help="Only these of its dumps.", show_default=False)
    ] = None,
    transactions: Annotated[int | None, typer.Option(min=1, show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run the worker against seeded faults on virtual time, and judge what it wrote.

    Exits with 1 when a promise was broken, or a seeded bug was not caught.
    """
    from console.simulate import Cut, Wanted, run

    cut = Cut(faults, dumps, transactions)
    wanted = Wanted(seed=seed, runs=runs, mutant=mutant, all_mutants=all_mutants, cut=cut)
    raise typer.Exit(run(wanted, as_json=as_json))


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
