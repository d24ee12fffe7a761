"""One round of fault tests: a ledger's traffic, faults one after another, and the oracle's word.

A fault is played on a worker of its own, which another one succeeds: it is killed or frozen at a
named point (`tests.faults.points`), or its connections to a server are cut, stalled or half-opened
by a proxy, or a server dies. Every round ends with a worker that goes on until all is captured.
"""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from devtools.simulation.history import Liveness, MergeCommit, Violation
from devtools.simulation.oracle import check
from tests.faults.history_of import ChunkEvent, tell
from tests.faults.points import POINTS, Point, Round, kill_at, taken_over, wake
from tests.faults.rewired import rewired
from tests.faults.s3_faults import S3Faults, Trouble
from tests.fixtures.capture import Pipeline, WorkerProcess, poll
from tests.fixtures.settings import Section
from tests.support.ledger import LedgerWork
from tests.support.proxy import Fault, Proxy
from tideline.contract.request import DumpRequest

BRISK: Section = {
    "flush_interval_s": 0.1,
    "heartbeat_s": 0.3,
    "takeover_after_s": 0.6,
    "catalog_interval_s": 0.5,
    "snapshot_interval_s": 0.2,
    "batch_rows_max": 200,
    "request_claim_s": 0.5,
    "chunk_rows": 100,
}
HEARTBEAT_BOUND_S = 30.0
_TROUBLED_S = 1.5
"""How long a connection is out of order: longer than a takeover takes."""
_HUGE_ROWS = 6_000
_SPOILED = 6


class Server(Protocol):
    """A source's server, or the queue's."""

    def kill(self) -> None: ...

    def start(self) -> object: ...

    def restart(self) -> None: ...


