"""Commands that need no pipeline: the cost of one."""

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
    """Compute requests and bytes per day at the object store, for this pipeline or given figures.

    The prices are those that S3 Standard listed in us-east-1 in 2025, in dollars.
    """
    from tideline.cost import Prices
    from tideline_console.cost import run

    run(asked, Prices(put_price, get_price, gb_month_price), config, as_json=as_json)
