"""``tideline inspect``: look into the chain."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.commands.options import Config, settings_at

inspect_app = typer.Typer(
    name="inspect",
    help="Look into the chain: manifests, parts, rows, the open state.",
    no_args_is_help=True,
)


@inspect_app.command("manifests")
def inspect_manifests(
    config: Config = None,
    last: Annotated[int, typer.Option(min=1, help="How many, from the chain's end.")] = 20,
) -> None:
    """List the newest manifests."""
    settings = settings_at(config)
    from tideline_console.inspect import manifests

    manifests(settings, last=last)


@inspect_app.command("manifest")
def inspect_manifest(
    number: Annotated[int, typer.Argument(min=1)],
    config: Config = None,
    values: Annotated[bool, typer.Option("--values", help="Show keys of rows, too.")] = False,
) -> None:
    """Print one manifest."""
    settings = settings_at(config)
    from tideline_console.inspect import manifest

    manifest(settings, number, values=values)


@inspect_app.command("parts")
def inspect_parts(
    table: Annotated[str | None, typer.Argument(help="Only this table's.")] = None,
    config: Config = None,
    last: Annotated[int, typer.Option(min=1, help="Of how many manifests, from the end.")] = 20,
) -> None:
    """List the parts of the newest manifests."""
    settings = settings_at(config)
    from tideline_console.inspect import parts

    parts(settings, table=table, last=last)


@inspect_app.command("rows")
def inspect_rows(
    part: Annotated[str, typer.Argument(help="The part's key, as `inspect parts` prints it.")],
    config: Config = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Rows at most.")] = 20,
) -> None:
    """Print rows of one part, values included."""
    settings = settings_at(config)
    from tideline_console.inspect import rows

    rows(settings, part, limit=limit)


@inspect_app.command("state")
def inspect_state(config: Config = None) -> None:
    """Print what a successor of the worker would take over."""
    settings = settings_at(config)
    from tideline_console.inspect import state

    state(settings)