@dataclass(slots=True)
class Stage:
    """What a round is played on. ``prefix``: see `tell`. ``proxies``: before the server of each
    section of the settings, where connections are to be troubled, and ``spoiler`` before the store,
    where its answers are. ``merge``: a real merge of all that is captured by then, and what the
    tables are after it."""

    pipeline: Pipeline[Any]
    work: LedgerWork
    prefix: str
    proxies: Mapping[str, Proxy] = field(default_factory=dict)
    source: Server | None = None
    queue: Server | None = None
    spoiler: S3Faults | None = None
    merge: Callable[[], Sequence[MergeCommit]] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    frozen: list[Round] = field(default_factory=list)
    asked: list[DumpRequest] = field(default_factory=list)

    @property
    def tables(self) -> set[str]:
        return {f"{self.prefix}{name}" for name in ("accounts", "items", "pairs", "ledger")}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out of a round; ``counts`` of faults, changes and merges."""

    violations: list[Violation]
    counts: Counter[str]
    reported: ChunkEvent


Play = Callable[[Stage, random.Random], None]


def play(stage: Stage, names: Sequence[str], *, seed: int, merges: int = 12) -> Verdict:
    """Play the `FAULTS` of these names under traffic and judge what came of it.

    AssertionError when a fault could not be brought about, or a worker ended in a way that no fault
    explains.
    """
    random_, commits = random.Random(seed), list[MergeCommit]()
    pipeline, work = stage.pipeline, stage.work
    first = pipeline.start()
    pipeline.wait_state("it knows the tables", lambda state: stage.tables <= set(state.tables))
    with work as traffic:
        traffic.wait_for(20)
        first.kill()
        for name in names:
            FAULTS[name](stage, random_)
            stage.counts[name] += 1
            if stage.merge is not None:
                commits += stage.merge()
        ended_s = time.time()
        successor = pipeline.start()
        heartbeat_s = _heartbeat_after(stage, ended_s)
        while stage.frozen:
            wake(stage.frozen.pop())
        unended = tuple(one.request_id for one in stage.asked if not _ends(stage, one))
        traffic.wait_for(20)
    successor.terminate()
    pipeline.drain()
    if stage.merge is not None:
        commits += stage.merge()
    live = Liveness(ended_s, HEARTBEAT_BOUND_S, heartbeat_s, unended)
    reported = _tell(stage, seed=seed, merges=merges, live=live, commits=commits)
    stage.counts["runs"] += 1
    stage.counts["changes"] += reported.changes
    stage.counts["manifests"] += len(reported.history.manifests)
    stage.counts["merges"] += len(reported.history.commits)
    return Verdict(check(reported.history), stage.counts, reported)


def _tell(
    stage: Stage, *, seed: int, merges: int, live: Liveness, commits: Sequence[MergeCommit]
) -> ChunkEvent:
    """The history, once every value that merges found nowhere was read again."""
    for _ in range(3):
        reported = tell(
            stage.pipeline.settings,
            stage.work,
            prefix=stage.prefix,
            seed=seed,
            merges=merges,
            liveness=live,
            commits=commits,
        )
        waiting = reported.pending()
        if not waiting:
            break
        worker = stage.pipeline.start()
        for table, keys in waiting.items():
            stage.pipeline.ask(DumpRequest(f"again-{uuid.uuid4().hex[:8]}", (table,), keys=keys))
        worker.terminate()
        stage.pipeline.drain()
        stage.counts["read again"] += sum(len(keys) for keys in waiting.values())
        if stage.merge is not None:
            commits = [*commits, *stage.merge()]
    return reported


# -- faults ------------------------------------------------------------------------------------


def at_point(point: Point, number: signal.Signals) -> Play:
    """A worker ends, or freezes until the next one works, at ``point``."""

    def fault(stage: Stage, random_: random.Random) -> None:
        done = kill_at(
            stage.pipeline,
            point,
            number,
            table=f"{stage.prefix}items",
            write_huge=lambda: stage.work.write_huge(_HUGE_ROWS),
        )
        while stage.frozen:
            wake(stage.frozen.pop())
        if done.request is not None:
            stage.asked.append(done.request)
        if number is signal.SIGSTOP:
            stage.frozen.append(done)
        stage.counts["kills" if number is signal.SIGKILL else "freezes"] += 1

    return fault


def cut(section: str) -> Play:
    """Connections to a server are reset, three times over."""

    def fault(stage: Stage, random_: random.Random) -> None:
        worker = _behind_proxies(stage, section)
        for _ in range(3):
            reached = worker.points()["after-manifest"]
            stage.proxies[section].cut()
            _goes_on(worker, reached)
        _end(stage, worker)

    return fault


def stall(section: str) -> Play:
    """Nothing comes through for a while; a second worker, whose way is free, may take over."""

    def fault(stage: Stage, random_: random.Random) -> None:
        worker = _behind_proxies(stage, section)
        second = stage.pipeline.start()
        trouble = stage.proxies[section].begin(Fault(stall=True))
        time.sleep(_TROUBLED_S)
        stage.proxies[section].end(trouble)
        for one in (worker, second):
            _end(stage, one)

    return fault


def half_open(section: str) -> Play:
    """What the worker says is lost; what it has open by then stays dead."""

    def fault(stage: Stage, random_: random.Random) -> None:
        worker = _behind_proxies(stage, section)
        trouble = stage.proxies[section].begin(Fault(drop="client"))
        time.sleep(_TROUBLED_S)
        stage.proxies[section].end(trouble)
        time.sleep(random_.random())
        _end(stage, worker)

    return fault


def spoiled(**fields: Any) -> Play:
    """Some of the store's answers go wrong, as `Trouble` says; then a worker goes on without."""

    def fault(stage: Stage, random_: random.Random) -> None:
        spoiler = stage.spoiler
        assert spoiler is not None
        worker = _at_work(
            stage, config=rewired(stage.pipeline, store={"endpoint": spoiler.endpoint})
        )
        trouble = spoiler.add(Trouble(times=_SPOILED, **fields))
        poll("the store's answers go wrong", lambda: worker.ended() or trouble.met >= _SPOILED)
        spoiler.heal()
        _goes_on(worker, worker.points()["after-manifest"])
        _end(stage, worker)
        late = spoiler.deliver_late()
        assert set(late) <= {412}, f"a late PUT was answered {late}"

    return fault


