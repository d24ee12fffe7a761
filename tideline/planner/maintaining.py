"""Orders maintenance of the warehouse's tables, and stores the order before anyone runs it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tideline.contract import layout
from tideline.contract.maintenance import (
    MaintainedTable,
    MaintenanceOrder,
    MaintenanceReceipt,
    Thresholds,
    decode_maintenance_receipt,
    decode_order,
)
from tideline.planner.stored import chosen, existing, read_stored, store_once
from tideline.planner.targets import live_url
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
    stored = read_stored(store, key, decode_order)
    if stored is not None:
        return stored
    chain = Chain(store, settings.pipeline)
    tail = existing(settings, chain.tail())
    wanted = chosen(chain.open_state(tail), tables or None)
    order = MaintenanceOrder(
        maintenance_id=maintenance_id,
        pipeline=settings.pipeline,
        incarnation=tail.manifest.incarnation,
        thresholds=Thresholds(**settings.maintain.model_dump()),
        tables=tuple(
            MaintainedTable(name, live_url(settings, name))
            for name in sorted(wanted)
            if wanted[name].schema is not None
        ),
        named=bool(tables),
    )
    return store_once(store, key, order, msgspec.json.encode, decode_order)


def read_maintenance(settings: Settings, maintenance_id: str) -> MaintenanceReceipt | None:
    """Return the receipt of a maintenance run; None while no run of it has ended."""
    key = layout.maintenance_receipt_key(settings.pipeline, maintenance_id)
    return read_stored(open_store(settings.store), key, decode_maintenance_receipt)
