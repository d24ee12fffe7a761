"""Finds the key columns of a table, as the chain has them."""

from __future__ import annotations

from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def key_columns(settings: Settings, table: str) -> tuple[str, ...] | None:
    """Return the key columns of ``table``, in key order; None where the chain does not know it
    (yet)."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    entry = chain.tail()
    state = None if entry is None else chain.open_state(entry).tables.get(table)
    if state is None or state.schema is None:
        return None
    return chain.read_schema(state.schema).key or None
