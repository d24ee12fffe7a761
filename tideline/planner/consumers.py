"""Who reads a chain's parts, and how far each has applied them.

Every consumer is on record in the store, beside the chain, before it is given its first plan: no
part is removed that one of them has not applied. Whoever is gone for good is struck off by removing
its record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import msgspec

from tideline.contract import layout
from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, OpenState
from tideline.contract.rebuild import RebuildRecord
from tideline.planner.progress import foreign_owner, target_of
from tideline.settings import Settings
from tideline.store.objects import ObjectStore

_VERSION = 1
_WAREHOUSE = "warehouse"
_REBUILD = "rebuild"


class Consumer(Protocol):
    """One reader of the parts; ``name`` is for people."""

    @property
    def name(self) -> str: ...

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        """By table the manifest up to which its parts are applied here; tables that are not in it
        have nothing applied. ``state`` is the open state at ``tail``. Raises Unavailable when it
        cannot be told."""
        ...


class Warehouse:
    """The tables at one ``warehouse.url``."""

    def __init__(self, settings: Settings, url: str) -> None:
        warehouse = settings.warehouse.model_copy(update={"url": url})
        self._settings = settings.model_copy(update={"warehouse": warehouse})
        self.name = f"the warehouse at {url}"

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        found = {}
        for name, table in state.tables.items():
            if table.schema is None:
                continue
            target = target_of(self._settings, tail, name, table)
            sound = foreign_owner(target, tail, name) is None and not target.went_back
            if sound and target.applied is not None:
                found[name] = target.applied
        return found


class Rebuilding:
    """A rebuild of one table: it needs the parts that the table beside has not applied."""

    def __init__(self, settings: Settings, url: str, table: str) -> None:
        self._warehouse = Warehouse(settings, url)
        self._table = table
        self.name = f"the rebuild of {table} at {url}"

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        found = dict.fromkeys(state.tables, tail.manifest_number)
        found.pop(self._table, None)
        own = self._warehouse.applied(tail, state)
        return found | ({self._table: own[self._table]} if self._table in own else {})


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    url: str
    table: str = ""
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()


_READER = DocumentReader(_Record, version=_VERSION, features=frozenset(), name="consumer")


def register_warehouse(settings: Settings, store: ObjectStore) -> None:
    """Put the settings' warehouse on record, if it is not. Idempotent."""
    url = settings.warehouse.url
    name = f"{_WAREHOUSE}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    key = layout.consumer_key(settings.pipeline, name)
    if not store.exists(key):
        store.create(key, msgspec.json.encode(_Record(_WAREHOUSE, url)))


def register_rebuild(settings: Settings, store: ObjectStore, record: RebuildRecord) -> None:
    """Put a rebuild on record, in the place of an earlier one of the table. Idempotent."""
    url = layout.beside_url(settings.warehouse.url, record.build)
    raw = msgspec.json.encode(_Record(_REBUILD, url, record.table))
    key = _rebuild_key(settings, record)
    if store.get(key) != raw:
        store.put(key, raw)


def strike_rebuild(settings: Settings, store: ObjectStore, record: RebuildRecord) -> None:
    """A rebuild that has ended needs no part any more. Idempotent."""
    key = _rebuild_key(settings, record)
    if store.exists(key):
        store.delete(key)


def _rebuild_key(settings: Settings, record: RebuildRecord) -> str:
    name = f"{settings.warehouse.url} {record.table}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return layout.consumer_key(settings.pipeline, f"{_REBUILD}-{digest}")


def known_consumers(settings: Settings, store: ObjectStore) -> list[Consumer]:
    """All that are on record; CorruptData for a record that says nothing known here."""
    found: list[Consumer] = []
    for key in store.list(layout.consumers_prefix(settings.pipeline)):
        raw = store.get(key)
        if raw is None:
            continue
        record = _READER.read(raw)
        if record.kind == _REBUILD:
            found.append(Rebuilding(settings, record.url, record.table))
            continue
        if record.kind != _WAREHOUSE:
            raise CorruptData(
                f"{key} is of the unknown kind {record.kind!r}",
                hint="upgrade this program, or remove the record of a consumer that is gone",
            )
        found.append(Warehouse(settings, record.url))
    return found
