"""Makes verification plans: the verification parts and the version of a target to compare.

A table can be compared once everything before its last chunk's high watermark is merged. From there
on any version of the target will do: changes in between are in parts, and their keys are set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, Part, VerificationChunk
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import Plan, app_id
from tideline.contract.planning.table_plans import planned_part
from tideline.contract.request import DumpRequest
from tideline.contract.schema import TableSchema
from tideline.contract.verification import (
    Scope,
    TableComparison,
    VerifyPlan,
    decode_verify_plan,
    encode_verify_plan,
)
from tideline.planner.chain_index import ChainIndex
from tideline.planner.concurrent_changes import ConcurrentChanges, NotComparable, check_table
from tideline.planner.merges import Planning
from tideline.planner.stored import existing, read_stored, store_once
from tideline.planner.targets import target_of
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore, open_store

_BACK = 64
"""Number of manifests that are read at once, on the way back to where a verification began."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan; or (``waiting``) the tables that must be merged before it can be made."""

    plan: VerifyPlan
    waiting: tuple[str, ...]


def plan_verification(
    settings: Settings,
    request_id: str,
    *,
    verify_id: str,
    finished_in: int,
    tables: Sequence[str],
    failed: Mapping[str, str] | None = None,
    last_call: bool = False,
) -> Planned:
    """Return the stored plan of ``verify_id``, made now if there is none: of ``tables``, whose
    chunks the worker has read for the request, which ended in manifest ``finished_in``.

    Nothing is stored while it waits for tables. Those whose merge has ``failed`` (with the error)
    are delayed instead, with the reason; on the ``last_call`` all are. Raises CorruptData for
    chunks that the chain does not have.
    """
    store = open_store(settings.store)
    key = layout.verification_plan_key(settings.pipeline, verify_id)
    stored = read_stored(store, key, decode_verify_plan)
    if stored is not None:
        return Planned(stored, ())
    planned = _VerificationPlanning(settings, store).plan(
        request_id, verify_id, finished_in, tables
    )
    failed = failed or {}
    waiting = tuple(name for name in planned.waiting if name not in failed)
    if waiting and not last_call:
        return Planned(planned.plan, waiting)
    late = dict.fromkeys(planned.waiting, f"it is not merged up to manifest {finished_in}")
    late |= {name: f"{late[name]}: {failed[name]}" for name in late if name in failed}
    plan = replace(planned.plan, delayed={**late, **planned.plan.delayed})
    return Planned(store_once(store, key, plan, encode_verify_plan, decode_verify_plan), ())


def stuck(settings: Settings, tables: Sequence[str]) -> Mapping[str, str]:
    """Return those of ``tables`` that cannot be compared, because no merge advances them, and why.
    Nothing need be read of them. Names that the chain does not know are left out."""
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    known = {} if tail is None else chain.open_state(tail).tables
    chosen = [name for name in tables if name in known]
    return _delayed(Planning(settings, store).plan("look", chosen)) if chosen else {}


def _delayed(plan: Plan) -> dict[str, str]:
    planned = {table.table for table in plan.tables}
    return {name: why for name, why in plan.delayed.items() if name not in planned}


class _MergeFirst(Exception):
    """A signal that the table is to be merged first."""


