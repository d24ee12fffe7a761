# ruff: noqa: S608  statements are made of constants and our own names
"""Two workers on one chain: how fast the passive one takes over, what it finds, what it costs.

The death is that of a process (SIGKILL), or looks like one to everybody else (SIGSTOP, a connection
whose other end is gone). What must not look like one: a huge transaction, and a slow store.
"""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from pydantic import SecretStr

from devtools.services.binlog_server import BinlogServer
from devtools.services.s3 import S3Server
from devtools.services.valkey import ValkeyServer
from tests.faults.points import FENCED, taken_over
from tests.faults.rewired import on_s3, port_of, rewired
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.mysql_servers import (
    ServerFactory,
    drop_mysql_database,
    make_mysql_database,
)
from tests.fixtures.services import Database
from tests.fixtures.sources import ConformingSource, MysqlSource, PostgresSource, Writers
from tests.support.checks import Captured, check_equal, stale_changes
from tests.support.proxy import Fault, Proxy
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import OpenRequest, OpenState
from tideline.contract.position import MysqlPosition
from tideline.contract.request import Action, Command, DumpRequest, RequestState
from tideline.control import GROUP, ControlClient, stream_key
from tideline.settings import Control
from tideline_capture.sources.mysql.binlog.stream import open_stream
from tideline_capture.sources.mysql.server_ids import free_server_id
from tideline_console.status import read_status

both = pytest.mark.parametrize("conforming", ["postgres", "mariadb"], indirect=True)
TAKEOVER_AFTER_S = 5.0
GRACE_S = 10.0
"""For a busy machine; `tests/unit/capture/test_leadership.py` has the bound to the second."""
SLOWLY = {"heartbeat_s": 1.0, "takeover_after_s": TAKEOVER_AFTER_S}
QUICKLY = {"heartbeat_s": 0.4, "takeover_after_s": 1.2}
WATCHED_S = 10.0
ROWS = 1_000
KEYS = 20


class Shop:
    """A pipeline on tables that are all in the log: ``calm`` is only ever read, ``busy`` has
    writers, which leave a row per transaction in ``ledger``."""

    def __init__(self, source: ConformingSource, pipeline: Pipeline[ConformingSource]) -> None:
        self.source = source
        self.pipeline = pipeline
        self.calm, self.busy, self.ledger = map(source.full_name, ("calm", "busy", "ledger"))

    def start(self, **options: object) -> WorkerProcess:
        """The first worker, and rows in the tables once it has seen them empty."""
        worker = self.pipeline.start(**options)  # type: ignore[arg-type]
        self.pipeline.wait_state("it knows the tables", lambda s: len(s.tables) == 3)
        self.pipeline.wait_state("nothing is open", lambda state: not state.requests)
        self.source.fill("calm", 1, ROWS)
        self.source.fill("busy", 1, KEYS)
        return worker

    def writers(self) -> Writers:
        return Writers(self.source, "busy", "ledger", keys=KEYS, pause_s=0.02)

    def progress(self, request_id: str) -> OpenRequest | None:
        """How far the open request is by the chain."""
        return open_request(self.pipeline.state(), request_id)

    def read_some(self, request_id: str, chunks: int) -> None:
        """Return once so many chunks of the request are durable."""
        poll(
            f"{chunks} chunks of {request_id} are durable",
            lambda: chunks_of(self.progress(request_id)) >= chunks,
        )

    def check(self) -> Captured:
        """All is there; nothing twice, nothing went back, and the chain is one."""
        names = [self.calm, self.busy, self.ledger]
        captured = check_equal(self.pipeline.settings, self.source, names)
        assert stale_changes(captured.table(self.busy)) == []
        inserts = [change.key for change in captured.table(self.ledger) if change.op == "c"]
        assert len(set(inserts)) == len(inserts)
        return captured


@pytest.fixture
def shop(conforming: ConformingSource, pipeline_of: PipelineFactory) -> Shop:
    return make_shop(conforming, pipeline_of)


def make_shop(
    conforming: ConformingSource, pipeline_of: PipelineFactory, **sections: object
) -> Shop:
    """A pipeline on three empty tables."""
    for table in ("calm", "busy", "ledger"):
        conforming.make(table)
    capture = {**SLOWLY, **sections.pop("capture", {})}  # type: ignore[dict-item]
    return Shop(conforming, pipeline_of(conforming, capture=capture, **sections))  # type: ignore[arg-type]


def open_request(state: OpenState, request_id: str) -> OpenRequest | None:
    found = [item for item in state.requests if item.request.request_id == request_id]
    return found[0] if found else None


