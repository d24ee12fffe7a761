"""The consumers of a chain's parts, and how far each has applied them.

Every consumer is on record in the store, next to the chain, before it is given its first plan: no
part is removed that one of them has not applied. A consumer that is gone for good is struck off by
removing its record. A rebuild's record is rewritten with every step, and no longer counts once none
was taken for as long as an open plan keeps its parts: it was killed, and no one has continued it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.errors import Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.schema import parse_table
from tideline.planner.applied_chain import strayed
from tideline.planner.chain_index import ChainIndex
from tideline.planner.consumer_records import (
    CONSUMER_READER,
    PUBLISHER,
    REBUILD,
    WAREHOUSE,
    ConsumerRecord,
    consumer_records,
    stored_record,
)
from tideline.planner.targets import other_owner, target_at, target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import Entry, ObjectStore
from tideline.store.probe import probe_warehouse
from tideline.store.publisher_log import PublisherLog
from tideline.warehouse.state import TargetState, read_target


class Consumer(Protocol):
    """One reader of the parts; ``name`` is for messages, ``key`` that of its record."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        """Return by table the manifest up to which its parts are applied here; missing tables have
        nothing applied. ``state`` is the open state at ``tail``. Raises Unavailable when that
        cannot be read."""
        ...

    def messages_applied(self, tail: Manifest) -> int | None:
        """Return the manifest up to which logical messages are applied here; None for one that
        needs none. Raises as `applied` does."""
        ...

    def needs(self, table: str, tail: Manifest, state: OpenState) -> bool:
        """Return whether ``table`` may have to be rebuilt here. Raises as `applied` does."""
        ...

    def last_plans(self, tail: Manifest, state: OpenState) -> set[str]:
        """Return the ids of the plans of the tables' last commits here. Raises as `applied`
        does."""
        ...


class WarehouseConsumer:
    """The tables at one ``warehouse.url``. ``ended``: tables that had nothing left to apply when
    the source no longer had them, with their generations then. ``at``: the url of the one table
    that it is about, whether in use or not."""

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        key: str,
        url: str,
        ended: Mapping[str, int] | None = None,
        at: str = "",
    ) -> None:
        self.key = key
        self._store = store
        self._at = at
        warehouse = settings.warehouse.model_copy(update={"url": url})
        self._settings = settings.model_copy(update={"warehouse": warehouse})
        self._ended = ended or {}
        self.name = f"the warehouse at {url}"

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        found: dict[str, int] = {}
        chain_index = ChainIndex(Chain(self._store, self._settings.pipeline))
        for name, table in state.tables.items():
            if table.schema is None:
                continue
            target = self._target(tail, name, table)
            sound = other_owner(target, tail, name) is None and not target.went_back
            sound = sound and (bool(self._at) or target.in_use)
            sound = sound and not strayed(chain_index, tail, name, target)
            if sound and target.applied is not None:
                found[name] = target.applied
            if not target.exists and _has_ended(name, table, self._ended):
                found[name] = tail.manifest_number
        return found

    def messages_applied(self, tail: Manifest) -> int | None:
        return None

    def needs(self, table: str, tail: Manifest, state: OpenState) -> bool:
        now = state.tables[table]
        ended = _has_ended(table, now, self._ended)
        return not ended or self._target(tail, table, now).exists

    def last_plans(self, tail: Manifest, state: OpenState) -> set[str]:
        targets = (
            self._target(tail, name, table)
            for name, table in state.tables.items()
            if table.schema is not None
        )
        found = (one for target in targets for one in (target.commit_metadata, target.standing))
        return {one.plan_id for one in found if one is not None}

    def _target(self, tail: Manifest, name: str, table: TableState) -> TargetState:
        if self._at:
            return target_at(self._settings, tail, name, table, self._at)
        return target_of(self._settings, tail, name, table)


class Rebuilding:
    """A rebuild of one table: it needs the parts that the table at ``at`` has not applied, or where
    that is not known the one in the warehouse at ``url``."""

    def __init__(
        self, settings: Settings, store: ObjectStore, key: str, url: str, table: str, at: str = ""
    ) -> None:
        self.key = key
        self._warehouse = WarehouseConsumer(settings, store, key, url, at=at)
        self._table = table
        self.name = f"the rebuild of {table} at {at or url}"

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        found = dict.fromkeys(state.tables, tail.manifest_number)
        found.pop(self._table, None)
        tables = {name: one for name, one in state.tables.items() if name == self._table}
        own = self._warehouse.applied(tail, replace(state, tables=tables))
        return found | ({self._table: own[self._table]} if self._table in own else {})

    def messages_applied(self, tail: Manifest) -> int | None:
        return None

    def needs(self, table: str, tail: Manifest, state: OpenState) -> bool:
        return table == self._table

    def last_plans(self, tail: Manifest, state: OpenState) -> set[str]:
        return set()  # A rebuild's plans are its own.


class PublisherConsumer:
    """A publisher: it needs the parts behind the position that it has logged, and those behind the
    state that it has in the store."""

    def __init__(self, settings: Settings, store: ObjectStore, key: str, publisher: str) -> None:
        self.key = key
        self.name = f"the publisher {publisher}"
        self._log = PublisherLog(store, settings.pipeline, publisher)

    def applied(self, tail: Manifest, state: OpenState) -> Mapping[str, int]:
        number = self.messages_applied(tail)
        return dict.fromkeys(state.tables, number) if number else {}

    def messages_applied(self, tail: Manifest) -> int:
        entry = self._log.newest()
        if entry is None or entry.position.incarnation != tail.incarnation:
            return 0
        return entry.parts_through

    def needs(self, table: str, tail: Manifest, state: OpenState) -> bool:
        return False  # It builds nothing again.

    def last_plans(self, tail: Manifest, state: OpenState) -> set[str]:
        return set()  # It reads the chain without plans.


def register_warehouse(
    settings: Settings, store: ObjectStore, ended: Mapping[str, int] | None = None
) -> None:
    """Put the settings' warehouse on record, if it is not, and the tables that have ``ended``
    there: the source no longer has them (by generation), and their targets have applied everything.
    Idempotent. Raises Misconfigured for one in which commits of two writers would be lost; that is
    tried once at each endpoint, which may be another server.
    """
    key = warehouse_key(settings)
    new = ConsumerRecord(WAREHOUSE, settings.warehouse.url)
    raw = store.get(key)
    known = new if raw is None else CONSUMER_READER.read(raw, key)
    place, tried = settings.warehouse_storage, known.tried
    endpoint = place.endpoint or ""
    if place.in_object_store and endpoint not in tried and probe_warehouse(settings):
        tried = (*tried, endpoint)
    if raw is None:
        store.create(key, stored_record(replace(new, tried=tried)))
        raw = store.get(key)
        known = new if raw is None else CONSUMER_READER.read(raw, key)
        tried = tuple(dict.fromkeys((*known.tried, *tried)))
    now = replace(known, ended={**known.ended, **(ended or {})}, tried=tried)
    if now != known:
        store.put(key, stored_record(now))


def removed_after_end(
    settings: Settings, store: ObjectStore, missing: Mapping[str, TableState]
) -> frozenset[str]:
    """Return those of the tables with ``missing`` targets that had ended: the source no longer has
    them, everything was applied, and someone has removed their targets since."""
    gone = {name: table for name, table in missing.items() if table.removed}
    key = warehouse_key(settings)
    raw = store.get(key) if gone else None
    ended = {} if raw is None else CONSUMER_READER.read(raw, key).ended
    return frozenset(name for name, table in gone.items() if _has_ended(name, table, ended))


def _has_ended(name: str, table: TableState, ended: Mapping[str, int]) -> bool:
    """Return whether the source no longer has the table's generation, and all of it was applied."""
    return table.removed and ended.get(name) == table.generation


