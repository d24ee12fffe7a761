"""Connections that are reset, stall, or stay open with nobody at the other end: the worker goes on
by itself within a bound, in the same process, and everything is in the chain, once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from devtools.services.s3 import S3Server
from tests.faults.points import taken_over
from tests.faults.rewired import on_s3, patient, port_of, rewired
from tests.faults.test_takeover import Shop, both, make_shop
from tests.fixtures.capture import PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.fixtures.sources import ConformingSource, PostgresSource
from tests.support.proxy import Fault, Proxy
from tideline.contract.request import DumpRequest, RequestState

ANSWER_S = 3.0
"""After so long without an answer the source counts as gone."""
BOUND_S = 30.0
_KEYS = itertools.count(500_000)
IMPATIENT = {
    "heartbeat_s": 0.5,
    "takeover_after_s": 2.0,
    "mark_timeout_s": ANSWER_S,
    "catalog_interval_s": 0.5,
}
TRUSTFUL = {**IMPATIENT, "mark_timeout_s": 60.0}
"""Where the source is not what fails, and the session is to go on all the time."""


@contextmanager
def working(shop: Shop, section: str, port: int) -> Iterator[tuple[WorkerProcess, Proxy]]:
    """A worker whose server of that section is behind a proxy, under traffic; at the end it is
    stopped, and what it wrote is checked."""
    with Proxy(port) as proxy:
        worker = shop.start(config=rewired(shop.pipeline, {section: proxy}))
        with shop.writers():
            yield worker, proxy
        assert "Traceback" not in worker.output(), worker.output()[-3000:]
        worker.terminate()
    shop.pipeline.drain(config=patient(shop.pipeline))
    shop.check()
    assert {m.term for m in shop.pipeline.manifests()} == {1, 2}


@contextmanager
def away(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> Iterator[tuple[Shop, WorkerProcess, Proxy]]:
    """As `working`, with the source behind the proxy, and a worker that soon gives it up."""
    source = {"connect_timeout_s": 4.0}
    shop = make_shop(conforming, pipeline_of, capture=IMPATIENT, source=source)
    address = port_of(shop.pipeline.settings.source.url.get_secret_value())
    with working(shop, "source", address) as (worker, proxy):
        yield shop, worker, proxy


def recovers(shop: Shop, what: str) -> None:
    """Return once changes that are made now are durable, which they must be soon."""
    begun, before = time.monotonic(), shop.pipeline.manifest()
    key = next(_KEYS)
    shop.source.fill("calm", key, key)

    def durable() -> bool:
        last = shop.pipeline.manifest().manifest_number
        if last == before.manifest_number:
            return False
        news = shop.pipeline.chain.entries(before.manifest_number + 1, last)
        parts = [part for entry in news for part in entry.manifest.parts]
        return any(part.table == shop.calm and part.operations.get("c") for part in parts)

    poll(f"the worker goes on after {what}", durable)
    took = time.monotonic() - begun
    assert took < BOUND_S, f"it took {took:.1f} s after {what}"


ASKED = {
    "postgres": (
        b"current_setting(w.name)",
        b"IDENTIFY_SYSTEM",
        b"pg_replication_slots",
        b"START_REPLICATION",
        b"format_type",
    ),
    "mariadb": (b"SET SESSION", b"server_id", b"BINLOG_GTID_POS"),
}
"""Parts of statements whose answers a session waits for before it reads, or while it does."""


class TestSource:
    @both
    def test_every_connection_fails(
        self, conforming: ConformingSource, pipeline_of: PipelineFactory
    ) -> None:
        """One kind of failure after the other; a dump is under way all the time."""
        with (
            away(conforming, pipeline_of) as (shop, worker, proxy),
            shop.pipeline.asking() as control_client,
        ):
            request = DumpRequest("through-it-all", (shop.calm,), chunk_rows=5, delay_ms=500)
            control_client.ask(request)
            shop.read_some("through-it-all", 2)
            poll("all connections are there", lambda: proxy.open > 3)
            assert proxy.cut() > 3
            recovers(shop, "a reset")
            stall = proxy.begin(Fault(stall=True))
            time.sleep(ANSWER_S / 2)
            proxy.end(stall)
            recovers(shop, "a short stall")
            for what, fault in (
                ("half-open, nothing comes", Fault(drop="server")),
                ("half-open, nothing gets there", Fault(drop="client")),
            ):
                gone = failures(worker)
                proxy.begin(fault)
                poll("the worker notices", partial(has_failed, worker, gone))
                proxy.end(fault)
                recovers(shop, what)
            item = shop.progress("through-it-all")
            assert item is not None, "the dump had ended too early"
            shop.pipeline.hurry()
            assert shop.pipeline.ask(item.request).state is RequestState.DONE

    @both
    def test_the_catalogs_connection_is_half_open(
        self, conforming: ConformingSource, pipeline_of: PipelineFactory
    ) -> None:
        """The log comes, and heartbeats and changes of tables' forms do not."""
        with away(conforming, pipeline_of) as (shop, worker, proxy):
            name = f"tideline {shop.pipeline.settings.pipeline} catalog".encode()
            fault = proxy.begin(Fault(of=name, drop="server"))
            begun = time.monotonic()
            poll("the worker notices", partial(has_failed, worker, 0))
            assert time.monotonic() - begun < BOUND_S
            proxy.end(fault)
            rounds = catalog_rounds(shop)
            poll("heartbeats come again", lambda: catalog_rounds(shop) > rounds)
            recovers(shop, "a half-open catalog")

    @both
    def test_what_is_asked_before_the_log_is_read_gets_no_answer(
        self, conforming: ConformingSource, pipeline_of: PipelineFactory
    ) -> None:
        """The server is gone behind something that acknowledges everything."""
        with away(conforming, pipeline_of) as (shop, worker, proxy):
            for asked in ASKED[shop.pipeline.settings.source.kind]:
                gone = failures(worker)
                hold = proxy.hold(asked, fresh=True)
                proxy.cut()
                assert hold.met.wait(BOUND_S), asked
                poll(f"{asked!r} is given up", partial(has_failed, worker, gone + 1))
                recovers(shop, f"{asked!r} without an answer")