def chunks_of(item: OpenRequest | None) -> int:
    return 0 if item is None else sum(dump.chunks for dump in item.dumps)


def written_at(manifest: Manifest) -> float:
    assert manifest.written_at_us is not None
    return manifest.written_at_us / 1e6


@both
def test_five_seconds_after_a_kill(shop: Shop) -> None:
    """A dump goes on where it was, and one that was paused stays paused, until it is resumed."""
    first = shop.start()
    second = shop.pipeline.start()
    with shop.writers(), shop.pipeline.asking() as control_client:
        poll(
            "there are two",
            lambda: {w.state for w in control_client.workers()} == {"live", "passive"},
        )
        control_client.ask(DumpRequest("goes-on", (shop.calm,), chunk_rows=20, delay_ms=400))
        control_client.ask(DumpRequest("paused", (shop.busy,), chunk_rows=5, delay_ms=5_000))
        control_client.command(Command("pause", Action.PAUSE, requests=("paused",)))
        shop.pipeline.wait_state("one is paused", lambda s: is_paused(s, "paused"))
        shop.read_some("goes-on", 5)
        first.kill()
        killed_at, last, left = time.time(), shop.pipeline.manifest(), shop.progress("goes-on")
        takeover = taken_over(shop.pipeline, last)
        # Redis still has its last word, which was that it is live.
        assert first.pid not in live_ones(shop.pipeline)
        shop.pipeline.hurry()
        poll("its successor is live", lambda: live_ones(shop.pipeline) == [second.pid])
        assert written_at(takeover) - killed_at <= TAKEOVER_AFTER_S + GRACE_S
        assert written_at(takeover) - written_at(last) >= TAKEOVER_AFTER_S
        assert left is not None, "the dump had ended"
        answer = shop.pipeline.ask(left.request)
        assert answer.state is RequestState.DONE, answer
        waiting = shop.progress("paused")
        assert waiting is not None and waiting.paused
        poll("it is told", partial(is_told, control_client, "paused", RequestState.PAUSED))
        control_client.command(Command("resume", Action.RESUME, requests=("paused",)))
        assert shop.pipeline.ask(waiting.request).state is RequestState.DONE
    second.terminate()
    shop.pipeline.drain()
    captured = shop.check()
    read = [c.seq for c in captured.table(shop.calm) if c.op == "r"]
    before = [seq for seq in read if seq < takeover.first_seq]
    assert len(before) == sum(dump.rows for dump in left.dumps) > 0
    assert len(read) == ROWS, "rows were read twice"


def live_ones(pipeline: Pipeline[Any]) -> list[int]:
    """The processes of the workers that `tideline status` calls live."""
    return [one.pid for one in read_status(pipeline.settings).workers if one.state == "live"]


def is_paused(state: OpenState, request_id: str) -> bool:
    item = open_request(state, request_id)
    return item is not None and item.paused


def is_told(control_client: ControlClient, request_id: str, state: RequestState) -> bool:
    answer = control_client.answer(request_id)
    return answer is not None and answer.state is state


