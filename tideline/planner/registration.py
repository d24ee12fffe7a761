"""Registers the warehouse's tables in the catalog, after merges and rebuilds.

What is registered follows from a table's own log and the settings, never from a merge's result: a
run that is killed before it comes to this, or finds the catalog away, leaves nothing to make up for
but the next run's same work. An entry that is as it should be costs a look; a table's content is
never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from msgspec.structs import replace

from tideline.catalog.base import Catalog, CatalogEntry, CatalogTable, same_place
from tideline.catalog.names import CatalogName, names_of
from tideline.catalog.registry import kind_of, open_catalog
from tideline.catalog.spark_table import path_of
from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import TableState
from tideline.contract.printable import toml_text
from tideline.contract.receipt import DONE, Receipt
from tideline.contract.target_properties import DEFAULT_FORMAT, Owner, owner_of
from tideline.contract.target_url import table_format_of
from tideline.planner.targets import live_url
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.warehouse.access import trust
from tideline.warehouse.registry import open_reader

_NOTHING = "nothing is registered in the catalog"
_LOOKS_AT_ONCE = 16
_TRIES = 2
"""Another run of ours may be faster with a new entry: it is looked at once more."""


@dataclass(frozen=True, slots=True)
class Registration:
    """``made`` are the entries that were created or changed, by table; ``problems`` say why a table
    is not registered as it should be, and ``failed`` why nothing could be registered."""

    made: Mapping[str, CatalogName] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    failed: str | None = None

    def lines(self) -> list[str]:
        """Return the problems as lines of text."""
        lines = [f"{table}: {text}" for table, text in sorted(self.problems.items())]
        return lines if self.failed is None else [self.failed, *lines]

    def added_to(self, receipt: Receipt) -> Receipt:
        """Return the receipt with the problems as warnings: with the tables that it has, and of
        all others in its own."""
        merged = {one.table for one in receipt.tables if one.outcome in DONE}
        found = dict(self.problems)
        if self.failed is not None:
            found = dict.fromkeys(merged, self.failed) | found
        tables = tuple(
            replace(one, warnings=(*one.warnings, found[one.table]))
            if one.table in merged & set(found)
            else one
            for one in receipt.tables
        )
        others = [
            f"{table}: {text}" for table, text in sorted(found.items()) if table not in merged
        ]
        if self.failed is not None and not merged:
            others.insert(0, self.failed)
        return replace(receipt, tables=tables, warnings=(*receipt.warnings, *others))


def register(settings: Settings, tables: Collection[str] | None = None) -> Registration:
    """Bring the catalog's entries up to date: of all tables that are merged, or of ``tables``.

    Raises nothing: no merge fails because of its catalog.
    """
    if kind_of(settings) is None:
        return Registration()
    try:
        return _Registering(settings).run(tables)
    except TidelineError as error:
        return Registration(failed=f"{_NOTHING}: {error}")
    except Exception as error:  # noqa: BLE001  of a client's: its text may hold anything
        return Registration(failed=f"{_NOTHING}: {type(error).__name__}")


def unregistered(settings: Settings) -> Registration:
    """Return what `register` would do, as ``made``, and what keeps it from that. Changes nothing.

    Raises Unavailable and Misconfigured where the catalog cannot be asked.
    """
    return _Registering(settings, dry=True).run(None)


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """An entry of the pipeline's ``table``, to be removed; ``owner`` is what it says itself."""

    name: CatalogName
    table: str
    owner: Owner


def own_entries(settings: Settings, incarnation: str | None) -> list[OwnEntry]:
    """Return the entries of the pipeline's tables that are its own, and of this ``incarnation``
    where that is known: those with the names that the settings give the chain's tables."""
    kind = kind_of(settings)
    if kind is None:
        return []
    tables, _ = _tables(settings)
    names = names_of(settings, tables, kind.rule).names
    with open_catalog(settings) as catalog:
        found = catalog.find(names.values())
    every = [
        OwnEntry(name, table, found[name].owner)
        for table, name in sorted(names.items())
        if name in found
    ]
    pipeline = settings.pipeline
    return [
        one
        for one in every
        if (one.owner[0], one.owner[2]) == (pipeline, one.table)
        and incarnation in (None, one.owner[1])
    ]


def drop_entry(settings: Settings, own: OwnEntry) -> None:
    """Remove an entry of `own_entries`, unless it is another one by now. Raises as `Catalog`
    does."""
    with open_catalog(settings) as catalog:
        found = catalog.find([own.name]).get(own.name)
        if found is not None and found.owner == own.owner:
            catalog.drop(own.name)


