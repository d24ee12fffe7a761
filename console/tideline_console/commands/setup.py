"""Commands for before and after a pipeline runs: settings, assessment, cost and removal."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.arguments import CostOptions, InitOptions
from tideline_console.commands.options import Config, as_one, settings_at


@as_one("wanted", InitOptions)
def init(
    wanted: InitOptions,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    only_sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the SQL for settings that are there; write nothing."),
    ] = False,
) -> None:
    """Write a commented settings file, and print the SQL that the source's owner runs."""
    from tideline.settings import settings_path
    from tideline_console.init import run, setup_sql
    from tideline_console.output import write_text

    if only_sql:
        write_text(setup_sql(settings_at(config)))
    else:
        run(wanted, settings_path(config), force=force)


def assess(
    config: Config = None,
    form: Annotated[str, typer.Option("--format", help="text, json or csv.")] = "text",
) -> None:
    """List each table's and column's warehouse form, what cannot be captured and why, and the load
    on the source; runs nothing."""
    settings = settings_at(config)
    from tideline.contract.errors import Misconfigured
    from tideline_console.assess import FORMATS, run

    if form not in FORMATS:
        raise Misconfigured(
            f"there is no format {form!r}", hint=f"name one of {', '.join(FORMATS)}"
        )
    run(settings, form)


@as_one("asked", CostOptions)
def cost(
    asked: CostOptions,
    config: Config = None,
    put_price: Annotated[float, typer.Option(min=0.0, help="Of 1,000 PUTs or LISTs.")] = 0.005,
    get_price: Annotated[float, typer.Option(min=0.0, help="Of 1,000 GETs or HEADs.")] = 0.0004,
    gb_month_price: Annotated[
        float, typer.Option(min=0.0, help="Of 1 GB stored for a month.")
    ] = 0.023,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Compute requests and bytes per day at the object store, for this pipeline or given figures.

    The prices are those that S3 Standard listed in us-east-1 in 2025, in dollars.
    """
    from tideline.cost import Prices
    from tideline_console.cost import run

    run(asked, Prices(put_price, get_price, gb_month_price), config, as_json=as_json)


def delete_pipeline(
    config: Config = None,
    chain: Annotated[
        bool, typer.Option("--chain", help="Its chain, with all that was captured, too.")
    ] = False,
    targets: Annotated[
        bool, typer.Option("--targets", help="Its tables in the warehouse, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """List what the pipeline has created; with --yes remove it, step by step.

    It may be killed at any step and run again. Exits with 2 when a step was refused.
    """
    settings = settings_at(config)
    from tideline_console.delete_pipeline import run

    raise typer.Exit(run(settings, chain=chain, targets=targets, yes=yes))