@both
def test_one_that_slept_leaves_nothing_behind(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """It slept in the middle of a chunk, after it had said that a dump runs; meanwhile that dump
    ended. And it must not take a request out of the queue that it can do nothing about."""
    shop = make_shop(conforming, pipeline_of, capture={"request_claim_s": 100.0, **QUICKLY})
    sleeper = shop.start()
    pipeline = shop.pipeline
    with shop.writers(), shop.pipeline.asking() as control_client:
        control_client.ask(DumpRequest("runs", (shop.calm,), chunk_rows=50, delay_ms=1_000))
        poll("it is told", partial(is_told, control_client, "runs", RequestState.RUNNING))
        sleeper.stop_at("inside-select")
        assert is_told(control_client, "runs", RequestState.RUNNING)
        last = pipeline.manifest()
        second = pipeline.start()
        takeover = taken_over(pipeline, last)
        pipeline.hurry()
        assert pipeline.ask(DumpRequest("runs", (shop.calm,))).state is RequestState.DONE
        # The sleeper is the only one that could take this.
        second.signal(signal.SIGSTOP)
        second.wait_stopped()
        control_client.ask(DumpRequest("later", (shop.calm,), keys=(("7",),)))
        sleeper.signal(signal.SIGCONT)
        assert sleeper.wait() == FENCED, sleeper.output()[-3000:]
        assert "Traceback" not in sleeper.output()
        second.signal(signal.SIGCONT)
        taken_at = time.monotonic()
        poll("the request is served", lambda: ended(control_client, "later"))
        assert time.monotonic() - taken_at < 0.8 * pipeline.settings.capture.request_claim_s
        assert is_told(control_client, "runs", RequestState.DONE)
        poll("one is left", lambda: [one.pid for one in control_client.workers()] == [second.pid])
        poll("all is acknowledged", lambda: pending(pipeline) == 0)
        check_sessions(shop, second)
    second.terminate()
    pipeline.drain()
    captured = shop.check()
    mine = {m.writer for m in captured.manifests if m.manifest_number < takeover.manifest_number}
    later = {m.writer for m in captured.manifests if m.manifest_number >= takeover.manifest_number}
    assert not mine & later
    store = pipeline.config.parent / "store"
    assert [path for path in store.rglob("*") if "#" in path.name] == [], "a file half written"


def ended(control_client: ControlClient, request_id: str) -> bool:
    answer = control_client.answer(request_id)
    return answer is not None and answer.state.final


def pending(pipeline: Pipeline[ConformingSource]) -> int:
    """Entries of the queue that some worker has claimed and nobody acknowledged."""
    with redis.Redis.from_url(pipeline.settings.control.url.get_secret_value()) as client:
        found = client.xpending(stream_key(pipeline.settings.pipeline), GROUP)
    assert isinstance(found, dict)
    return int(found["pending"])


def check_sessions(shop: Shop, worker: WorkerProcess) -> None:
    """Every session that the source has of the pipeline's user is that worker's."""

    def theirs() -> set[int]:
        ports = {
            connection.laddr.port
            for connection in psutil.Process(worker.pid).net_connections("tcp")
        }
        return sessions(shop) - ports

    poll("the other one's sessions have ended", lambda: not theirs())


def sessions(shop: Shop) -> set[int]:
    """The clients' ports of the sessions that workers have at the source."""
    address = shop.pipeline.settings.source
    query = (
        "SELECT client_port FROM pg_stat_activity WHERE application_name LIKE"
        f" 'tideline {shop.pipeline.settings.pipeline}%'"
    )
    if address.kind != "postgres":
        user = address.user
        query = (
            "SELECT SUBSTRING_INDEX(host, ':', -1) FROM information_schema.processlist"
            f" WHERE user = '{user}'"
        )
    with shop.source.session() as cursor:
        cursor.execute(query)
        return {int(row[0]) for row in cursor.fetchall()}


@both
def test_a_peer_that_is_gone_without_a_word(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """The source never hears of the first worker's end, and keeps its sessions and its slot."""
    shop = make_shop(conforming, pipeline_of, capture=QUICKLY)
    pipeline = shop.pipeline
    with Proxy(port_of(pipeline.settings.source.url.get_secret_value())) as proxy, shop.writers():
        first = shop.start(config=rewired(pipeline, {"source": proxy}))
        proxy.begin(Fault(drop="client"))
        first.kill()
        last = pipeline.manifest()
        second = pipeline.start()
        taken_over(pipeline, last)
        second.wait_point("after-confirm", 3)
        second.wait_output("reading the log")
    second.terminate()
    pipeline.drain()
    shop.check()


@both
def test_the_passive_one_costs_next_to_nothing(
    conforming: ConformingSource, pipeline_of: PipelineFactory, s3: S3Server
) -> None:
    """No connection to the source, a few requests to the store."""
    shop = make_shop(
        conforming,
        pipeline_of,
        capture={"flush_interval_s": 1.0, **SLOWLY},
        store=on_s3(s3),
    )
    pipeline = shop.pipeline
    address = port_of(pipeline.settings.source.url.get_secret_value())
    with (
        Proxy(address) as source,
        Proxy(s3.port) as store,
        shop.pipeline.asking() as control_client,
    ):
        shop.start()
        second = pipeline.start(config=rewired(pipeline, {"source": source, "store": store}))
        poll("it waits", lambda: {w.state for w in control_client.workers()} == {"live", "passive"})
        with shop.writers():
            first, begun = pipeline.manifest().manifest_number, time.monotonic()
            asked = len(store.requests)
            poll("the chain grows", lambda: pipeline.manifest().manifest_number >= first + 5)
            time.sleep(max(0.0, WATCHED_S - (time.monotonic() - begun)))
            requests = len(store.requests) - asked
            took = time.monotonic() - begun
        assert source.accepted == 0
        assert 0 < requests <= 8 * (took + 1), f"{requests} requests in {took:.1f} s"
        second.terminate()


@both
def test_a_huge_transaction_is_no_death(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """It takes longer to come than a takeover would, and ends in one manifest."""
    limits = {"segment_bytes_max": 20_000, "batch_bytes_max": 20_000, "batch_rows_max": 200}
    patience_s = 6.0
    beats_of = {"heartbeat_s": 0.5, "takeover_after_s": patience_s}
    shop = make_shop(conforming, pipeline_of, capture={**limits, **beats_of})
    pipeline = shop.pipeline
    with Proxy(port_of(pipeline.settings.source.url.get_secret_value())) as proxy:
        worker = shop.start(config=rewired(pipeline, {"source": proxy}))
        second = pipeline.start()
        before = pipeline.manifest()
        proxy.begin(Fault(bytes_per_s=150_000))
        begun = time.monotonic()
        noise = shop.source.noise("id")
        shop.source.run(f"UPDATE {shop.calm.rpartition('.')[2]} SET ver = ver + 1, t = {noise}")
        poll("it is durable", lambda: updates(pipeline, before, shop.calm) > 0)
        took = time.monotonic() - begun
        beats = [
            m
            for m in pipeline.manifests()[before.manifest_number :]
            if m.kind is ManifestKind.HEARTBEAT and m.uploading
        ]
        assert took > 2 * patience_s, f"it took {took:.1f} s only"
        assert len(beats) >= 2
        assert {m.term for m in pipeline.manifests()} == {1}
        worker.terminate()
        second.terminate()
    pipeline.drain()
    captured = shop.check()
    of = [
        m.manifest_number
        for m in captured.manifests
        for p in m.parts
        if p.table == shop.calm and p.operations.get("u")
    ]
    assert len(set(of)) == 1 < len(of), "it is not one manifest of several parts"


def updates(pipeline: Pipeline[ConformingSource], since: Manifest, table: str) -> int:
    """How many rows of ``table`` were updated in manifests behind ``since``."""
    news = pipeline.manifests()[since.manifest_number :]
    return sum(p.operations.get("u", 0) for m in news for p in m.parts if p.table == table)


def test_slow_puts_are_no_death(database: Database, pipeline_of: PipelineFactory) -> None:
    """Each takes just less than a third of ``takeover_after_s``, and there are manifests that wait
    for more of them than can be under way at once."""
    after_s, put_s, tables = 6.0, 1.8, 24
    names = [f"t{number}" for number in range(tables)]
    database.run(*(f"CREATE TABLE {name} (id serial PRIMARY KEY)" for name in names))
    limits = {"heartbeat_s": 0.6, "takeover_after_s": after_s}
    pipeline = pipeline_of(database, source={"initial": "log-only"}, capture=limits)
    pipeline.drain()
    begun = pipeline.manifest()
    worker = pipeline.start(put_s=put_s)
    worker.wait_point("reading")
    second = pipeline.start(put_s=put_s)
    database.run(";".join(f"INSERT INTO {name} DEFAULT VALUES" for name in names))
    poll("it is durable", partial(all_inserted, pipeline, tables))
    worker.terminate()
    poll("the other one goes on", partial(has_term, pipeline, begun.term + 2))
    second.terminate()
    written = [written_at(m) for m in pipeline.manifests() if m.term == begun.term + 1]
    assert written[-1] - written[0] > 1.5 * after_s, "nobody had the time to lose patience"
    released = [m.term for m in pipeline.manifests() if m.released]
    assert released == [begun.term, begun.term + 1, begun.term + 2]


def all_inserted(pipeline: Pipeline[Database], rows: int) -> bool:
    return rows == pipeline.rows_of("c")


def test_slower_puts_are_safe(
    database: Database, pipeline_of: PipelineFactory, s3: S3Server
) -> None:
    """The one whose store is that slow loses the chain to the other, and nothing else happens."""
    shop = make_shop(
        PostgresSource(database), pipeline_of, capture=QUICKLY, store=on_s3(s3, timeout_s=10.0)
    )
    pipeline = shop.pipeline
    with (
        Proxy(s3.port) as one,
        Proxy(s3.port) as other,
        shop.writers(),
        shop.pipeline.asking() as control_client,
    ):
        ways = [one, other]
        active = shop.start(config=rewired(pipeline, {"store": one}))
        for _ in range(2):
            passive = pipeline.start(config=rewired(pipeline, {"store": ways[1]}))
            poll("it waits", partial(is_passive, control_client, passive))
            last = pipeline.manifest()
            slow = ways[0].begin(Fault(delay_s=1.5 * QUICKLY["takeover_after_s"]))
            poll("the other one takes over", partial(has_term, pipeline, last.term + 1))
            assert active.wait() == FENCED, active.output()[-3000:]
            ways[0].end(slow)
            active, ways = passive, ways[::-1]
        active.wait_point("after-confirm", 3)
        active.terminate()
    pipeline.drain()
    captured = shop.check()
    taken = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert [m.term for m in taken] == [2, 3, 4]


def has_term(pipeline: Pipeline[Any], term: int) -> bool:
    return pipeline.manifest().term == term


def is_passive(control_client: ControlClient, worker: WorkerProcess) -> bool:
    return (worker.pid, "passive") in {
        (status.pid, status.state) for status in control_client.workers()
    }


def test_each_has_a_redis_of_its_own(
    database: Database, pipeline_of: PipelineFactory, tmp_path: Path
) -> None:
    """Redis takes no part in who is active: split, each half serves those who ask there."""
    beats_of = {"heartbeat_s": 1.0, "takeover_after_s": 10.0}
    shop = make_shop(PostgresSource(database), pipeline_of, capture=beats_of)
    pipeline = shop.pipeline
    with ValkeyServer(tmp_path / "other-valkey") as other:
        first = shop.start()
        second = pipeline.start(config=rewired(pipeline, control={"url": other.url()}))
        apart = ControlClient(Control(url=SecretStr(other.url())), pipeline.settings.pipeline)
        poll("the other one waits", lambda: [w.state for w in apart.workers()] == ["passive"])
        request = DumpRequest("there", (shop.calm,), keys=(("7",),))
        apart.ask(request)
        assert pipeline.ask(DumpRequest("here", (shop.calm,))).state is RequestState.DONE
        assert {m.term for m in pipeline.manifests()} == {1}
        assert apart.answer("there") is None, "who does not own the chain took a request"
        first.kill()
        poll("it is served there", lambda: ended(apart, "there"))
        answer = apart.answer("there")
        assert answer is not None and answer.state is RequestState.DONE, answer
        apart.close()
        second.terminate()
    pipeline.drain()
    shop.check()


@pytest.mark.parametrize("granted", [True, False], ids=["seen", "unseen"])
def test_a_replica_keeps_its_server_id(
    mariadb: BinlogServer, pipeline_of: PipelineFactory, start_server: ServerFactory, granted: bool
) -> None:
    """A server ends the older of two streams with one id. Here a replica has the very id that the
    second worker would take. It is seen in the server's list, where the user may look at that; if
    not, the first to lose its stream by it is the worker, and takes another id."""
    database = make_mysql_database(mariadb, "mariadb")
    if granted:
        database.run(f"GRANT REPLICATION MASTER ADMIN ON *.* TO {database.cdc_user}@127.0.0.1")
    shop = make_shop(MysqlSource(database, start_server), pipeline_of, capture=QUICKLY)
    pipeline = shop.pipeline
    sleeper = shop.start()
    sleeper.stop_at("before-confirm")
    last = pipeline.manifest()
    name = f"{pipeline.settings.pipeline} {last.incarnation}"
    with database.cdc_connect() as connection, connection.cursor() as cursor:
        wanted = free_server_id(cursor, name, last.term + 1)
    join = partial(
        open_stream,
        pipeline.settings.source,
        last_position(pipeline),
        flavour="mariadb",
        server_id=wanted,
        application_name="a replica",
    )
    replica = join()
    second = pipeline.start()
    taken_over(pipeline, last)
    second.wait_point("after-confirm", 3)
    if not granted:
        replica.close()
        replica = join()
        second.wait_point("reading", 2)
    shop.source.fill("calm", 2 * ROWS, 2 * ROWS)
    second.wait_point("after-confirm", second.points()["after-confirm"] + 10)
    assert second.points()["reading"] == (1 if granted else 2)

    def all_stay() -> bool:
        ids = [int(row[0]) for row in database.rows("SHOW SLAVE HOSTS")]
        return wanted in ids and len(set(ids)) == len(ids) == 3

    poll("the sleeper's, the replica's, and that of the second are there", all_stay)
    replica.close()
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait() == FENCED, sleeper.output()[-3000:]
    second.terminate()
    pipeline.drain()
    shop.check()
    drop_mysql_database(database)


def last_position(pipeline: Pipeline[ConformingSource]) -> MysqlPosition:
    position = pipeline.manifest().position
    assert isinstance(position, MysqlPosition)
    return position
