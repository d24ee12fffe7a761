"""Orders the tables of aggregates: finds versions of the members' tables that belong together.

A merge brings each table to a manifest of its own in a commit of its own. A version stands for
every manifest from the one that it has applied up to the last one before the table's next change.
So the newest place of the chain at which every member has a version is found by going back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tideline.contract import layout
from tideline.contract.aggregate_tables import (
    SHAPE_PROPERTY,
    AggregateOrder,
    AggregateReceipt,
    AggregateTable,
    MemberVersion,
    aggregate_app,
    decode_aggregate_order,
    decode_aggregate_receipt,
)
from tideline.contract.aggregates import Aggregate, problem, tables
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.external_commits import TableCommit, is_ours
from tideline.contract.manifest import tables_in
from tideline.contract.modes import Mode
from tideline.contract.open_state import TableState
from tideline.contract.plan import app_id
from tideline.contract.printable import command
from tideline.contract.schema import TableSchema, parse_table
from tideline.contract.target_properties import build_of_properties
from tideline.contract.target_url import BIGQUERY, table_format_of
from tideline.planner.chain_index import ChainIndex
from tideline.planner.progress import WarehouseTables, applied_state
from tideline.planner.stored import chosen, existing, read_stored, store_once
from tideline.planner.targets import target_of
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import open_store
from tideline.warehouse.registry import open_reader
from tideline.warehouse.state import TargetState


class _Delayed(Exception):
    """A signal that the aggregate waits; its text says for what."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a table that has applied manifest ``number``, and lacks nothing up to there."""

    version: int
    number: int


def order_aggregates(
    settings: Settings, *, order_id: str, names: Sequence[str] | None = None
) -> AggregateOrder:
    """Return the stored order of ``order_id``, made now if there is none: of all aggregates in the
    settings, or those named.

    Raises Misconfigured for names without a section, for a pipeline without a manifest, and for
    definitions that the members' columns do not fit.
    """
    store = open_store(settings.store)
    key = layout.aggregates_key(settings.pipeline, order_id)
    stored = read_stored(store, key, decode_aggregate_order)
    if stored is not None:
        return stored
    wanted = [settings.aggregates[name].aggregate(name) for name in _known(settings, names)]
    made = _Ordering(settings, Chain(store, settings.pipeline)).order(order_id, wanted)
    return store_once(store, key, made, msgspec.json.encode, decode_aggregate_order)


def read_aggregates(settings: Settings, order_id: str) -> AggregateReceipt | None:
    """Return the receipt of an order; None while no run of it has ended."""
    key = layout.aggregates_receipt_key(settings.pipeline, order_id)
    return read_stored(open_store(settings.store), key, decode_aggregate_receipt)


def _known(settings: Settings, names: Sequence[str] | None) -> list[str]:
    unknown = sorted({*(names or ())} - settings.aggregates.keys())
    if unknown:
        listed = ", ".join(sorted(settings.aggregates)) or "none"
        raise Misconfigured(
            f"there is no aggregate {', '.join(unknown)} in the settings; there are: {listed}",
            hint=f"write a section [aggregates.{unknown[0]}]: docs/AGGREGATES.md",
        )
    if not settings.aggregates:
        raise Misconfigured(
            "the settings have no aggregates",
            hint="write a section [aggregates.NAME]: docs/AGGREGATES.md",
        )
    return sorted({*(names or settings.aggregates)})