class _VerificationPlanning:
    """A verification's plan in the making."""

    def __init__(self, settings: Settings, store: ObjectStore) -> None:
        self._settings = settings
        self._store = store
        self._chain = Chain(store, settings.pipeline)
        self._chain_index = ChainIndex(self._chain)

    def plan(
        self, request_id: str, verify_id: str, finished_in: int, tables: Sequence[str]
    ) -> Planned:
        tail = existing(self._settings, self._chain.tail(finished_in))
        asked, chunks = self._chunks(request_id, finished_in, tables)
        made, waiting, delayed = [], [], {}
        for name in tables:
            try:
                made.append(self._table(asked, name, chunks[name], tail))
            except NotComparable as why:
                delayed[name] = str(why)
            except _MergeFirst:
                waiting.append(name)
        stuck = self._stuck(verify_id, waiting)
        delayed |= stuck
        plan = VerifyPlan(
            verify_id=verify_id,
            pipeline=self._settings.pipeline,
            incarnation=tail.manifest.incarnation,
            store_url=self._settings.store.url,
            request_id=request_id,
            tables=tuple(made),
            delayed=delayed,
        )
        return Planned(plan, tuple(name for name in waiting if name not in stuck))

    def _stuck(self, verify_id: str, waiting: Sequence[str]) -> dict[str, str]:
        """Return those of the ``waiting`` tables that no merge advances, and why."""
        if not waiting:
            return {}
        return _delayed(Planning(self._settings, self._store).plan(verify_id, waiting))

    def _chunks(
        self, request_id: str, finished_in: int, tables: Sequence[str]
    ) -> tuple[_Asked, Mapping[str, list[_FoundChunk]]]:
        """Return the request, and the chunks of each table, in order, with the manifests that name
        them.

        The search goes backwards, up to the manifest that accepted the request. Where the worker
        had to begin again, the later chunk of a number counts.
        """
        found: dict[str, dict[int, _FoundChunk]] = {name: {} for name in tables}
        last = finished_in
        while last >= 1:
            first = max(1, last - _BACK + 1)
            entries = list(self._chain.entries(first, last))
            for entry in reversed(entries):
                for chunk in reversed(entry.manifest.verification_chunks):
                    if chunk.request_id == request_id and chunk.table in found:
                        one = _FoundChunk(chunk, entry.manifest)
                        found[chunk.table].setdefault(chunk.chunk, one)
            begun = [entry.manifest for entry in entries if request_id in entry.manifest.accepted]
            if begun:
                asked = _Asked(_accepted(begun[0], request_id), begun[0].manifest_number)
                return asked, {name: _whole(name, chunks) for name, chunks in found.items()}
            last = first - 1
        raise CorruptData(f"no manifest up to {finished_in} has accepted request {request_id}")

    def _table(
        self, asked: _Asked, name: str, found: Sequence[_FoundChunk], tail: ManifestEntry
    ) -> TableComparison:
        request = asked.request
        last = found[-1].manifest
        then = self._state_at(last.manifest_number)
        now = self._chain.open_state(tail).tables.get(name, TableState())
        state = then.tables.get(name, TableState())
        target = target_of(self._settings, tail.manifest, name, now)
        check_table(name, state, now, target, tail.manifest, self._chain_index)
        number = target.applied
        if number is None or number < state.last_data_manifest:
            raise _MergeFirst
        applied = max(number, last.manifest_number)
        chunks = [one.chunk for one in found]
        low = min(chunk.low_seq for chunk in chunks)
        if len({chunk.schema for chunk in chunks}) > 1:
            raise NotComparable("its columns changed meanwhile: verify again")
        changes = self._changes_since(name, low, found[0].manifest, applied)
        touched, end = changes.touched, changes.end
        if end is None:
            raise CorruptData(f"manifest {applied} is missing")
        return TableComparison(
            table=name,
            target=target.url,
            target_version=target.version,
            app_id=app_id(end.pipeline, end.incarnation, name, now.generation, target.build),
            number=number,
            schema=self._chain.read_schema(chunks[-1].schema),
            chunks=tuple(chunks),
            low_seq=low,
            applied=applied,
            applied_seq=end.last_seq,
            touched=tuple(planned_part(part) for part in touched),
            schemas=self._schemas(touched),
            source_time_us=end.through_us,
            scope=_scope(request),
            key_range=request.key_range,
            sample_percent=request.sample_percent,
            doubts=self._doubts_before(asked, name),
        )

    def _doubts_before(self, asked: _Asked, name: str) -> int:
        """Return how often the table had been in doubt before the request was accepted: no chunk
        was read before that. A doubt in the same manifest may have come behind a chunk."""
        if asked.manifest_number <= 1:
            return 0
        before = self._state_at(asked.manifest_number - 1)
        return before.tables.get(name, TableState()).doubts

    def _state_at(self, number: int) -> OpenState:
        entry = self._chain.read(number)
        if entry is None:
            raise CorruptData(f"manifest {number} is missing")
        return self._chain.open_state(entry)

    def _changes_since(
        self, name: str, low: int, first: Manifest, applied: int
    ) -> ConcurrentChanges:
        """Collect the table's changes after sequence ``low`` in the manifests up to ``applied``;
        ``first`` is one that is not before it. Raises NotComparable."""
        begin = min(first.manifest_number, applied)
        while begin > 1:
            entry = self._chain.read(begin)
            if entry is None:
                raise CorruptData(f"manifest {begin} is missing")
            if entry.manifest.first_seq <= low + 1:
                break
            begin -= 1
        found = ConcurrentChanges(name, low)
        for entry in self._chain.entries(begin, applied):
            found.look(entry.manifest)
        return found

    def _schemas(self, parts: Iterable[Part]) -> dict[str, TableSchema]:
        names = sorted({part.schema for part in parts})
        return {name: self._chain.read_schema(name) for name in names}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request, and the manifest that accepted it."""

    request: DumpRequest
    manifest_number: int


@dataclass(frozen=True, slots=True)
class _FoundChunk:
    chunk: VerificationChunk
    manifest: Manifest


def _accepted(manifest: Manifest, request_id: str) -> DumpRequest:
    """Return the request, from the open state of the manifest that accepted it."""
    for item in () if manifest.state is None else manifest.state.requests:
        if item.request.request_id == request_id and item.request.verifies:
            return item.request
    raise CorruptData(
        f"manifest {manifest.manifest_number} has no open request {request_id} to verify"
    )


def _whole(table: str, chunks: Mapping[int, _FoundChunk]) -> list[_FoundChunk]:
    """Return the chunks in order; CorruptData unless they are all there."""
    count = next((n + 1 for n in sorted(chunks) if chunks[n].chunk.complete), 0)
    if not count or any(number not in chunks for number in range(count)):
        raise CorruptData(
            f"the chain lacks verification parts of {table}",
            hint="verify the table again; `tideline inspect manifests` shows what there is",
        )
    return [chunks[number] for number in range(count)]


def _scope(request: DumpRequest) -> Scope:
    if request.keys is not None:
        return Scope.KEYS
    if request.sample_percent not in (None, 100):
        return Scope.SAMPLE
    return Scope.RANGE if request.ranged else Scope.WHOLE
