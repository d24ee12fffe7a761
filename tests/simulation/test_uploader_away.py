"""The store is away for an hour of virtual time: the real session, core and uploader meanwhile."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq
import pytest
import structlog

from tests.fixtures.virtual_worker import PATIENCE_S, TURN_S, VirtualWorker, table_of
from tideline.contract.manifest import Manifest
from tideline.contract.request import DumpRequest
from tideline.settings import Capture
from tideline_capture.core.events import RequestArrived

HOUR_S = 3_600.0
KIB = 1 << 10
SETTINGS = Capture(
    upload_bytes_max=256 * KIB,
    segment_bytes_max=32 * KIB,
    batch_bytes_max=16 * KIB,
    flush_interval_s=1.0,
)
CHANGES_PER_S = 20.0
KEPT_MAX = 60_000
"""Transactions that the source would keep for us; it warns at three quarters."""


class Outage:
    """What was seen during it, turn by turn."""

    def __init__(self, worker: VirtualWorker) -> None:
        self.worker = worker
        self.pending_max = self.memory_max = self.warned_at = 0
        self.reads: set[int] = set()
        self.confirmed: set[int] = set()
        self.unavailable_s = 0.0

    def look(self) -> None:
        worker = self.worker
        source, core, uploader = worker.source, worker.session.core, worker.uploader
        self.pending_max = max(self.pending_max, uploader.pending_bytes)
        memory = uploader.pending_bytes + core.state.segment.bytes + source.buffered_bytes
        self.memory_max = max(self.memory_max, memory)
        if worker.is_away:
            self.confirmed.add(source.confirmed)
            self.unavailable_s = max(self.unavailable_s, _gauge(worker, "_unavailable"))
            if worker.clock.now > worker.away[0] + HOUR_S / 10:
                self.reads.add(source.read)
            if not self.warned_at and _gauge(worker, "_expiring"):
                self.warned_at = len(source.log)


def _gauge(worker: VirtualWorker, name: str) -> float:
    metric: Any = getattr(worker.metrics, name)
    return float(metric._value.get())


def outage_of(worker: VirtualWorker, seconds: float) -> Outage:
    outage = Outage(worker)
    worker.on_turn = outage.look
    source = worker.source
    worker.log_warning = lambda: "little is left" if len(source.log) > KEPT_MAX * 3 / 4 else None
    worker.away = (worker.clock.now, worker.clock.now + seconds)
    worker.run(seconds)
    return outage


@pytest.fixture
def worker() -> VirtualWorker:
    worker = VirtualWorker(SETTINGS, tables=3, busy=3, value="v" * 200)
    worker.source.changes_per_s = CHANGES_PER_S
    worker.run(20)
    return worker


def manifests(worker: VirtualWorker) -> list[Manifest]:
    chain = worker.session._runtime.chain
    last = worker.uploader.last.manifest.manifest_number
    return [entry.manifest for entry in chain.entries(1, last)]


def keys(worker: VirtualWorker, operation: str) -> list[int]:
    """The keys of all rows in the chain, in the order of its manifests."""
    found = []
    for manifest in manifests(worker):
        for part in manifest.parts:
            data = worker.store.get(part.key)
            assert data is not None
            rows = pq.read_table(io.BytesIO(data)).to_pylist()
            found += [row["id"] for row in rows if row["_tl_op"] == operation]
    return found


def test_an_hour(worker: VirtualWorker) -> None:
    before = worker.uploader.last.manifest.manifest_number
    with structlog.testing.capture_logs() as logs:
        outage = outage_of(worker, HOUR_S)
    source = worker.source
    # What is in memory is bounded, in bytes, and nearly all of it was used.
    slack = SETTINGS.segment_bytes_max + SETTINGS.batch_bytes_max + 4 * KIB
    assert SETTINGS.upload_bytes_max < outage.pending_max <= SETTINGS.upload_bytes_max + slack
    assert outage.memory_max <= SETTINGS.upload_bytes_max + 2 * slack
    # Reading stopped, and the source keeps what is not durable.
    assert len(outage.reads) == 1
    assert len(outage.confirmed) == 1
    assert len(source.log) > 0.9 * HOUR_S * CHANGES_PER_S
    # It could be seen all the time, and there was a warning before the source's limit.
    assert outage.unavailable_s > HOUR_S - 2 * PATIENCE_S
    assert KEPT_MAX * 3 / 4 < outage.warned_at < KEPT_MAX
    assert (
        worker.control_thread.statuses[-1].note
        == "the store is behind: reading stopped; little is left"
    )
    warned = [one for one in logs if one["event"] == "the source will remove its log soon"]
    assert len(warned) == 1

    worker.run(300)
    assert (worker.uploader.unavailable_since, _gauge(worker, "_unavailable")) == (None, 0)
    assert worker.uploader.pending_bytes < SETTINGS.upload_bytes_max
    assert source.written - source.confirmed < 100
    assert worker.uploader.last.manifest.manifest_number > before
    found = keys(worker, "c")
    last = manifests(worker)[-1].last_seq
    assert sorted(found) == list(range(1, last + 1))
    assert len(found) > HOUR_S * CHANGES_PER_S


def test_catalog_and_dumps_do_not_pile_up(worker: VirtualWorker) -> None:
    """Rounds go on in the source, and their marks wait in its log; a dump waits with them."""
    worker.session._runtime.control_thread.arrivals.put(
        RequestArrived("m", DumpRequest("r", (table_of(0),)))
    )
    outage = outage_of(worker, HOUR_S / 4)
    core = worker.session.core
    assert len(worker.orders) <= 1 + SETTINGS.chunks_ahead_max
    assert len(core.catalog._rounds) <= 32
    assert outage.memory_max < 2 * SETTINGS.upload_bytes_max
    reported = [answer.request_id for answer in worker.control_thread.answers]
    assert reported == []
    worker.run(200)
    assert [answer.request_id for answer in worker.control_thread.answers][-1:] == ["r"]
    assert keys(worker, "r") == [0]
    assert sorted(keys(worker, "c")) == sorted(set(keys(worker, "c")))


def test_one_that_comes_and_goes(worker: VirtualWorker) -> None:
    """Every few minutes for some: nothing is lost or twice, and what is away is known each time."""
    for away_s in (30.0, 250.0, PATIENCE_S - TURN_S, 200.0):
        outage = outage_of(worker, away_s)
        assert (outage.unavailable_s > 0) == (away_s > PATIENCE_S)
        worker.run(45)
        assert worker.uploader.unavailable_since is None
    assert sorted(keys(worker, "c")) == list(range(1, manifests(worker)[-1].last_seq + 1))
