"""The model of what the store is asked for, beside the worker itself: an hour of virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fixtures.blocks import TEN
from tests.fixtures.core import SCHEMA
from tests.fixtures.systems import REAL, Clocked
from tests.fixtures.troubled_store import TroubledStore
from tests.fixtures.virtual_worker import PIPELINE, VirtualWorker
from tests.unit.contract.documents import ORDERS, first_manifest, following
from tideline.contract.manifest import STATE_DISTANCE_MAX
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import CommitMetadata
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import TableSchema
from tideline.cost import DAY_S, Cost, Prices, RequestRates, Traffic, cost_of
from tideline.planner import merges, pending, start_points
from tideline.settings import Capture, make_settings
from tideline.store.chain import Chain
from tideline.warehouse.state import TargetState
from tideline_capture.leadership import Candidate
from tideline_capture.rollup import RollUpLimits, RollUps

HOUR_S = 3_600.0
CLOSE = 0.1
"""How far the model may be from the worker."""
FREE = Prices(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Case:
    """A traffic and a pace; ``seconds`` of it are run. Rows are of two columns."""

    tables: int
    busy: int
    changes_per_s: float
    flush_s: float = 5.0
    heartbeat_s: float = 5.0
    value: str = "a value of one column"
    row_bytes: float = 6.5
    segment_bytes_max: int = 1 << 25
    seconds: float = HOUR_S

    def cost(self, changes_per_s: float) -> Cost:
        traffic = Traffic(
            tables=self.tables,
            busy=self.busy,
            changes_per_s=changes_per_s,
            row_bytes=self.row_bytes,
            compression=(37 + len(self.value)) / self.row_bytes,
            columns=2,
        )
        rates = RequestRates(
            flush_s=self.flush_s,
            heartbeat_s=self.heartbeat_s,
            segment_bytes_max=self.segment_bytes_max,
        )
        return cost_of(traffic, rates, FREE)


CASES = {
    "busy": Case(100, 20, 100.0, seconds=200.0),
    "often": Case(5, 5, 40.0, flush_s=1.0, seconds=150.0),
    "seldom flushed": Case(10, 10, 10.0, flush_s=30.0, seconds=1_200.0),
    "few changes": Case(10, 10, 0.5),
    "hardly any": Case(10, 3, 0.02, flush_s=1.0),
    "idle": Case(30, 3, 0.0, seconds=1_800.0),
    "other heartbeats": Case(3, 3, 0.0, heartbeat_s=2.0, seconds=900.0),
    "full segments": Case(
        3, 3, 200.0, value="v" * 936, row_bytes=2.5, segment_bytes_max=400_000, seconds=300.0
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_writers_requests(name: str) -> None:
    case = CASES[name]
    settings = Capture(
        flush_interval_s=case.flush_s,
        heartbeat_s=case.heartbeat_s,
        segment_bytes_max=case.segment_bytes_max,
        batch_bytes_max=case.segment_bytes_max // 10,
    )
    worker = VirtualWorker(settings, tables=case.tables, busy=case.busy, value=case.value)
    worker.source.changes_per_s = case.changes_per_s
    worker.run(30)
    worker.store.writes.clear()
    before = worker.source.written
    worker.run(case.seconds)
    parts = [len(data) for key, data in worker.store.writes if "/data/" in key]
    manifests = [len(data) for key, data in worker.store.writes if "/log/" in key]
    assert len(parts) + len(manifests) == len(worker.store.writes)
    cost = case.cost((worker.source.written - before) / case.seconds)
    days = case.seconds / DAY_S
    assert len(parts) == pytest.approx(cost.parts * days, rel=CLOSE, abs=1)
    assert sum(parts) == pytest.approx(cost.bytes_written["parts"] * days, rel=CLOSE)
    assert len(manifests) == pytest.approx(cost.manifests * days, rel=CLOSE, abs=1)
    size = cost.bytes_written["manifests"] / cost.manifests
    assert sum(manifests) / len(manifests) == pytest.approx(size, rel=CLOSE)


class Ticking(threading.Event):
    """Virtual time for a passive worker: a wait is over at once."""

    def __init__(self, on_tick: Callable[[float], None]) -> None:
        super().__init__()
        self.now = 0.0
        self._on_tick = on_tick

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self._on_tick(self.now)
        return self.is_set()


@pytest.mark.parametrize("every_s", [0.3, 1.0, 5.05, 12.0])
def test_a_passive_workers_requests(every_s: float) -> None:
    store = TroubledStore()
    writer = Chain(store, "shop")
    last = first_manifest()
    writer.append(last)
    asked: list[str] = []

    def on_tick(now: float) -> None:
        nonlocal last
        store.before = lambda kind, key: None
        while last.manifest_number * every_s < now:
            full = last.manifest_number % 100 == 0
            last = following(last)
            if full:
                last = replace(last, state=OpenState(), state_at=None)
            writer.append(last)
        store.before = lambda kind, key: asked.append(kind)
        if now > HOUR_S:
            stopping.set()

    stopping = Ticking(on_tick)
    Candidate(
        Chain(store, "shop"),
        writer="writer-b",
        takeover_after_s=15.0,
        stopping=stopping,
        system=Clocked(lambda: stopping.now),
    ).acquire(lambda: (last.identity, PostgresPosition(0)))
    rates = RequestRates(flush_s=every_s, heartbeat_s=60.0, passive=1)
    cost = cost_of(Traffic(changes_per_s=1e6, row_bytes=1e-9), rates, FREE)
    expected = cost.gets["passive workers"] * HOUR_S / DAY_S
    assert len(asked) == pytest.approx(expected, rel=CLOSE)
    assert set(asked) <= {"get", "exists"}


@pytest.mark.usefixtures("blocks_of_ten")
def test_a_blocks_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many manifests of two tables become a block and two files."""
    monkeypatch.setattr("tideline.cost.BLOCK_MANIFESTS", TEN)
    settings = Capture(flush_interval_s=0.3)
    worker = VirtualWorker(settings, tables=2, busy=2, value="v")
    worker.source.changes_per_s = 10.0
    while worker.uploader.last.manifest.manifest_number < 2 * TEN:
        worker.run(1)
    limits = RollUpLimits(settings.rollup_part_bytes_max, settings.rollup_file_bytes_max)
    roll_ups = RollUps(worker.store, Chain(worker.store, PIPELINE), limits, REAL)
    assert roll_ups.advance(TEN) is not None
    before = len(worker.store.writes)
    asked: list[str] = []
    worker.store.before = lambda kind, key: asked.append(kind)
    assert roll_ups.advance(2 * TEN) is not None
    traffic = Traffic(tables=2, busy=2, changes_per_s=10.0, row_bytes=7.0, columns=2)
    cost = cost_of(traffic, RequestRates(flush_s=0.3), FREE)
    blocks = cost.manifests / TEN
    assert len(worker.store.writes) - before == pytest.approx(cost.puts["roll-ups"] / blocks)
    gets = [kind for kind in asked if kind in ("get", "exists")]
    assert len(gets) == pytest.approx(cost.gets["roll-ups"] / blocks, rel=CLOSE)
    written = sum(len(data) for _, data in worker.store.writes[before:])
    assert written == pytest.approx(cost.bytes_written["roll-ups"] / blocks, rel=CLOSE)


