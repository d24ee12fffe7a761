"""One run: two workers, a source, a store, Redis and a warehouse, on virtual time.

The workers are the product's own, in simulated surroundings, with their threads as tasks.
`simulate` runs a scenario, heals what is broken, waits until everything has arrived, and returns
the history for the oracle to judge.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn, cast

import structlog
from redis import Redis

from devtools.simulation.active_faults import ActiveFaults
from devtools.simulation.adversary import Adversary
from devtools.simulation.collect import collect
from devtools.simulation.history import AppendOutcome, Attempt, Liveness, RunHistory, Violation
from devtools.simulation.oracle import check
from devtools.simulation.redis import SimulatedRedis
from devtools.simulation.scenario import Scenario
from devtools.simulation.scheduler import Process
from devtools.simulation.source import SimulatedSource
from devtools.simulation.stage import SimulatedStage
from devtools.simulation.storage import SimulatedClient
from devtools.simulation.system import SequentialSystem, SimulatedSystem
from devtools.simulation.workload import load, spawn
from tideline.contract.errors import Fenced, TidelineError
from tideline.contract.manifest import Manifest
from tideline.contract.schema import Verdict
from tideline.settings import Store
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore
from tideline.system import System
from tideline_capture.app import Surroundings, run_within
from tideline_capture.metrics import Metrics

_Record = Callable[[Manifest, Callable[[], ManifestEntry]], ManifestEntry]

BOUND_S = 150.0
"""The time limit for everything to arrive, after the last fault has ended."""
_QUIET_S = 1.0


@dataclass(slots=True)
class SimulationResult:
    """The result of a run.

    ``digest`` is of all that happened; ``stops`` are the errors that ended workers, ``hits`` what
    was injected with effect.
    """

    scenario: Scenario
    violations: list[Violation]
    hits: Counter[str]
    digest: str
    counts: dict[str, int]
    stops: list[str] = field(default_factory=list)


def simulate(scenario: Scenario, flaws: frozenset[str] = frozenset()) -> SimulationResult:
    """Run ``scenario``, with the seeded bugs ``flaws``, and judge it."""
    rig = Rig(scenario, flaws)
    try:
        with _listening(rig.active_faults):
            history = rig.play()
    finally:
        rig.world.close()
    violations = [*check(history), *rig.active_faults.complaints]
    return SimulationResult(
        scenario,
        violations,
        rig.active_faults.hits,
        rig.trace(history),
        rig.counts(history),
        rig.stops,
    )


class Rig(SimulatedStage):
    """All participants of a run."""

    def __init__(self, scenario: Scenario, flaws: frozenset[str]) -> None:
        super().__init__(scenario, flaws)
        self.adversary = Adversary(self)
        self.worker_processes: set[Process] = set()
        self._starts = 0
        self._ended: str | None = None

    # -- the run -------------------------------------------------------------------------------

    def play(self) -> RunHistory:
        load(self.database, random.Random(f"load {self.scenario.seed}"))
        self.world.spawn(self.clients, "director", self._direct)
        self.world.on_error = self._on_error
        self.world.run(lambda: self._ended is not None)
        if self._ended != "over":
            raise RuntimeError(f"the run broke: {self._ended}")
        return self._history

    def _direct(self) -> None:
        """Direct the run, from the first worker to the last answer."""
        world = self.world
        self.adversary.begin()
        for slot in (1, 2):
            self.start_worker(slot, after_s=0.0 if slot == 1 else world.random.choice((0.0, 0.8)))
        world.sleep(1.5)
        spawn(world, self.workload, self.clients, self.scenario)
        self.merger.start()
        self.simulated_clients.start()
        while not (self.workload.done and self.adversary.over and self.database.settled):
            world.sleep(0.5)
            if world.now > 1_000 + 400:
                raise RuntimeError("the workload does not end")
        ended_at = self.heal()
        liveness = self._await_all(ended_at)
        self._history = collect(self, liveness)
        if self.scenario.faulty:
            self.adversary.end()
        self._ended = "over"
        world.sleep(1.0)

    def heal(self) -> float:
        """End all faults; return when that was."""
        self.active_faults.heal()
        self.database.up = True
        self.redis.up, self.redis.delay_s = True, 0.0
        for process in self.workers.values():
            if process.frozen:
                self.world.thaw(process)
        return self.world.now

    def _await_all(self, ended_at: float) -> Liveness:
        """Wait until everything has arrived, or the time is up.

        Then a heartbeat that is younger than the last fault is merged, with all before it, and
        every request has ended.
        """
        end_of_log = self.database.end
        arrived_s: float | None = None
        end = self.world.now + BOUND_S
        while self.world.now < end:
            self.world.sleep(_QUIET_S)
            if self.merger.reached(end_of_log) and not self.simulated_clients.waiting():
                arrived_s = self.world.now - ended_at
                break
        self.merger.stopping = True
        while not self.database.settled:
            self.world.sleep(0.02)
        return Liveness(0.0, BOUND_S, arrived_s, tuple(self.simulated_clients.waiting()))

    # -- parts ---------------------------------------------------------------------------------

    def surroundings(self, process: Process) -> Surroundings:
        """Return what a worker in ``process`` finds around it."""
        system = self.system(process)
        stopping = system.event()
        process.terminate = stopping.set
        redis = SimulatedRedis(self.redis, lambda: self.active_faults.on_claim(process))
        return Surroundings(
            system=system,
            host=process.name,
            stopping=stopping,
            open_store=lambda _: self._store(system),
            chain=lambda store, pipeline: _RecordedChain(
                store, pipeline, SequentialSystem(self.world, process, self._ids), self.record
            ),
            source=lambda _: self._source(system),
            redis=lambda _: cast(Redis, redis),
            metrics=cast(Metrics, _NoMetrics()),
        )

    def _store(self, system: SimulatedSystem) -> ObjectStore:
        client = SimulatedClient(
            self.world,
            self.bucket,
            lambda kind, key: self.active_faults.fate(system.process, kind, key),
        )
        return ObjectStore(_STORE, client, tries=system.tries)

    def _source(self, system: SimulatedSystem) -> SimulatedSource:
        return SimulatedSource(
            self.world,
            self.database,
            process=system.process,
            trouble=self.active_faults.trouble(system.process),
            nap=lambda: system.pause(0.0),
            flaws=self.flaws,
        )

    def start_worker(self, slot: int, *, after_s: float) -> None:
        """Start a worker's process, and another one whenever it is gone."""
        self._starts += 1
        process = Process(f"w{slot}.{self._starts}")
        self.worker_processes.add(process)
        self.workers[slot] = process
        task = None

        def begin() -> None:
            nonlocal task
            point = self.active_faults.on_point_of(process)
            around = self.surroundings(process)
            task = self.world.spawn(
                process, "main", lambda: run_within(around, self.settings, on_point=point)
            )
            look()

        def look() -> None:
            if self._ended is not None or self.active_faults.final:
                return
            if not process.alive or (task is not None and task.over):
                process.alive = False
                own = self.world.random.uniform(0.4, 2.5)
                self.start_worker(slot, after_s=own)
                return
            self.world.later(0.4, look)

        self.world.later(after_s, begin)

    def record(self, manifest: Manifest, append: Callable[[], ManifestEntry]) -> ManifestEntry:
        """Append, and record the outcome that the writer learned."""
        at = len(self.attempts)
        reported = Attempt(
            manifest.manifest_number, manifest.term, manifest.writer, "", AppendOutcome.UNKNOWN
        )
        self.attempts.append(reported)
        try:
            entry = append()
        except Fenced:
            self.attempts[at] = _reported(reported, AppendOutcome.FENCED, manifest)
            raise
        self.attempts[at] = _reported(reported, AppendOutcome.ACCEPTED, manifest)
        return entry

    # -- the end -------------------------------------------------------------------------------

    def trace(self, history: RunHistory) -> str:
        """Return a digest of all that happened in the run."""
        found = sha256()
        for key in sorted(self.bucket.objects):
            found.update(key.encode() + sha256(self.bucket.objects[key]).digest())
        found.update(repr((self.world.steps, round(self.world.now, 6))).encode())
        found.update(repr(sorted(self.active_faults.hits.items())).encode())
        found.update(repr(history.commits).encode())
        return found.hexdigest()

    def counts(self, history: RunHistory) -> dict[str, int]:
        return {
            "transactions": len(history.transactions),
            "changes": sum(len(one.entries) for one in history.transactions),
            "events": sum(len(one.events) for one in history.manifests),
            "manifests": len(history.manifests),
            "commits": len(history.commits),
            "steps": self.world.steps,
            "altered": self.workload.altered,
            **self._column_steps(),
        }

    def _column_steps(self) -> Counter[str]:
        """Count the chain's steps of columns, by kind: those that it is certain of."""
        events = [event for one in self.merger.manifests for event in one.schema_events]
        certain = [event for event in events if event.verdict == Verdict.NEUTRAL.value]
        return Counter(step.kind.value for event in certain for step in event.steps)

    def _on_error(self, task: Any, error: BaseException) -> None:
        name = type(error).__name__
        if task.name == "main" and isinstance(error, TidelineError):
            self.stops.append(f"{self.world.now:.1f} {task.process.name} {name}: {error}")
            self.active_faults.stopped(task.process, error)
            return
        if isinstance(error, TidelineError) and task.process in self.worker_processes:
            return  # A thread's failure is its session's to judge.
        self._ended = f"{task.process.name}/{task.name}: {name}: {error}"
        raise error