def warehouse_key(settings: Settings) -> str:
    """Return the key of the record of the settings' warehouse."""
    digest = hashlib.sha256(settings.warehouse.url.encode()).hexdigest()[:16]
    return layout.consumer_key(settings.pipeline, f"{WAREHOUSE}-{digest}")


def register_rebuild(settings: Settings, store: ObjectStore, record: RebuildRecord) -> None:
    """Put a rebuild on record from now on, in the place of an earlier one of the table."""
    url = layout.shadow_url(settings.warehouse.url, record.build)
    made = ConsumerRecord(REBUILD, url, record.table, target=record.target)
    store.put(_rebuild_key(settings, record), stored_record(made))


def register_publisher(settings: Settings, store: ObjectStore, publisher: str) -> None:
    """Put a publisher on record, if it is not: no part is removed that it has not published.
    Idempotent."""
    key = layout.consumer_key(settings.pipeline, f"{PUBLISHER}-{publisher}")
    store.create(key, stored_record(ConsumerRecord(PUBLISHER, "", publisher=publisher)))


def strike_rebuild(
    settings: Settings, store: ObjectStore, record: RebuildRecord, *, unless_built: bool = False
) -> None:
    """Remove the record of a rebuild that has ended, or (``unless_built``) has built nothing yet:
    it needs no part. Idempotent."""
    key = _rebuild_key(settings, record)
    if not (unless_built and _built(settings, record)) and store.exists(key):
        store.delete(key)


def _built(settings: Settings, record: RebuildRecord) -> bool:
    """Return whether there may be a shadow table."""
    try:
        return read_target(made_at(settings, record), "", settings.warehouse_storage).exists
    except Unavailable:
        return True


def made_at(settings: Settings, record: RebuildRecord) -> str:
    """Return the url of the table that a rebuild makes: a shadow table, or a move's new one."""
    of_rebuild = settings.of_rebuild(record.build)
    return record.target or of_rebuild.target_url(parse_table(record.table))


def _rebuild_key(settings: Settings, record: RebuildRecord) -> str:
    name = f"{settings.warehouse.url} {record.table}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return layout.consumer_key(settings.pipeline, f"{REBUILD}-{digest}")


def known_consumers(
    settings: Settings, store: ObjectStore, since: datetime | None = None
) -> list[Consumer]:
    """Return all consumers on record, except rebuilds that took no step after ``since``;
    CorruptData for a record of unknown content."""
    found: list[Consumer] = []
    for entry, record in consumer_records(settings, store):
        if record.kind == WAREHOUSE:
            found.append(WarehouseConsumer(settings, store, entry.key, record.url, record.ended))
        elif record.kind == PUBLISHER:
            found.append(PublisherConsumer(settings, store, entry.key, record.publisher))
        elif since is None or entry.modified >= since:
            url, table, at = record.url, record.table, record.target
            found.append(Rebuilding(settings, store, entry.key, url, table, at))
    return found


def left_behind(settings: Settings, store: ObjectStore, since: datetime) -> list[Entry]:
    """Return the records of rebuilds that took no step after ``since``."""
    return [
        entry
        for entry, record in consumer_records(settings, store)
        if record.kind == REBUILD and entry.modified < since
    ]
