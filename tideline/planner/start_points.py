"""Finds where each table's plan starts: what its target has applied, and what it must not reach.

Content of a target that cannot be restored is never dropped here. So a table that keeps a past is
not recreated as another generation, and one that the source no longer has, and whose target someone
removed, is not recreated at all, unless it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Manifest, tables_in
from tideline.contract.modes import Mode
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.plan import Applied, start_of
from tideline.contract.planning.stops import FOLLOW_ALL, Policy, Stop, first_stop
from tideline.contract.readers import lacking
from tideline.contract.schema import TableSchema, parse_table
from tideline.planner.applied_chain import strayed
from tideline.planner.chain_index import ChainIndex
from tideline.planner.consumers import removed_after_end
from tideline.planner.history_parts import (
    gone_for_good,
    lost_history_remedy,
    parts_lost,
    recreate_refusal,
)
from tideline.planner.layouts import limited, unmakeable
from tideline.planner.policies import policy_of
from tideline.planner.read_inputs import MANIFESTS_MAX, Needs
from tideline.planner.targets import not_in_use, other_owner, target_at, target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.warehouse.state import TargetState

_FAR_BACK = "the target was set back (RESTORE) and is far behind: remove the table"


@dataclass(frozen=True, slots=True)
class Start:
    """The applied state of a table, and the first manifest that a plan needs (None: none).

    ``stop``: the schema event that it stands before, and must not reach. ``counted``: it has no
    key; a copy of such a table is not cut. ``described``: the description that its target has, and
    ``url`` where that is.
    """

    applied: Applied
    first: int | None
    policy: Policy = FOLLOW_ALL
    stop: Stop | None = None
    counted: bool = False
    described: str | None = None
    url: str = ""

    @property
    def waits(self) -> bool:
        return self.first is not None

    def wanted(self, table: TableState) -> Needs:
        """Return the needs of the table: what is to be read for it."""
        applied = self.applied
        start_seq = max(applied.begin_seq, table.generation_seq) if applied.manifest is None else 0
        return Needs(
            from_manifest=start_of(table, applied.manifest, applied.begin_manifest),
            begin_seq=start_seq,
            uncut=applied.went_back or applied.columns_seq > applied.seq or self.counted,
            before_seq=table.since_seq
            if table.condition is TableCondition.SCHEMA_BLOCKED
            else None,
            policy=self.policy,
            stops_above=max(applied.seq, start_seq, applied.columns_seq),
        )

    def starved(self, to_manifest: int) -> bool:
        """Return whether a plan that ends at ``to_manifest`` gives this table nothing although
        something waits."""
        return self.first is not None and self.first > to_manifest


class StartPoints:
    """The starts of one plan's tables. A new target is made as rebuild ``build``; with
    ``since_dump`` it begins with the latest full dump, whatever its mode. ``at``: the url of the
    plan's one target, which is not the one in use."""

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        chain: Chain,
        *,
        build: int = 0,
        since_dump: bool = False,
        at: str | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._build = build
        self._since_dump = since_dump
        self._at = at
        self._chain = chain
        self._chain_index = ChainIndex(self._chain)
        self._schemas: dict[str, TableSchema] = {}

    def schema(self, fingerprint: str) -> TableSchema:
        """Return the schema of that fingerprint, which is read once."""
        if fingerprint not in self._schemas:
            self._schemas[fingerprint] = self._chain.read_schema(fingerprint)
        return self._schemas[fingerprint]

    def of(
        self, tables: Mapping[str, TableState], tail: Manifest, named: Collection[str] = ()
    ) -> dict[str, Start]:
        """Return the starts by table; those without a schema have none. ``named``: the ones that
        were asked for.

        Raises Misconfigured, naming all of them, for targets that belong to another history.
        """
        earlier = self._earlier_state(tail)
        targets = {
            name: self._target(tail, name, table)
            for name, table in tables.items()
            if table.schema is not None
        }
        owners = [other_owner(target, tail, name) for name, target in targets.items()]
        others = [owner for owner in owners if owner is not None]
        if others:
            raise Misconfigured(
                f"{len(others)} targets belong to another history than pipeline {tail.pipeline},"
                f" incarnation {tail.incarnation}: {'; '.join(others)}",
                hint="remove or move these tables to have them rebuilt, or name another"
                " warehouse.url",
            )
        missing = {n: tables[n] for n, target in targets.items() if not target.exists}
        ended = removed_after_end(self._settings, self._store, missing)
        starts = {
            name: Start(Applied(problem=gone_for_good(name)), None)
            if name in ended and name not in named
            else self._start(name, tables[name], target, tail, earlier.tables.get(name))
            for name, target in targets.items()
        }
        return {name: replace(one, url=targets[name].url) for name, one in starts.items()}

    def _target(self, tail: Manifest, name: str, table: TableState) -> TargetState:
        if self._at is None:
            return target_of(self._settings, tail, name, table)
        return target_at(self._settings, tail, name, table, self._at)

    def _start(
        self,
        name: str,
        table: TableState,
        target: TargetState,
        tail: Manifest,
        earlier: TableState | None,
    ) -> Start:
        wanted = self._settings.of_table(parse_table(name))
        # A target stays as it was made; only a new one follows the settings.
        mode = target.mode if target.exists else wanted.mode
        other = strayed(self._chain_index, tail, name, target, shadow=self._build > 0)
        if other:
            return Start(Applied(exists=True, problem=other, strayed=True), None)
        away = not_in_use(target, name) if self._at is None else None
        if away is not None:
            return Start(Applied(exists=True, problem=away), None)
        loses = recreate_refusal(name, table, target, wanted.mode)
        if loses is not None:
            return Start(Applied(exists=True, problem=loses), None)
        new = target.applied is None
        layout = wanted.layout if new else target.layout
        if new and limited(wanted, target):
            wrong = unmakeable(self.schema(table.schema or ""), wanted, mode, target)
            if wrong is not None:
                return Start(Applied(exists=target.exists, problem=wrong), None)
        begin = None
        if new:
            begin = self._chain_index.full_dump(name, table, tail.manifest_number)
        if begin is not None and mode.keeps_history and not self._since_dump:
            lost = parts_lost(self._chain, self._store, name, table, begin.begin_manifest)
            if lost is not None:
                seq = begin.first_low_seq
                problem = lost_history_remedy(name, mode, lost, seq, rebuilding=self._build > 0)
                return Start(Applied(exists=target.exists, problem=problem), None)
            begin = None
        begin_manifest = 0 if begin is None else begin.begin_manifest
        from_manifest = start_of(table, target.applied, begin_manifest)
        if target.went_back and tail.manifest_number - from_manifest > MANIFESTS_MAX:
            return Start(Applied(manifest=from_manifest, exists=True, problem=_FAR_BACK), None)
        clear_until = self._clear_until(name, table, tail, from_manifest, earlier)
        lacks = lacking(wanted.readers, partitioned=layout.partitioned(mode))
        applied = Applied(
            manifest=target.applied,
            seq=0 if from_manifest == 0 else self._chain_index.manifest(from_manifest).last_seq,
            exists=target.exists,
            clear_until=clear_until,
            went_back=target.went_back,
            begin_manifest=begin_manifest,
            begin_seq=0 if begin is None else begin.first_low_seq,
            columns_seq=target.columns_seq if target.applied is not None else 0,
            mode=mode,
            build=target.build if target.exists else self._build,
            deletion_vectors=target.deletion_vectors if target.exists else wanted.vectors,
            layout=layout,
            without=tuple(f for f in lacks if new or f not in target.features),
            digest="" if target.applied is None else self._chain_index.digest(from_manifest),
        )
        policy = policy_of(self._settings, name, target)
        start = self._stopped(name, table, tail, from_manifest, applied, policy)
        return replace(start, described=target.described)

    def _clear_until(
        self,
        name: str,
        table: TableState,
        tail: Manifest,
        from_manifest: int,
        earlier: TableState | None,
    ) -> int:
        """Return a manifest up to which none after ``from_manifest`` holds anything of the table
        that it may take."""
        if self._stands_at_block(table, from_manifest):
            return tail.manifest_number
        clear = earlier is None or earlier.last_data_manifest <= from_manifest
        if tail.state_at is not None and clear:
            return tail.state_at
        last = table.last_data_manifest
        if from_manifest >= last:
            return 0
        return self._chain_index.clear_until(name, from_manifest, last)

    def _stopped(
        self,
        name: str,
        table: TableState,
        tail: Manifest,
        from_manifest: int,
        applied: Applied,
        policy: Policy,
    ) -> Start:
        """Return the start, with the event that it stands before and must not reach, if there is
        one."""
        clear_until, last = applied.clear_until, table.last_data_manifest
        stop = None
        if policy.stops and max(from_manifest, clear_until) < last:
            start_seq = table.generation_seq if applied.manifest is None else 0
            above = max(applied.seq, applied.begin_seq, applied.columns_seq, start_seq)
            stop = self._next_stop(name, policy, above, (max(from_manifest, clear_until), last))
        if stop is not None:
            clear_until = tail.manifest_number
            applied = msgspec.structs.replace(applied, clear_until=clear_until)
        moved = last > from_manifest and clear_until < tail.manifest_number
        counted = moved and applied.mode is Mode.CURRENT and self._has_no_key(table)
        first = max(from_manifest, clear_until) + 1 if moved else None
        return Start(applied, first, policy, stop, counted)

    def _has_no_key(self, table: TableState) -> bool:
        """Return whether the table has no key, by its schema alone: settings may have changed
        since."""
        return table.schema is not None and not self.schema(table.schema).key

    def _next_stop(
        self, name: str, policy: Policy, above: int, within: tuple[int, int]
    ) -> Stop | None:
        """Return the event after sequence ``above`` that the table must not reach, if it is in the
        next manifest that holds anything of it; ``within`` are a manifest before that one, and one
        at or behind it."""
        for manifest_range in self._chain.ranges(within[0] + 1, within[1]):
            for entry in manifest_range.entries:
                if name in tables_in(entry.manifest):
                    return first_stop([entry.manifest], name, policy, above)
        return None

    def _stands_at_block(self, table: TableState, from_manifest: int) -> bool:
        """Return whether the next manifest is the one that a blocked table stops before."""
        if table.condition is not TableCondition.SCHEMA_BLOCKED or table.since_seq is None:
            return False
        following = self._chain.read(from_manifest + 1)
        return following is not None and following.manifest.last_seq >= table.since_seq

    def _earlier_state(self, tail: Manifest) -> OpenState:
        """Return the newest full open state behind the tail: what had data by then is known from
        it."""
        return OpenState() if tail.state_at is None else self._chain_index.known(tail.state_at)[1]