def failures(worker: WorkerProcess) -> int:
    """How many sessions have failed."""
    return worker.output().count("it starts again")


def has_failed(worker: WorkerProcess, before: int) -> bool:
    return failures(worker) > before


def retries(worker: WorkerProcess) -> int:
    """How often the log tells that the store does not answer."""
    reported = worker.output()
    return reported.count("the store does not answer") + reported.count("the store is unavailable")


def has_retried(worker: WorkerProcess, before: int) -> bool:
    return retries(worker) > before


def catalog_rounds(shop: Shop) -> int:
    """The source's clock in the newest heartbeat of ours that the chain holds, in µs."""
    return shop.pipeline.manifest().source_time_us or 0


class TestStore:
    @pytest.fixture
    def shop(self, database: Database, pipeline_of: PipelineFactory, s3: S3Server) -> Shop:
        store = on_s3(s3, timeout_s=3.0, retry_s=8.0)
        # Over a slow line more segments would never be caught up with.
        capture = {**TRUSTFUL, "flush_interval_s": 1.0}
        return make_shop(PostgresSource(database), pipeline_of, capture=capture, store=store)

    def test_every_connection_fails(self, shop: Shop, s3: S3Server) -> None:
        """The session goes on all the time: it is the uploader that waits."""
        with working(shop, "store", s3.port) as (worker, proxy):
            for _ in range(3):
                proxy.cut()
                recovers(shop, "a reset")
            for what, fault in (
                ("a stall", Fault(stall=True)),
                ("half-open, nothing comes", Fault(drop="server")),
                ("half-open, nothing gets there", Fault(drop="client")),
            ):
                tried = retries(worker)
                proxy.begin(fault)
                poll("the worker notices", partial(has_retried, worker, tried))
                proxy.end(fault)
                recovers(shop, what)
            slow = proxy.begin(Fault(delay_s=0.1, bytes_per_s=100_000))
            recovers(shop, "a slow line")
            proxy.end(slow)
            proxy.refuse()
            proxy.cut()
            worker.wait_output("the store is unavailable")
            proxy.refuse(False)
            recovers(shop, "a refusal")
            assert worker.points()["reading"] == 1

    def test_the_answer_to_a_manifest_never_comes(self, shop: Shop, s3: S3Server) -> None:
        """It is there all the same: asked again, the store says so, and it is told from another
        worker's."""
        with working(shop, "store", s3.port) as (worker, proxy):
            for _ in range(2):
                hold = proxy.hold(b"/log/")
                assert hold.met.wait(BOUND_S)
                recovers(shop, "an answer that never came")
            assert worker.points()["reading"] == 1

    def test_killed_before_the_answer_to_a_manifest(self, shop: Shop, s3: S3Server) -> None:
        """The next one finds it in the chain, and goes on behind it."""
        with Proxy(s3.port) as proxy, shop.writers():
            worker = shop.start(config=rewired(shop.pipeline, {"store": proxy}))
            hold = proxy.hold(b"PUT ")
            assert hold.met.wait(BOUND_S)
            worker.kill()
            last = shop.pipeline.manifest()
            second = shop.pipeline.start()
            taken_over(shop.pipeline, last)
            second.wait_point("after-confirm", 2)
        second.terminate()
        shop.pipeline.drain(config=patient(shop.pipeline))
        shop.check()


def test_redis(database: Database, pipeline_of: PipelineFactory) -> None:
    """Capture does not notice; a request is asked for until it is answered, and served once."""
    shop = make_shop(PostgresSource(database), pipeline_of, capture=TRUSTFUL)
    address = port_of(shop.pipeline.settings.control.url.get_secret_value())
    with working(shop, "control", address) as (worker, proxy):
        for number, fault in enumerate(
            (Fault(), Fault(stall=True), Fault(drop="server"), Fault(drop="client"))
        ):
            request = DumpRequest(f"r{number}", (shop.calm,), keys=((str(number + 1),),))
            with shop.pipeline.asking() as control_client:
                control_client.ask(request)
            proxy.begin(fault)
            proxy.cut() if number == 0 else None
            recovers(shop, f"{fault} of redis")
            proxy.end(fault)
            proxy.cut()
            assert shop.pipeline.ask(request).state is RequestState.DONE
        assert worker.points()["reading"] == 1
    accepted = [name for m in shop.pipeline.manifests() for name in m.accepted]
    assert sorted(name for name in accepted if name.startswith("r")) == ["r0", "r1", "r2", "r3"]
