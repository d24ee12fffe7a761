"""``tideline aggregate``: writes the documents of aggregates to tables of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tideline.contract import layout
from tideline.contract.aggregate_tables import (
    AggregateOrder,
    AggregateOutcome,
    AggregateReceipt,
    waiting_results,
)
from tideline.contract.document import with_checksum
from tideline.planner.aggregating import order_aggregates
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline_console.output import say
from tideline_console.spark import new_run_id, spark_session
from tideline_console.tables import moment, print_table

EXIT_FAILED = 1


def run(settings: Settings, names: Sequence[str]) -> int:
    """Write the documents of all aggregates, or those named, and print the results; return 1 when
    one failed."""
    order_id = new_run_id()
    order = order_aggregates(settings, order_id=order_id, names=list(names) or None)
    receipt = _run(settings, order)
    key = layout.aggregates_receipt_key(settings.pipeline, order_id)
    open_store(settings.store).put(key, with_checksum(msgspec.json.encode(receipt)))
    _print(receipt)
    failed = any(one.outcome is AggregateOutcome.FAILED for one in receipt.aggregates)
    return EXIT_FAILED if failed else 0


def _run(settings: Settings, order: AggregateOrder) -> AggregateReceipt:
    """Run the order in a session of this process; no session where nothing is to be written."""
    if not order.tables:
        return AggregateReceipt(order.order_id, order.pipeline, waiting_results(order))
    from tideline_spark.aggregate import write_aggregates  # needs Spark

    with spark_session(settings, "aggregate") as session:
        return write_aggregates(session, order, retries_max=settings.merge.retries_max)


def _print(receipt: AggregateReceipt) -> None:
    print_table(
        ("aggregate", "outcome", "manifest", "seq", "complete through", "inserted", "updated",
         "deleted", "seconds", "folder"),
        (
            (
                one.aggregate,
                one.outcome.value,
                one.manifest,
                one.seq,
                moment(one.through_us),
                one.inserted,
                one.updated,
                one.deleted,
                f"{one.seconds:.1f}",
                one.target or None,
            )
            for one in receipt.aggregates
        ),
    )  # fmt: skip
    for one in receipt.aggregates:
        if one.reason is not None:
            say(f"{one.aggregate} waits: {one.reason}")
        if one.error is not None:
            say(f"{one.aggregate}: {one.error}")
            if one.hint is not None:
                say(f"  hint: {one.hint}")