def source_killed(stage: Stage, random_: random.Random) -> None:
    """The database's server crashes and recovers."""
    assert stage.source is not None
    worker = _at_work(stage)
    reached = worker.points()["after-manifest"]
    stage.source.kill()
    stage.source.start()
    _goes_on(worker, reached)
    _end(stage, worker)


def queue_lost(stage: Stage, random_: random.Random) -> None:
    """The queue crashes, and what it held is gone; what was accepted goes on."""
    assert stage.queue is not None
    worker = _at_work(stage)
    request = DumpRequest(f"lost-{uuid.uuid4().hex[:8]}", (f"{stage.prefix}items",), delay_ms=20)
    control_client = stage.pipeline.control_client()
    control_client.ask(request)
    control_client.close()
    stage.asked.append(request)
    worker.wait_point("request-claimed")
    stage.queue.kill()
    stage.queue.start()
    _goes_on(worker, worker.points()["after-manifest"])
    _end(stage, worker)


KILLS = {f"kill {p.name}": at_point(p, signal.SIGKILL) for p in POINTS}
FREEZES = {f"freeze {p.name}": at_point(p, signal.SIGSTOP) for p in POINTS}
LINKS = {
    f"{name} {section}": make(section)
    for section in ("source", "store", "control")
    for name, make in (("cut", cut), ("stall", stall), ("half-open", half_open))
}
SERVERS: dict[str, Play] = {"source killed": source_killed, "queue lost": queue_lost}
SPOILED: dict[str, Play] = {
    "spoil 500": spoiled(status=500),
    "spoil 503": spoiled(status=503, code="SlowDown", effect=True),
    "spoil 429": spoiled(status=429, code="TooManyRequests"),
    "spoil 409": spoiled(kind="create", status=409, code="ConditionalRequestConflict"),
    "spoil 409 after effect": spoiled(
        kind="create", status=409, code="ConditionalRequestConflict", effect=True
    ),
    "spoil 412 of our own": spoiled(
        kind="create", status=412, code="PreconditionFailed", effect=True
    ),
    "spoil by no answer": spoiled(dropped=True),
    "spoil by no answer after effect": spoiled(dropped=True, effect=True),
    "spoil by slowness": spoiled(delay_s=0.15),
    "spoil by late duplicates": spoiled(kind="create", kept=True),
}
FAULTS: dict[str, Play] = {**KILLS, **FREEZES, **LINKS, **SERVERS, **SPOILED}
NEED_S3 = {*SPOILED, *(name for name in LINKS if name.endswith(" store"))}


def _at_work(stage: Stage, **sections: Any) -> WorkerProcess:
    """A worker that leads, after what was frozen has learned it."""
    last = stage.pipeline.manifest()
    worker = stage.pipeline.start(**sections)
    taken_over(stage.pipeline, last)
    worker.wait_point("after-manifest", 3)
    while stage.frozen:
        wake(stage.frozen.pop())
    return worker


def _behind_proxies(stage: Stage, section: str) -> WorkerProcess:
    proxies = {section: stage.proxies[section]}
    return _at_work(stage, config=rewired(stage.pipeline, proxies))


def _goes_on(worker: WorkerProcess, reached: int) -> None:
    """Return once it has appended more than ``reached`` times, or has ended by itself."""
    poll(
        "the worker goes on or ends",
        lambda: worker.ended() or worker.points()["after-manifest"] > reached + 1,
    )


def _end(stage: Stage, worker: WorkerProcess) -> None:
    assert "Traceback" not in worker.output(), worker.output()[-3000:]
    stage.counts["kills"] += not worker.ended()
    stage.counts["troubles"] += 1
    worker.kill()


def _heartbeat_after(stage: Stage, moment_s: float) -> float | None:
    """When a heartbeat that is younger than ``moment_s`` was durable, None for not in time."""
    with suppress(AssertionError):
        poll(
            "a heartbeat comes",
            lambda: stage.pipeline.heard_after(moment_s * 1e6),
            timeout_s=HEARTBEAT_BOUND_S,
        )
        return time.time()
    return None


def _ends(stage: Stage, request: DumpRequest) -> bool:
    try:
        return stage.pipeline.ask(request).state.final
    except AssertionError:
        return False
