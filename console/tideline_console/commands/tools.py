"""What needs no pipeline: what one would cost, the simulator, the demo."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.asked import CostOptions
from tideline_console.commands.options import Config, as_one


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
    """Compute requests and bytes per day at the object store: of the pipeline at hand, or as given.

    The prices are those that S3 Standard listed in us-east-1 in 2025, in dollars.
    """
    from tideline.cost import Prices
    from tideline_console.cost import run

    run(asked, Prices(put_price, get_price, gb_month_price), config, as_json=as_json)


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
    from devtools.simulate import Cut, Wanted, run

    cut = Cut(faults, dumps, transactions)
    wanted = Wanted(seed=seed, runs=runs, mutant=mutant, all_mutants=all_mutants, cut=cut)
    raise typer.Exit(run(wanted, as_json=as_json))


def demo(
    source: Annotated[str, typer.Option(help="What the shop runs on: postgres, mariadb")] = (
        "postgres"
    ),
    stay: Annotated[
        bool, typer.Option("--stay", help="Stay up afterwards, without a terminal, too.")
    ] = False,
) -> None:
    """Show the main job on servers of its own; needs no settings."""
    from devtools.demo.app import run

    raise typer.Exit(run(source, stay=stay))