@pytest.mark.parametrize("backlog", [60, 900])
def test_a_merges_plan(backlog: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What planning asks of the store when that many manifests are new, one table in them."""
    store, url = TroubledStore(), f"file://{tmp_path}"
    chain = Chain(store, "shop")
    fingerprint = chain.write_schema(TableSchema(ORDERS, SCHEMA.columns, SCHEMA.key))
    state = OpenState(tables={ORDERS: TableState(schema=fingerprint, last_data_manifest=1)})
    last = first_manifest(state=state)
    chain.append(last)
    while last.manifest_number < 3_000:
        last = following(last, rows=1)
        if last.manifest_number % STATE_DISTANCE_MAX == 0:
            table = TableState(schema=fingerprint, last_data_manifest=last.manifest_number)
            last = replace(last, state=OpenState(tables={ORDERS: table}), state_at=None)
        parts = tuple(replace(part, schema=fingerprint) for part in last.parts)
        last = replace(last, parts=parts)
        chain.append(last)
    owner = ("shop", last.incarnation, ORDERS)
    applied = last.manifest_number - backlog
    (at,) = chain.entries(applied, applied)
    stamp = CommitMetadata(
        "app", *owner[:2], "p0", 0, applied, at.manifest.last_seq, digest=at.digest
    )
    target = TargetState(url, exists=True, owner=owner, applied=applied, standing=stamp)
    for module in (merges, pending):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    for module in (start_points, pending):
        monkeypatch.setattr(module, "target_of", lambda *_: target)
    asked: list[str] = []
    store.before = lambda kind, key: asked.append(kind)
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": url},
            "warehouse": {"url": url},
        }
    )
    plan = merges.plan_merge(settings, plan_id="p")
    assert sum(len(table.parts) for table in plan.tables) == backlog
    pending.pending_requests(settings)
    merges.read_receipt(settings, "p")
    rates = RequestRates(flush_s=1.0, heartbeat_s=5.0, merge_every_s=float(backlog))
    cost = cost_of(Traffic(tables=1, busy=1, changes_per_s=1e6, row_bytes=1e-9), rates, FREE)
    expected = cost.gets["merge plans"] * backlog / DAY_S
    gets = [kind for kind in asked if kind in ("get", "exists")]
    assert len(gets) == pytest.approx(expected, rel=0.25)
