"""Commands for the warehouse's tables, and for the parts that they are made of."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.arguments import RebuildOptions
from tideline_console.commands.options import Config, Tables, as_one, job_settings_at, settings_at


def plan(
    tables: Tables = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show what a merge would do now, and do nothing."""
    settings = settings_at(config)
    from tideline_console.plan import run

    run(settings, tables or [], as_json=as_json)


def merge(
    tables: Tables = None,
    config: Config = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Stay, as the pipeline's merger: merge new changes of all tables as they come,"
            " until SIGTERM, SIGINT or SIGHUP.",
        ),
    ] = False,
) -> None:
    """Plan and run one Spark merge of all new changes."""
    settings = job_settings_at(config)
    if follow:
        if tables:
            raise typer.BadParameter("--follow merges all tables", param_hint="TABLE")
        from tideline_console.follow.supervisor import run as run_merger

        raise typer.Exit(run_merger(settings, config))
    from tideline_console.merge import run

    raise typer.Exit(run(settings, tables or []))


def maintain(tables: Tables = None, config: Config = None) -> None:
    """Rewrite small and fragmented files of warehouse tables where it pays; remove old ones."""
    settings = job_settings_at(config)
    from tideline_console.maintain import run

    raise typer.Exit(run(settings, tables or []))


def aggregate(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Aggregates in the settings; none: all.", metavar="NAME…"),
    ] = None,
    config: Config = None,
) -> None:
    """Write documents of several tables, the aggregates in the settings, to warehouse tables."""
    settings = job_settings_at(config)
    from tideline_console.aggregate import run

    raise typer.Exit(run(settings, names or []))


@as_one("options", RebuildOptions)
def rebuild(
    table: Annotated[str, typer.Argument(help="A table as schema.table.", metavar="TABLE")],
    options: RebuildOptions,
    config: Config = None,
) -> None:
    """Build a table again from the chain, check it against the live one, and swap them.

    With --to it becomes a table of another format instead, with all that it holds. The live table
    stays readable and mergeable. A killed rebuild continues when run again.
    """
    settings = job_settings_at(config)
    from tideline_console.rebuild import run

    raise typer.Exit(run(settings, table, options))


def delete_former(
    table: Annotated[str, typer.Argument(help="A table as schema.table.", metavar="TABLE")],
    config: Config = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove them; without it they are only listed.")
    ] = False,
) -> None:
    """Remove what a table was before it was moved to another format, and copies given up."""
    settings = settings_at(config)
    from tideline_console.delete_former import run

    raise typer.Exit(run(settings, table, yes=yes))


def garbage(
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove parts that are no longer needed; the active worker does so by itself."""
    settings = settings_at(config)
    from tideline_console.garbage import run

    run(settings, dry_run=dry_run)
