"""Assets: one for each warehouse table, updated by the merge that brought it rows.

A DAG that works on a table starts when a task of Airflow has merged it, itself or by a merger, or
has found that others have::

    with DAG("daily_revenue", schedule=[table_asset("shop", "public.orders")]):

What a merger or a command merges on its own updates the asset with the next run of the merge DAG,
which merges all tables. Each event's ``extra`` holds ``max_seq``, the sequence number the table is
merged through, and ``complete_through_us``, the source's clock (µs since 1970 UTC) up to which it
is complete.
"""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

from tideline.contract.layout import encode_name
from tideline.contract.receipt import TableReceipt
from tideline.contract.schema import parse_table

MERGED = AssetAlias("tideline_merged")
"""The declaration of merge tasks: the tables that they update are known only once they have run."""


def table_asset(pipeline: str, table: str) -> Asset:
    """Return the asset of ``table`` (``schema.table``, as in receipts) of a pipeline."""
    parsed = parse_table(table)
    path = "/".join(encode_name(name) for name in (pipeline, parsed.schema, parsed.name))
    return Asset(name=f"tideline/{path}", uri=f"tideline://{path}")


def event_extra(receipt: TableReceipt) -> dict[str, int | None]:
    return {
        "max_seq": receipt.applied_seq,
        "complete_through_us": receipt.complete_through_us,
    }
