"""Commands that need no pipeline: what one would cost."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline_console.commands.options import Config


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
    """Compute requests and bytes per day at the object store: of the pipeline at hand, or as given.

    The prices are those that S3 Standard listed in us-east-1 in 2025, in dollars.
    """
    from tideline.cost import Prices
    from tideline_console.cost import Asked, run

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
