"""Whatever comes through the queue, and whatever becomes of Redis, the worker goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.support.checks import Captured, check_equal, check_history
from tests.support.workload import SCHEMA, TABLES, Workload
from tideline.contract.open_state import OpenState
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.control import GROUP, stream_key

CALM = "public.calm"
CALM_ROWS = 400
BYTES_MAX = 5_000


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """Next to the tables under traffic, one that nobody writes to: what is read of it is a dump."""
    database.run(
        *SCHEMA,
        "CREATE TABLE calm (id int PRIMARY KEY, v text)",
        "INSERT INTO calm SELECT g, 'v' FROM generate_series(1, 400) g",
    )
    # A message that a busy worker has taken and not yet recorded is not to come a second time.
    return pipeline_of(
        database,
        control={"message_bytes_max": BYTES_MAX},
        capture={"request_claim_s": 60.0},
    )


def message(request_id: str, **fields: object) -> bytes:
    return json.dumps({"request_id": request_id, "tables": [CALM], **fields}).encode()


# What is sent, the id that its refusal goes to (None: one made of the entry's), words of the reason
BAD: list[tuple[bytes, str | None, str]] = [
    (b'{"request_id": "torn", "tables"', None, "not valid"),
    (b"\xff\x00", None, "not valid"),
    (message("huge", requested_by="x" * BYTES_MAX), None, "above control.message_bytes_max"),
    (message("newer", version=2), "newer", "version must be 1"),
    (message("strange", sql="DROP TABLE calm"), "strange", "unknown field"),
    (message("nothing", tables=["public.nope"]), "nothing", "no captured table matches"),
    (message("wide", keys=[["1", "2"]]), "wide", "must give its key columns: id"),
    (message("narrow", tables=["public.pairs"], keys=[["1"]]), "narrow", "key columns: b, a"),
]


def test_a_bad_message_is_refused_recorded_and_answered(
    shop: Pipeline[Database], valkey: ValkeyServer
) -> None:
    stream = stream_key(shop.settings.pipeline)
    with working(shop, seed=31) as worker, redis.Redis.from_url(valkey.url()) as client:
        sent = {}
        for raw, request_id, words in BAD:
            entry = client.xadd(stream, {"request": raw})
            assert isinstance(entry, bytes)
            sent[request_id or f"entry-{entry.decode()}"] = words
        good = shop.ask(DumpRequest("good", (CALM,), keys=(("7",), ("999",))))
        assert good.state is RequestState.DONE, good
        poll("every message is acknowledged", lambda: not left(client, stream))
        for request_id, words in sent.items():
            answer = shop.final_answer(request_id)  # After its message is acknowledged.
            assert answer.state is RequestState.REFUSED
            assert words in str(answer.error)
        assert worker.points()["reading"] == 1
    captured = check(shop)
    refused = [answer for m in captured.manifests for answer in m.refused]
    assert {answer.request_id: answer.state for answer in refused} == dict.fromkeys(
        sent, RequestState.REFUSED
    )
    assert len(refused) == len(sent)
    accepted = [request_id for m in captured.manifests for request_id in m.accepted]
    assert not set(accepted) & set(sent)


def test_redis_is_flushed_while_a_request_is_open(
    shop: Pipeline[Database], valkey: ValkeyServer
) -> None:
    request = DumpRequest("full-1", (CALM,), chunk_rows=20, delay_ms=1_000)
    with working(shop, seed=32), shop.asking() as control_client:
        control_client.ask(request)
        control_client.ask(request)
        shop.wait_state("the dump has begun", lambda state: chunks(state, "full-1") >= 2)
        valkey.flush()
        assert chunks(shop.state(), "full-1") >= 2, "the dump ended too early"
        control_client.ask(request)
        shop.hurry()
        shop.wait_state("the dump ends", lambda state: ended(state, "full-1"))
        poll("the worker is seen again", lambda: len(control_client.workers()) == 1)
        valkey.flush()
        answer = shop.ask(request)
        assert answer.state is RequestState.DONE, answer
        assert answer.tables[0].rows == CALM_ROWS
    check_dumped_once(check(shop), answer)


def test_redis_is_stopped_for_a_while(shop: Pipeline[Database], valkey: ValkeyServer) -> None:
    # Nobody can hurry it while Redis is away.
    request = DumpRequest("full-1", (CALM,), chunk_rows=40, delay_ms=800)
    with working(shop, seed=33) as worker, shop.asking() as control_client:
        control_client.ask(request)
        shop.wait_state("the dump has begun", lambda state: chunks(state, "full-1") >= 1)
        valkey.stop()
        before = shop.manifest()
        shop.wait_state("the dump ends", lambda state: ended(state, "full-1"))
        poll("capture goes on", lambda: shop.manifest().last_seq > before.last_seq + 500)
        valkey.start()
        answer = shop.ask(request)
        assert answer.state is RequestState.DONE, answer
        assert worker.points()["reading"] == 1
    check_dumped_once(check(shop), answer)


@contextmanager
def working(shop: Pipeline[Database], *, seed: int) -> Iterator[WorkerProcess]:
    """A worker that has made the first dumps, under traffic; at the end all is drained."""
    worker = shop.start()
    with Workload(shop.database.dsn, seed=seed, pause_s=0.01):
        shop.wait_state("the first dumps end", lambda s: CALM in s.tables and not s.requests)
        yield worker
    worker.terminate()
    shop.drain()


def left(client: redis.Redis, stream: str) -> int:
    """Messages in the stream, and those that were claimed and not acknowledged."""
    length, pending = client.xlen(stream), client.xpending(stream, GROUP)
    assert isinstance(length, int)
    assert isinstance(pending, dict)
    return length + int(pending["pending"])


def chunks(state: OpenState, request_id: str) -> int:
    """How many chunks an open request has got."""
    open_ = [item for item in state.requests if item.request.request_id == request_id]
    return sum(dump.chunks for item in open_ for dump in item.dumps)


def ended(state: OpenState, request_id: str) -> bool:
    return request_id in {answer.request_id for answer in state.recent}


def check(shop: Pipeline[Database]) -> Captured:
    captured = check_equal(shop.settings, shop.database, [*TABLES, CALM])
    check_history(captured, ledger="public.ledger", versioned=["public.accounts"])
    return captured


def check_dumped_once(captured: Captured, answer: Answer) -> None:
    """The request was accepted once, ended once, where the answer says, and read every row once."""
    accepted = [m for m in captured.manifests if answer.request_id in m.accepted]
    finished = [m for m in captured.manifests for a in m.finished if a.request_id == "full-1"]
    assert len(accepted) == 1
    assert [m.manifest_number for m in finished] == [answer.manifest_number]
    since = accepted[0].first_seq
    rows = Counter(c.key for c in captured.table(CALM) if c.seq >= since)
    assert len(rows) == CALM_ROWS
    assert set(rows.values()) == {1}
