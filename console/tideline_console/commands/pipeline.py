"""Commands for the pipeline itself: its checks, its worker and its status."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.commands.options import Config, settings_at


def doctor(
    config: Config = None,
    airflow: Annotated[
        bool,
        typer.Option(
            "--airflow", help="Check instead what the DAGs need, where Airflow runs its tasks."
        ),
    ] = False,
) -> None:
    """Check source, store, queue and warehouse; every finding names its fix.

    Exits with 0 when capture may start, with --airflow when the DAGs may run.
    """
    settings = settings_at(config)
    if airflow:
        from tideline_console.doctor_airflow import run
    else:
        from tideline_console.doctor import run

    from tideline.settings import settings_path

    raise typer.Exit(run(settings, settings_path(config)))


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
    """Run the capture worker until SIGTERM, SIGINT or SIGHUP."""
    settings = settings_at(config)
    from tideline_console.capture import run

    run(settings, config, until_idle_s=until_idle)


def publish(
    name: Annotated[str, typer.Argument(help="A publisher: NAME of a section publish.NAME.")],
    config: Config = None,
    until_idle: Annotated[
        float | None,
        typer.Option(
            "--until-idle",
            min=0.0,
            help="Stop after there was nothing to publish for S seconds.",
            metavar="S",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be published now.")
    ] = False,
    pause: Annotated[
        bool | None,
        typer.Option("--pause/--resume", help="Pause its workers, or let them go on."),
    ] = None,
    move_to: Annotated[
        str | None,
        typer.Option(
            "--move-to",
            help="Have it go on from there: beginning, now, sequence:N, manifest:N, time:ISO.",
            metavar="PLACE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Publish the chain's changes as events until SIGTERM, SIGINT or SIGHUP."""
    if (pause is not None) + (move_to is not None) + dry_run > 1:
        raise typer.BadParameter("--dry-run, --pause, --resume and --move-to: one at a time")
    settings = settings_at(config)
    from tideline_console import publish

    if dry_run:
        publish.preview(settings, name)
    elif pause is not None:
        publish.pause(settings, name, paused=pause)
    elif move_to is not None:
        publish.move(settings, name, move_to)
    else:
        publish.run(settings, name, until_idle_s=until_idle)


def status(
    config: Config = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; its schema is in docs/schemas.")
    ] = False,
    as_metrics: Annotated[
        bool, typer.Option("--metrics", help="The tables' freshness in Prometheus' text format.")
    ] = False,
    document_version: Annotated[
        int,
        typer.Option(
            "--document-version",
            min=1,
            max=2,
            help="With --json: 1 names tables' states as Tideline 0.1 did; it ends with 0.3.",
        ),
    ] = 2,
) -> None:
    """Show the worker, the tables, dumps under way, and the lag."""
    settings = settings_at(config)
    from tideline_console.status import run

    run(settings, as_json=as_json, as_metrics=as_metrics, document_version=document_version)
