"""``tideline maintain``: measures warehouse files, rewrites where it pays, and removes old ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.maintenance import (
    Files,
    MaintenanceOutcome,
    MaintenanceReceipt,
    TableMaintenance,
)
from tideline.planner.maintaining import order_maintenance
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline_console.output import say
from tideline_console.spark import new_run_id, spark_session
from tideline_console.tables import print_table

EXIT_FAILED = 1


def run(settings: Settings, tables: Sequence[str]) -> int:
    """Maintain all tables, or those named, and print the results; return 1 when one failed."""
    name = new_run_id()
    order = order_maintenance(settings, maintenance_id=name, tables=list(tables) or None)
    if not order.tables:
        say("no table has been captured yet")
        return 0
    from tideline_spark.maintain import maintain  # needs Spark

    with spark_session(settings, "maintain") as session:
        receipt = maintain(session, order)
    key = layout.maintenance_receipt_key(settings.pipeline, name)
    open_store(settings.store).put(key, with_checksum(msgspec.json.encode(receipt)))
    _print(receipt)
    failed = any(one.outcome is MaintenanceOutcome.FAILED for one in receipt.tables)
    return EXIT_FAILED if failed else 0


def _print(receipt: MaintenanceReceipt) -> None:
    print_table(
        ("table", "outcome", "files", "small", "deleted", "MB", "removed", "seconds", "why"),
        (_row(one) for one in receipt.tables),
    )
    for one in receipt.tables:
        if one.error is not None:
            say(f"{one.table}: {one.error}")
            if one.hint is not None:
                say(f"  hint: {one.hint}")


def _row(one: TableMaintenance) -> tuple[object, ...]:
    def change(show: str) -> str | None:
        sides = [_figure(files, show) for files in (one.before, one.after) if files is not None]
        return " → ".join(sides) or None

    return (
        one.table,
        one.outcome.value,
        change("files"),
        change("small"),
        change("deleted"),
        change("MB"),
        one.vacuumed,
        f"{one.seconds:.1f}",
        one.reason,
    )


def _figure(files: Files, show: str) -> str:
    if show == "deleted":
        return f"{files.deleted_percent:.1f} %"
    if show == "MB":
        return f"{files.bytes / 1_000_000:.1f}"
    return str(files.files if show == "files" else files.small)