class _Registering:
    """One run of it. ``dry``: it only looks."""

    def __init__(self, settings: Settings, *, dry: bool = False) -> None:
        self._settings = settings
        self._dry = dry
        self._made: dict[str, CatalogName] = {}
        self._problems: dict[str, str] = {}

    def run(self, tables: Collection[str] | None) -> Registration:
        settings, kind = self._settings, kind_of(self._settings)
        known, tail = _tables(settings)
        if kind is None or tail is None:
            return Registration()
        names = names_of(settings, known, kind.rule)
        scope = [name for name in sorted(known) if tables is None or name in tables]
        wanted = dict(self._wanted(scope, tail))
        refused = {name: names.refused[name] for name in wanted if name in names.refused}
        self._problems |= {name: f"it is not registered: {why}" for name, why in refused.items()}
        named = {name: names.names[name] for name in wanted if name not in refused}
        with open_catalog(settings) as catalog:
            found = catalog.find(named.values())
            away: Unavailable | None = None
            for table, name in named.items():
                try:
                    if away is not None:  # Each further try would wait as long.
                        raise away
                    self._one(catalog, table, name, wanted[table], found.get(name))
                except TidelineError as error:
                    away = error if isinstance(error, Unavailable) else None
                    self._problems[table] = f"it is not registered as {name}: {error}"
        return Registration(self._made, self._problems)

    def _wanted(
        self, tables: Collection[str], tail: Manifest
    ) -> Iterator[tuple[str, CatalogTable]]:
        """Yield the tables that exist in the warehouse and are ours, as they are to be
        registered. To read one's log takes a few requests, one after the other."""
        trust(self._settings.warehouse_storage)  # Changes the environment: not in threads.
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
            looks = [(name, pool.submit(self._look, name, tail)) for name in tables]
        for name, look in looks:
            try:
                found = look.result()
            except TidelineError as error:
                self._problems[name] = f"it is not registered: {error}"
            else:
                if found is not None:
                    yield name, found

    def _look(self, name: str, tail: Manifest) -> CatalogTable | None:
        url = live_url(self._settings, name)
        if table_format_of(url) != DEFAULT_FORMAT:  # It has a name in a catalog of its own.
            return None
        reader = open_reader(url, self._settings.warehouse_storage)
        if reader is None:
            return None
        owner = owner_of(reader.properties)
        if owner != (tail.pipeline, tail.incarnation, name):
            return None
        columns = tuple(reader.columns())
        return CatalogTable(url, DEFAULT_FORMAT, owner, columns, reader.comment)

    def _one(
        self,
        catalog: Catalog,
        table: str,
        name: CatalogName,
        wanted: CatalogTable,
        found: CatalogEntry | None,
    ) -> None:
        for _ in range(_TRIES):
            if found is not None:
                self._known(catalog, table, name, wanted, found)
                return
            if self._dry or catalog.create(name, wanted):
                self._made[table] = name
                return
            found = catalog.find([name]).get(name)
        self._problems[table] = (
            f"it is not registered: {name} is taken in the catalog by what this login is not shown"
        )

    def _known(
        self,
        catalog: Catalog,
        table: str,
        name: CatalogName,
        wanted: CatalogTable,
        found: CatalogEntry,
    ) -> None:
        """Update an existing entry that is ours; leave any other, and name it."""
        stranger = _stranger(name, table, wanted, found)
        if stranger is not None:
            self._problems[table] = f"it is not registered: {stranger}"
        elif found.fingerprint != wanted.fingerprint:
            if not self._dry:
                catalog.update(name, wanted)
            self._made[table] = name


def _stranger(
    name: CatalogName, table: str, wanted: CatalogTable, found: CatalogEntry
) -> str | None:
    """Return whose the entry is that has our name; None where it is this table's.

    Its incarnation may be an earlier one: the table at the address is of this one.
    """
    pipeline, _, theirs = found.owner
    at = found.location or "no address"
    here = any(
        same_place(found.location, one) for one in (wanted.location, path_of(wanted.location))
    )
    ours = (pipeline, theirs) == (wanted.owner[0], table)
    if ours and here:
        return None
    rename = f"give this table another name: [tables.{toml_text(table)}] catalog_name ="
    rename = f"{rename} 'schema.table', or warehouse.catalog.table_name"
    if ours:
        return (
            f"{name} in the catalog is this table at another address, {at}, or that of another"
            f" pipeline {pipeline}; drop it there if it is given up, or {rename}"
        )
    if pipeline:
        return f"{name} in the catalog is {theirs} of pipeline {pipeline}, at {at}; {rename}"
    drop = "drop it there (a table's files stay), or " if here else ""
    return f"{name} in the catalog is someone else's, at {at}; {drop}{rename}"


def _tables(settings: Settings) -> tuple[Mapping[str, TableState], Manifest | None]:
    """Return the chain's tables with a schema, and its tail."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    entry = chain.tail()
    if entry is None:
        return {}, None
    tables = chain.open_state(entry).tables
    known = {name: one for name, one in tables.items() if one.schema is not None}
    return known, entry.manifest
