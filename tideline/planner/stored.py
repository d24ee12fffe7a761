"""Finds what planning of every kind begins with (the chain's tail, the tables that are named), and
stores a document once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tideline.contract.document import with_checksum
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.open_state import OpenState, TableState
from tideline.settings import Settings
from tideline.store.chain import ManifestEntry
from tideline.store.objects import ObjectStore

Document = TypeVar("Document")


def existing(settings: Settings, entry: ManifestEntry | None) -> ManifestEntry:
    """Return the ``entry`` of the chain; Misconfigured for a pipeline without a manifest."""
    if entry is None:
        raise Misconfigured(
            f"pipeline {settings.pipeline} has no manifest in {settings.store.url}",
            hint="start `tideline capture`, or correct store.url",
        )
    return entry


def chosen(state: OpenState, tables: Sequence[str] | None) -> dict[str, TableState]:
    """Return the tables asked for, by name; all that the chain knows where None are named.
    Misconfigured names those that it does not know."""
    if tables is None:
        return dict(state.tables)
    unknown = sorted(set(tables) - set(state.tables))
    if unknown:
        raise no_such_table(*unknown)
    return {name: state.tables[name] for name in tables}


def no_such_table(*names: str) -> Misconfigured:
    return Misconfigured(
        f"the chain of this pipeline has no table {', '.join(names)}",
        hint="`tideline status` lists the tables; a new one appears once it is captured",
    )


def read_stored(
    store: ObjectStore, key: str, decode: Callable[[bytes, str], Document]
) -> Document | None:
    """Return the document at ``key``; None where nothing is."""
    raw = store.get(key)
    return None if raw is None else decode(raw, key)


def store_once(
    store: ObjectStore,
    key: str,
    made: Document,
    encode: Callable[[Document], bytes],
    decode: Callable[[bytes, str], Document],
) -> Document:
    """Store ``made`` at ``key``, and return it; or the document that another process was faster
    with."""
    if store.create(key, with_checksum(encode(made))):
        return made
    raced = read_stored(store, key, decode)
    if raced is None:
        raise CorruptData(f"the document at {key} vanished")
    return raced
