"""Rows that merges have left pending, found again in the receipts of the tables' last merges.

Asking for them is not once and for all: Redis may lose what it was told, and a job may die before
anyone has read its receipt. So whoever plans asks again for what the last receipt says.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tideline.contract.receipt import reread_requests
from tideline.contract.request import DumpRequest
from tideline.planner.merges import read_receipt
from tideline.planner.progress import target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def pending_requests(settings: Settings, tables: Sequence[str] | None = None) -> list[DumpRequest]:
    """What to ask the worker for, of all tables or of ``tables``; [] when no row is pending."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return []
    requests = []
    for name, state in sorted(chain.open_state(tail).tables.items()):
        if state.schema is None or (tables is not None and name not in tables):
            continue
        stamp = target_of(settings, tail.manifest, name, state).stamp
        if stamp is None or not stamp.pending:
            continue
        receipt = read_receipt(settings, stamp.plan_id)
        if receipt is not None:
            own = tuple(one for one in receipt.tables if one.table == name)
            requests += reread_requests(replace(receipt, tables=own))
    return requests
