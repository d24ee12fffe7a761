"""What is done to the warehouse's tables, and to the parts that they are made of."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.commands.options import Config, Tables, settings_at


def plan(
    tables: Tables = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show what a merge would do now, and do nothing."""
    settings = settings_at(config)
    from tideline_console.plan import run

    run(settings, tables or [], as_json=as_json)


def merge(tables: Tables = None, config: Config = None) -> None:
    """Plan and run one Spark merge of what is new."""
    settings = settings_at(config)
    from tideline_console.merge import run

    raise typer.Exit(run(settings, tables or []))


def maintain(tables: Tables = None, config: Config = None) -> None:
    """Rewrite small and worn files of warehouse tables where it pays; remove old ones."""
    settings = settings_at(config)
    from tideline_console.maintain import run

    raise typer.Exit(run(settings, tables or []))


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
    settings = settings_at(config)
    from tideline_console.rebuild import make_options, run

    raise typer.Exit(
        run(
            settings,
            table,
            make_options(
                mode, since_dump=since_dump, accept_differences=accept_differences, anew=anew
            ),
        )
    )


def garbage(
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove parts that nobody needs any more; the active worker does so by itself."""
    settings = settings_at(config)
    from tideline_console.garbage import run

    run(settings, dry_run=dry_run)