def _reported(attempt: Attempt, outcome: AppendOutcome, manifest: Manifest) -> Attempt:
    from tideline.contract.manifest import digest, stored_manifest

    made = digest(stored_manifest(manifest))
    return Attempt(attempt.number, attempt.term, attempt.writer, made, outcome)


class _RecordedChain(Chain):
    """A chain that records what each append was answered."""

    def __init__(self, store: ObjectStore, pipeline: str, system: System, record: _Record) -> None:
        super().__init__(store, pipeline, system)
        self._record = record

    def append(self, manifest: Manifest) -> ManifestEntry:
        return self._record(manifest, partial(super().append, manifest))


class _NoMetrics:
    """Metrics that are never read."""

    registry = None

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@contextmanager
def _listening(active_faults: ActiveFaults) -> Iterator[None]:
    """Check the workers' log of their sessions, and show nothing of it.

    structlog's configuration is one for the process: the only thing here that is not passed in.
    No fault takes a watermark away from a session that continues: one that misses some is wrong.
    """

    def listen(_: object, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        if method == "warning" and "did not come through its log" in event.get("reason", ""):
            active_faults.complain("E", "a session ended for want of marks that were there")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[listen])
    try:
        yield
    finally:
        structlog.configure(**before)


_STORE = Store(url="memory://simulation", retry_s=2.0)
