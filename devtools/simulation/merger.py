"""Merge runs: the chain's newest part is planned, folded and merged, again and again.

A run may be killed before or after its commit, run concurrently with another one, have its task
repeated, or lose its commit's answer. The plan's and the commit's rules make that harmless.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from devtools.simulation.active_faults import ActiveFaults
from devtools.simulation.clients import SimulatedClients
from devtools.simulation.faults import Fault
from devtools.simulation.history import MergeCommit, Remerge
from devtools.simulation.scene import Scene
from devtools.simulation.scheduler import Process
from devtools.simulation.tables import LATER, TABLES
from devtools.simulation.warehouse import (
    Conflict,
    Run,
    SimulatedTarget,
    WarehouseParts,
    commit_of,
    digest_table,
    plan_for,
)
from devtools.simulation.wire import index_of
from tideline.contract import layout
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.manifest import (
    Manifest,
    check_entry,
    decode_manifest,
    roll_forward,
)
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import reread_request
from tideline.contract.schema import TableSchema, decode_schema

_EVERY_S = (3.0, 7.0)


class Merger:
    """Brings the warehouse along; ``commits`` has each commit's resulting table."""

    def __init__(
        self, scene: Scene, active_faults: ActiveFaults, simulated_clients: SimulatedClients
    ) -> None:
        self.targets = {name: SimulatedTarget() for name in (*TABLES, LATER)}
        self.commits: list[MergeCommit] = []
        self.trouble: list[Fault] = []
        self.stopping = False
        self.parts = WarehouseParts(scene.bucket.objects)
        self._scene = scene
        self._active_faults = active_faults
        self._simulated_clients = simulated_clients
        self._own = random.Random(f"merger {scene.scenario.seed}")
        self._entries: list[tuple[bytes, Manifest]] = []
        self._schemas: dict[str, TableSchema] = {}
        self._broken = False

    def start(self) -> None:
        self._scene.world.spawn(Process("airflow"), "merges", self._run)

    def _run(self) -> None:
        while not self.stopping:
            healed = self._active_faults.healed
            self._scene.world.sleep(1.5 if healed else self._own.uniform(*_EVERY_S))
            self.round()

    def round(self) -> None:
        """Make one plan, and run it; trouble may change the run."""
        fault = self.trouble.pop(0) if self.trouble else None
        plans, state = self._plan()
        runs = [self._begin(plan) for plan in plans]
        self._scene.world.sleep(self._own.uniform(0.05, 0.6))
        if fault is Fault.DRIVER_KILLED_BEFORE and runs:
            self._active_faults.hit(fault)
            return
        if fault in (Fault.TWO_DRIVERS, Fault.COMPACTION):
            self._race(fault, plans, state)
        for run in runs:
            if run is None:
                continue
            self._commit(run, state)
            if fault is Fault.DRIVER_KILLED_AFTER:
                self._active_faults.hit(fault)
                return
        if fault in (Fault.TASK_RETRIED, Fault.ANSWER_LOST) and plans:
            self._active_faults.hit(fault)
            for plan in plans:
                again = self._begin(plan)
                if again is not None:
                    self._commit(again, state)
        self._ask_pending(state)

    def reached(self, end_of_log: int) -> bool:
        """Return whether a watermark written behind ``end_of_log`` came through and is merged.

        Everything before it is then in the warehouse, without a doubt.
        """
        manifests = self._read()
        if not manifests:
            return False
        tail, state = manifests[-1], self._state(manifests)
        if (
            len(state.tables) < len(self._scene.database.tables)
            or index_of(tail.position) <= end_of_log
        ):
            return False
        for name, table in state.tables.items():
            target = self.targets[name]
            applied = max(target.applied.values(), default=0)
            live = table.condition is TableCondition.ACTIVE
            if self.schema(table.schema or "") != self._scene.database.tables[name].form.schema:
                return False  # A change of its columns has not been noticed yet.
            if not live or applied < table.last_data_manifest:
                return False
            if any(row.pending for row in target.rows.values()):
                return False
        return not state.requests

    @property
    def manifests(self) -> list[Manifest]:
        """Return the chain, as its readers accept it."""
        return self._read()

    def first_seen(self) -> dict[str, int]:
        """Return the log position read when each table's first schema event became durable."""
        first: dict[str, int] = {}
        for manifest in self._read():
            for event in manifest.schema_events:
                first.setdefault(event.table, index_of(manifest.position))
        return first

    # -- reading the chain ---------------------------------------------------------------------

    def _read(self) -> list[Manifest]:
        """Read all manifests, each checked against the one before it."""
        objects = self._scene.bucket.objects
        while not self._broken:
            number = len(self._entries) + 1
            raw = objects.get(layout.manifest_key("sim", number))
            if raw is None:
                break
            manifest = decode_manifest(raw)
            if self._entries:
                try:
                    check_entry(self._entries[-1][1], self._entries[-1][0], manifest)
                except CorruptData as error:
                    self._broken = True
                    self._active_faults.complain("G", f"the chain cannot be read: {error}")
                    break
            self._entries.append((raw, manifest))
        return [manifest for _, manifest in self._entries]

    def _state(self, manifests: list[Manifest]) -> OpenState:
        at = len(manifests) - 1
        while manifests[at].state is None:
            at -= 1
        state = manifests[at].state
        return roll_forward(state or OpenState(), manifests[at + 1 :])

    def schema(self, fingerprint: str) -> TableSchema:
        if fingerprint not in self._schemas:
            raw = self._scene.bucket.objects[layout.schema_key("sim", fingerprint)]
            self._schemas[fingerprint] = decode_schema(raw)
        return self._schemas[fingerprint]

    def _plan(self) -> tuple[list[TablePlan], OpenState]:
        manifests = self._read()
        if not manifests:
            return [], OpenState()
        state = self._state(manifests)
        if not state.tables:
            return [], state
        shown = self._listed(manifests)
        try:
            return list(self._made(self.targets, shown, state).tables), state
        except InvariantBroken:
            if len(shown) == len(manifests):
                raise
            return [], state  # The listing lacks the very first that is needed.

    def _made(
        self,
        targets: Mapping[str, SimulatedTarget],
        manifests: list[Manifest],
        state: OpenState,
        parts_max: int | None = None,
    ) -> Plan:
        wanted = {table.schema for table in state.tables.values()}
        for manifest in manifests:
            wanted |= {part.schema for part in manifest.parts}
            wanted |= {
                one for event in manifest.schema_events for one in (event.before, event.after)
            }
        return plan_for(
            targets,
            manifests,
            state,
            {name: self.schema(name) for name in sorted(filter(None, wanted))},
            last_seqs={one.manifest_number: one.last_seq for _, one in self._entries},
            parts_max=parts_max or self._scene.scenario.parts_max,
        )

    def merge_again(self) -> list[Remerge]:
        """Merge the whole chain once more into new tables, by plans cut otherwise."""
        manifests = self._read()
        state = self._state(manifests)
        targets = {name: SimulatedTarget() for name in (*TABLES, LATER)}
        while plans := self._made(targets, manifests, state, self._own.randint(3, 60)).tables:
            for plan in plans:
                run = Run.begin(plan, targets[plan.table], self.parts, self._scene.flaws)
                if run is not None:
                    run.commit()
        return [
            Remerge(
                name,
                manifests[-1].last_seq,
                digest_table(self.targets[name]),
                digest_table(targets[name]),
            )
            for name in targets
        ]

    def _listed(self, manifests: list[Manifest]) -> list[Manifest]:
        """Return what a stale listing shows of the newest manifests."""
        listed = self._scene.bucket.listed
        if listed is None:
            return manifests
        names, oldest = set(listed), manifests[-1].manifest_number - 6
        shown = [
            one
            for one in manifests
            if one.manifest_number <= oldest
            or layout.manifest_key("sim", one.manifest_number) in names
        ]
        if len(shown) < len(manifests):
            self._active_faults.hit(Fault.STORE_STALE_LIST)
        return shown

    # -- runs ----------------------------------------------------------------------------------

    def _begin(self, plan: TablePlan) -> Run | None:
        try:
            return Run.begin(plan, self.targets[plan.table], self.parts, self._scene.flaws)
        except Conflict:
            return None
        except CorruptData as error:
            self._active_faults.complain("L", str(error))
            return None

    def _commit(self, run: Run, state: OpenState) -> None:
        try:
            run.commit()
        except Conflict:
            return
        self.commits.append(commit_of(run, state))

    def _race(self, fault: Fault, plans: list[TablePlan], state: OpenState) -> None:
        """Let another run of the same plan, or a compaction, commit first."""
        if plans:
            self._active_faults.hit(fault)
        for plan in plans:
            if fault is Fault.COMPACTION:
                self.targets[plan.table].version += 1
                continue
            other = self._begin(plan)
            if other is not None:
                self._commit(other, state)

    def _ask_pending(self, state: OpenState) -> None:
        """Have rows read again whose values no segment had."""
        for name, target in self.targets.items():
            keys = [key for key, row in target.rows.items() if row.pending]
            if keys and state.tables:
                applied = max(target.applied.values(), default=0)
                asked = tuple((str(key[0]),) for key in keys)
                request = reread_request(name, asked, incarnation="simulated", applied=applied)
                self._simulated_clients.ask(request, waits=False)