class _Ordering:
    """An order in the making."""

    def __init__(self, settings: Settings, chain: Chain) -> None:
        self._settings = settings
        self._chain = chain
        self._index = ChainIndex(chain)
        self._tail = existing(settings, chain.tail())
        self._states: Mapping[str, TableState] = {}
        self._warehouse = WarehouseTables()

    def order(self, order_id: str, aggregates: Sequence[Aggregate]) -> AggregateOrder:
        members = tables(aggregates)
        self._states = chosen(self._chain.open_state(self._tail), members)
        self._warehouse = applied_state(self._settings, members)
        made: list[AggregateTable] = []
        delayed: dict[str, str] = {}
        current: dict[str, int] = {}
        for aggregate in aggregates:
            try:
                table = self._table(aggregate)
            except _Delayed as why:
                delayed[aggregate.name] = str(why)
                continue
            if self._is_current(table):
                current[aggregate.name] = table.manifest
            else:
                made.append(table)
        return AggregateOrder(
            order_id=order_id,
            pipeline=self._settings.pipeline,
            incarnation=self._tail.manifest.incarnation,
            tables=tuple(made),
            delayed=delayed,
            current=current,
        )

    def _table(self, aggregate: Aggregate) -> AggregateTable:
        targets = {name: self._target(name) for name in tables([aggregate])}
        place, versions = self._common(targets)
        entry = self._chain.read(place)
        if entry is None:
            raise CorruptData(f"manifest {place} is missing")
        schemas = self._schemas(entry, targets)
        wrong = problem(aggregate, schemas)
        if wrong is not None:
            raise Misconfigured(wrong, hint="docs/AGGREGATES.md says what members need")
        root = self._settings.of_table(parse_table(aggregate.root.table))
        return AggregateTable(
            aggregate=aggregate,
            target=layout.aggregate_url(self._settings.warehouse.url, aggregate.name),
            manifest=place,
            seq=entry.manifest.last_seq,
            digest=entry.digest,
            through_us=entry.manifest.through_us,
            members={
                name: MemberVersion(target.url, versions[name].version, schemas[name], target.mode)
                for name, target in targets.items()
            },
            deletion_vectors=root.vectors,
        )

    def _target(self, name: str) -> TargetState:
        """Return the member's target; raises `_Delayed` where it is not what the source has."""
        status = self._warehouse.tables.get(name)
        if status is None or self._states[name].schema is None:
            raise _Delayed(f"{name} has not been captured yet")
        target = target_of(self._settings, self._tail.manifest, name, self._states[name])
        if target.applied is None:
            raise _Delayed(f"{name} is not merged yet: `tideline merge`")
        if table_format_of(target.url) == BIGQUERY:
            raise Misconfigured(
                f"{name} is a table of BigQuery, and aggregates are joined where Spark reads"
                " tables itself",
                hint="make a view there; or publish the documents (docs/AGGREGATES.md)",
            )
        if target.mode is Mode.APPEND:
            raise Misconfigured(
                f"{name} is kept as a log of changes, which has no rows to join",
                hint=f"{command('rebuild', name, '--mode', 'current')} switches it",
            )
        doubt = self._warehouse.doubt(name)
        if doubt is not None:
            raise _Delayed(f"{name}: {doubt}")
        return target

    def _common(self, targets: Mapping[str, TargetState]) -> tuple[int, Mapping[str, _Version]]:
        """Return the newest manifest at which every target has a version, and these."""
        older = {name: self._versions(name, target) for name, target in targets.items()}
        found = {name: _next(name, versions) for name, versions in older.items()}
        place = self._tail.manifest.manifest_number
        while True:
            for name in found:
                while found[name].number > place:
                    found[name] = _next(name, older[name])
            ends = [self._last_before(name, one.number) for name, one in found.items()]
            if min(ends) >= place:
                return place, found
            place = min(ends)

    def _versions(self, name: str, target: TargetState) -> Iterator[_Version]:
        """Yield the versions of the target that are complete, newest first."""
        manifest = self._tail.manifest
        generation = self._states[name].generation
        app = app_id(manifest.pipeline, manifest.incarnation, name, generation, target.build)
        reader = open_reader(target.url, self._settings.warehouse_storage)
        found = False
        for one in complete_versions(() if reader is None else reader.commits(), app):
            found = True
            yield one
        if not found and target.commit_metadata is None and target.standing is not None:
            # The log has lost our last commit: it is that old.
            yield _Version(target.version, target.standing.to_manifest)

    def _last_before(self, name: str, number: int) -> int:
        """Return the last manifest after ``number`` before the next that holds anything of the
        table; that number itself where the next one does."""
        last = self._states[name].last_data_manifest
        if last <= number:
            return self._tail.manifest.manifest_number
        clear = self._index.clear_until(name, number, last)
        for entry in self._chain.entries(clear + 1, last):
            if name in tables_in(entry.manifest):
                return entry.manifest.manifest_number - 1
        raise CorruptData(f"no manifest up to {last} holds anything of {name}")

    def _schemas(self, entry: ManifestEntry, targets: Iterable[str]) -> dict[str, TableSchema]:
        state = self._chain.open_state(entry)
        found = {name: state.tables[name].schema or "" for name in targets}
        return {name: self._chain.read_schema(one) for name, one in found.items()}

    def _is_current(self, table: AggregateTable) -> bool:
        """Return whether the aggregate's table has these documents already."""
        reader = open_reader(table.target, self._settings.warehouse_storage)
        if reader is None or reader.properties.get(SHAPE_PROPERTY) != table.shape:
            return False
        manifest = self._tail.manifest
        build = build_of_properties(reader.properties)
        app = aggregate_app(manifest.pipeline, manifest.incarnation, table.aggregate, build)
        applied = reader.applied(app)
        return applied is not None and all(
            self._last_before(name, applied) >= table.manifest for name in table.members
        )


def complete_versions(commits: Iterable[TableCommit], app: str) -> Iterator[_Version]:
    """Yield, newest first, the versions between ``commits``' merges for ``app`` in which nothing is
    missing: of those that hold one merge's rows the newest, because maintenance removes files that
    only older ones need."""
    newest: int | None = None
    for commit in commits:
        number = commit.numbers.get(app)
        if number is not None:
            record = commit.commit_metadata
            if record is not None and record.complete_through_us is not None:
                yield _Version(commit.version if newest is None else newest, number)
            newest = None
        elif commit.changes_data or is_ours(commit, app):
            newest = None
        elif newest is None:
            newest = commit.version


def _next(name: str, versions: Iterator[_Version]) -> _Version:
    found = next(versions, None)
    if found is None:
        raise _Delayed(
            f"{name} has no version of a place that the other tables have, too: merge all of them"
            " with one `tideline merge`; where a first dump is under way, once it has ended"
        )
    return found
