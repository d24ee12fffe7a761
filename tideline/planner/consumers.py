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
from tideline.planner.progress import foreign_owner, target_of
from tideline.settings import Settings
from tideline.store.objects import ObjectStore

_VERSION = 1
_WAREHOUSE = "warehouse"


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


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    url: str
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


def known_consumers(settings: Settings, store: ObjectStore) -> list[Consumer]:
    """All that are on record; CorruptData for a record that says nothing known here."""
    found: list[Consumer] = []
    for key in store.list(layout.consumers_prefix(settings.pipeline)):
        raw = store.get(key)
        if raw is None:
            continue
        record = _READER.read(raw)
        if record.kind != _WAREHOUSE:
            raise CorruptData(
                f"{key} is of the unknown kind {record.kind!r}",
                hint="upgrade this program, or remove the record of a consumer that is gone",
            )
        found.append(Warehouse(settings, record.url))
    return found
