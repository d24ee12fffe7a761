"""Orders maintenance of the warehouse's tables, and stores the order before anyone runs it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.errors import Misconfigured
from tideline.contract.maintenance import (
    MaintainedTable,
    MaintenanceOrder,
    MaintenanceReceipt,
    Thresholds,
    decode_maintenance_receipt,
    decode_order,
)
from tideline.contract.schema import parse_table
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def order_maintenance(
    settings: Settings, *, maintenance_id: str, tables: Sequence[str] | None = None
) -> MaintenanceOrder:
    """Return the stored order of ``maintenance_id``, made now if there is none: all tables of which
    a target may exist, or those named.

    Raises Misconfigured for a pipeline without a manifest and for tables that it does not know.
    """
    store = open_store(settings.store)
    key = layout.maintenance_key(settings.pipeline, maintenance_id)
    stored = store.get(key)
    if stored is not None:
        return decode_order(stored, key)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    if tail is None:
        raise Misconfigured(
            f"pipeline {settings.pipeline} has no manifest in {settings.store.url}",
            hint="start `tideline capture`, or correct store.url",
        )
    known = chain.open_state(tail).tables
    unknown = sorted(set(tables or ()) - set(known))
    if unknown:
        raise Misconfigured(
            f"the chain of this pipeline has no table {', '.join(unknown)}",
            hint="`tideline status` lists the tables",
        )
    chosen = sorted(name for name in tables or known if known[name].schema is not None)
    order = MaintenanceOrder(
        maintenance_id=maintenance_id,
        pipeline=settings.pipeline,
        incarnation=tail.manifest.incarnation,
        thresholds=Thresholds(**settings.maintain.model_dump()),
        tables=tuple(
            MaintainedTable(name, layout.table_path(settings.warehouse.url, parse_table(name)))
            for name in chosen
        ),
        named=bool(tables),
    )
    raw = with_checksum(msgspec.json.encode(order))
    if store.create(key, raw):
        return order
    return decode_order(store.get(key) or raw, key)


def read_maintenance(settings: Settings, maintenance_id: str) -> MaintenanceReceipt | None:
    """Return the receipt of a maintenance run; None while no run of it has ended."""
    key = layout.maintenance_receipt_key(settings.pipeline, maintenance_id)
    raw = open_store(settings.store).get(key)
    return None if raw is None else decode_maintenance_receipt(raw, key)
