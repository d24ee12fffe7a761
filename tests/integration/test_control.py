"""The control queue on a real Valkey: what is asked is claimed, whoever is killed or flushed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import redis

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import PATIENCE_S
from tests.fixtures.certificates import make_authority
from tests.fixtures.tls_front import TlsFront
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress
from tideline.control import (
    WORKER_TTL_S,
    ControlClient,
    WorkerStatus,
    answer_key,
    stream_key,
    worker_key,
)
from tideline.control.queue import STREAM_ENTRIES_MAX
from tideline.redis_client import COMMANDS, connect, translate
from tideline.settings import Control
from tideline_capture.core.events import Arrival, RequestArrived, RequestRefused
from tideline_capture.queue import RequestQueue

CANARY = "canary-4f1c"

MakeQueue = Callable[..., RequestQueue]


@pytest.fixture
def control(valkey: ValkeyServer) -> Control:
    return Control.model_validate({"url": valkey.url(), "message_bytes_max": 2_000})


@pytest.fixture
def client(valkey: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey.url()) as client:
        yield client


@pytest.fixture
def control_client(control: Control, pipeline: str) -> ControlClient:
    return ControlClient(control, pipeline, timeout_s=PATIENCE_S)


@pytest.fixture
def make_queue(control: Control, pipeline: str) -> MakeQueue:
    def make(consumer: str = "w1", *, claim_idle_s: float = 30.0) -> RequestQueue:
        return RequestQueue(
            connect(control, timeout_s=PATIENCE_S),
            control,
            pipeline,
            consumer,
            clock=time.monotonic,
            claim_idle_s=claim_idle_s,
        )

    return make


def queue_of(control: Control, pipeline: str) -> RequestQueue:
    client = connect(control, timeout_s=PATIENCE_S)
    return RequestQueue(client, control, pipeline, "w1", clock=time.monotonic)


def request(request_id: str = "r1", *tables: str) -> DumpRequest:
    return DumpRequest(request_id, tables or ("public.*",))


def ids(messages: list[Arrival]) -> list[str]:
    return [one.request.request_id for one in messages if isinstance(one, RequestArrived)]


def status(pipeline: str, writer: str = "w1", at_us: int = 1) -> WorkerStatus:
    return WorkerStatus(
        writer=writer,
        pipeline=pipeline,
        state="live",
        host="h",
        pid=1,
        term=1,
        manifest_number=2,
        last_seq=3,
        updated_at_us=at_us,
    )


def test_asked_claimed_acknowledged(
    control_client: ControlClient, make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    queue = make_queue()
    assert queue.claim() == []
    asked = DumpRequest("r1", ("public.a",), keys=(("1", "ü"), ("2", "")), chunk_rows=7)
    control_client.ask(asked)
    (message,) = queue.claim()
    assert message == RequestArrived(message.message_id, asked)
    assert queue.claim() == []
    queue.acknowledge([message.message_id])
    assert client.xlen(stream_key(pipeline)) == 0
    assert make_queue("w2").claim() == []


def test_asked_before_any_worker_ran(control_client: ControlClient, make_queue: MakeQueue) -> None:
    control_client.ask(request("r1"))
    control_client.ask(request("r2"))
    assert ids(make_queue().claim()) == ["r1", "r2"]


def test_a_successor_inherits_what_was_not_acknowledged(
    control_client: ControlClient, make_queue: MakeQueue
) -> None:
    for number in range(200):
        control_client.ask(request(f"r{number}"))
    killed = make_queue("w1")
    claimed = [*killed.claim(), *killed.claim()]
    killed.acknowledge([message.message_id for message in claimed[:10]])
    successor = make_queue("w2")
    seen: list[str] = []
    while messages := successor.claim():
        seen += ids(messages)
    assert seen == [f"r{number}" for number in range(10, 200)]


def test_idle_entries_are_claimed_again(
    control_client: ControlClient, make_queue: MakeQueue
) -> None:
    queue = make_queue("w1", claim_idle_s=3600.0)
    eager = make_queue("w2", claim_idle_s=0.0)
    assert queue.claim() == eager.claim() == []
    control_client.ask(request())
    assert ids(queue.claim()) == ["r1"]
    assert queue.claim() == []
    assert ids(eager.claim()) == ["r1"]


def test_a_flush_costs_a_repetition(
    control_client: ControlClient, make_queue: MakeQueue, valkey: ValkeyServer
) -> None:
    queue = make_queue()
    control_client.ask(request())
    (message,) = queue.claim()
    valkey.flush()
    queue.acknowledge([message.message_id])
    assert queue.claim() == []
    control_client.ask(request())
    assert ids(queue.claim()) == ["r1"]


@pytest.mark.parametrize(
    ("raw", "text", "request_id"),
    [
        (b"", "not valid", None),
        (b"{", "not valid", None),
        (b"\xff", "not valid", None),
        (b'{"request_id":"\xff"}', "not UTF-8", None),
        (b"[]", "not valid", None),
        (b'{"a":' + b"[" * 1_500, "not valid", None),
        (b'{"request_id":"x","tables":["a.b"],"sql":"1=1"}', "unknown field", "x"),
        (b'{"request_id":"x","tables":[]}', "at least one table", "x"),
        (b'{"request_id":"x","tables":["a.b"],"version":2}', "version must be 1", "x"),
        (b'{"request_id":"x","tables":["a.b"],"requires":["y"]}', "features required: y", "x"),
        (b'{"request_id":"a b","tables":["a.b"]}', "request_id must be", None),
        (b'{"request_id":7,"tables":["a.b"]}', "request_id", None),
        (b'{"request_id":"x","tables":["a.b"],"keys":[["1\\u0000"]]}', "NUL", "x"),
        (b'{"request_id":"x","tables":["a.b"],"chunk_rows":0}', "chunk_rows must be", "x"),
        (b"x" * 2_001, "2001 bytes, above control.message_bytes_max", None),
    ],
)
def test_bad_messages_are_told_apart_and_can_be_answered(
    raw: bytes,
    text: str,
    request_id: str | None,
    control_client: ControlClient,
    make_queue: MakeQueue,
    client: redis.Redis,
    pipeline: str,
) -> None:
    client.xadd(stream_key(pipeline), {"request": raw})
    control_client.ask(request("good"))
    queue = make_queue()
    bad, good = queue.claim()
    assert good == RequestArrived(good.message_id, request("good"))
    assert isinstance(bad, RequestRefused)
    assert text in bad.error
    assert bad.request_id == (request_id or f"entry-{bad.message_id}")
    queue.answer(Answer(bad.request_id, RequestState.REFUSED, error=bad.error))
    queue.acknowledge([bad.message_id, good.message_id])
    answer = control_client.answer(bad.request_id)
    assert answer is not None
    assert answer.state is RequestState.REFUSED


def test_an_entry_without_the_field(
    make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    client.xadd(stream_key(pipeline), {"other": b"x" * 100_000})
    (message,) = make_queue().claim()
    assert isinstance(message, RequestRefused)
    assert "no field 'request'" in message.error


def test_an_oversized_message_is_never_fetched(
    make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    client.xadd(stream_key(pipeline), {"request": b"x" * 50_000_000})
    queue = make_queue()
    before = client.info("stats")["total_net_output_bytes"]
    (message,) = queue.claim()
    assert isinstance(message, RequestRefused)
    assert client.info("stats")["total_net_output_bytes"] - before < 100_000


def test_the_asker_refuses_what_the_worker_would(control_client: ControlClient) -> None:
    with pytest.raises(Misconfigured, match="keys needs exactly one table"):
        control_client.ask(DumpRequest("r", ("a.b", "a.c"), keys=(("1",),)))
    with pytest.raises(Misconfigured, match="bytes, above"):
        control_client.ask(DumpRequest("r", ("a.b",), keys=tuple((str(n),) for n in range(1_000))))


def test_the_stream_is_bounded(
    control_client: ControlClient, client: redis.Redis, pipeline: str
) -> None:
    pipe = client.pipeline(transaction=False)
    for _ in range(STREAM_ENTRIES_MAX + 500):
        pipe.xadd(stream_key(pipeline), {"request": b"x"})
    pipe.execute()
    control_client.ask(request())
    # Trimming is approximate: whole blocks of a stream's tree.
    assert client.xlen(stream_key(pipeline)) <= STREAM_ENTRIES_MAX + 200


def test_answers_are_replaced_and_expire(
    control_client: ControlClient, make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    queue = make_queue()
    assert control_client.answer("r/1:a") is None
    progress = TableProgress("public.a", RequestState.RUNNING, chunks=2, chunks_estimate=9)
    queue.answer(Answer("r/1:a", RequestState.ACCEPTED, manifest_number=3))
    last = Answer("r/1:a", RequestState.RUNNING, manifest_number=3, tables=(progress,))
    queue.answer(last)
    assert control_client.answer("r/1:a") == last
    assert 0 < client.pttl(answer_key(pipeline, "r/1:a")) <= 86_400_000


def test_worker_statuses(
    control_client: ControlClient, make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    queue = make_queue()
    assert control_client.workers() == []
    dump = Answer("r1", RequestState.RUNNING)
    first = WorkerStatus(
        writer="w1", pipeline=pipeline, state="live", host="h", pid=1, term=1, manifest_number=2,
        last_seq=3, updated_at_us=10, position="0/1", source_time_us=9, note="n", dumps=(dump,),
    )  # fmt: skip
    queue.publish(first)
    queue.publish(status(pipeline, "w0", 11))
    assert [found.writer for found in control_client.workers()] == ["w0", "w1"]
    assert control_client.workers()[1] == first
    assert client.pttl(worker_key(pipeline, "w1")) > 0
    # How long ago that was Redis knows, whatever the workers' clocks say.
    assert [heard.status for heard in control_client.heard()] == control_client.workers()
    assert all(0 <= heard.silent_s < WORKER_TTL_S for heard in control_client.heard())
    client.pexpire(worker_key(pipeline, "w1"), 9_000)
    assert [heard.silent_s >= WORKER_TTL_S - 9 for heard in control_client.heard()][1]
    client.delete(worker_key(pipeline, "w0"))
    assert [found.writer for found in control_client.workers()] == ["w1"]
    queue.withdraw("w1")
    assert control_client.workers() == []


def test_what_we_cannot_have_written(
    control_client: ControlClient, client: redis.Redis, pipeline: str
) -> None:
    client.set(answer_key(pipeline, "r1"), b'{"state":"odd"}')
    with pytest.raises(CorruptData, match="not a dump answer"):
        control_client.answer("r1")


def test_a_key_of_another_kind_in_the_streams_place(
    make_queue: MakeQueue, client: redis.Redis, pipeline: str
) -> None:
    client.set(stream_key(pipeline), b"x")
    with pytest.raises(Unavailable, match="ResponseError"):
        make_queue().claim()


def test_redis_away_then_back(pipeline: str, valkey: ValkeyServer, control: Control) -> None:
    now = [100.0]
    queue = RequestQueue(
        connect(control, timeout_s=PATIENCE_S), control, pipeline, "w1", clock=lambda: now[0]
    )
    control_client = ControlClient(control, pipeline, timeout_s=PATIENCE_S)
    assert queue.claim() == []
    valkey.stop()
    with pytest.raises(Unavailable, match="cannot be reached"):
        queue.claim()
    with pytest.raises(Unavailable, match="a moment ago"):
        queue.claim()
    with pytest.raises(Unavailable, match="cannot be reached"):
        control_client.ask(request())
    valkey.start()
    valkey.flush()
    now[0] += 60.0
    control_client.ask(request())
    assert ids(queue.claim()) == ["r1"]


def test_a_hung_redis_is_waited_for_once(pipeline: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        control = Control.model_validate({"url": f"redis://:{CANARY}@127.0.0.1:{port}/0"})
        queue = RequestQueue(
            connect(control, timeout_s=0.2), control, pipeline, "w1", clock=lambda: 0.0
        )
        with pytest.raises(Unavailable, match="did not answer in time") as caught:
            queue.claim()
        assert CANARY not in repr(caught.value)
        with pytest.raises(Unavailable, match="a moment ago"):
            queue.answer(Answer("r", RequestState.DONE))


def test_a_cut_connection(pipeline: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            peer, _ = server.accept()
            peer.recv(1)
            peer.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        port = server.getsockname()[1]
        control = Control.model_validate({"url": f"redis://127.0.0.1:{port}/0"})
        with pytest.raises(Unavailable):
            ControlClient(control, pipeline).ping()
        thread.join()


def test_a_wrong_password(valkey: ValkeyServer, pipeline: str) -> None:
    url = f"redis://:{CANARY}@127.0.0.1:{valkey.port}/0"
    control = Control.model_validate({"url": url})
    with pytest.raises(Misconfigured, match="refuses the login") as refused:
        ControlClient(control, pipeline, timeout_s=PATIENCE_S).ping()
    with pytest.raises(Unavailable, match="refuses the login") as unavailable:
        queue_of(control, pipeline).claim()
    assert CANARY not in repr(refused.value) + repr(unavailable.value)


def test_no_password(valkey: ValkeyServer, pipeline: str) -> None:
    control = Control.model_validate({"url": f"redis://127.0.0.1:{valkey.port}/0"})
    with pytest.raises(Misconfigured, match="refuses the login"):
        ControlClient(control, pipeline, timeout_s=PATIENCE_S).ping()


def test_the_password_can_be_in_a_file(valkey: ValkeyServer, pipeline: str, tmp_path: Path) -> None:
    parts = urlsplit(valkey.url())
    file = tmp_path / "password"
    file.write_text(f"{parts.password}\n")
    url = parts._replace(netloc=f"{parts.hostname}:{parts.port}").geturl()
    control = Control.model_validate({"url": url, "password_file": file})
    ControlClient(control, pipeline, timeout_s=PATIENCE_S).ask(request())
    queue = queue_of(control, pipeline)
    assert ids(queue.claim()) == ["r1"]
    file.write_text("wrong")
    with pytest.raises(Misconfigured, match="refuses the login"):
        ControlClient(control, pipeline, timeout_s=PATIENCE_S).ping()


def test_the_grants_that_docs_name_suffice(
    valkey: ValkeyServer, client: redis.Redis, pipeline: str
) -> None:
    client.script_flush()
    client.acl_setuser(
        "tl",
        enabled=True,
        reset=True,
        passwords=["+secret"],
        keys=["tideline:*"],
        commands=COMMANDS.split(),
    )
    control = Control.model_validate({"url": f"redis://tl:secret@127.0.0.1:{valkey.port}/0"})
    control_client = ControlClient(control, pipeline, timeout_s=PATIENCE_S)
    queue = queue_of(control, pipeline)
    control_client.ask(request())
    (message,) = queue.claim()
    queue.answer(Answer("r1", RequestState.DONE))
    queue.acknowledge([message.message_id])
    queue.publish(status(pipeline))
    assert control_client.answer("r1") is not None
    assert len(control_client.workers()) == 1
    assert [heard.silent_s < WORKER_TTL_S for heard in control_client.heard()] == [True]
    # A login that was made for fewer commands: by the clocks, of which the worker's says 1970.
    client.acl_setuser("tl", commands=["-pttl"])
    assert [heard.silent_s > 1_000_000 for heard in control_client.heard()] == [True]
    client.acl_setuser("tl", commands=["-xadd"])
    with pytest.raises(Misconfigured, match="refuses"):
        control_client.ask(request())
    client.acl_deluser("tl")


def test_errors_never_quote_the_library() -> None:
    for error in (redis.ConnectionError(f"at {CANARY}"), redis.ResponseError(f"ERR {CANARY}")):
        assert CANARY not in str(translate(error))


@pytest.mark.parametrize("password", ["pässwörd", "пароль", "p€ss"])
@pytest.mark.parametrize("given", ["url", "setting"])
def test_passwords_in_any_charset(
    password: str, given: str, valkey: ValkeyServer, client: redis.Redis, pipeline: str
) -> None:
    client.acl_setuser(
        "tü",
        enabled=True,
        reset=True,
        passwords=[f"+{password}"],
        keys=["tideline:*"],
        commands=COMMANDS.split(),
    )
    login = f"{quote('tü')}:{quote(password)}" if given == "url" else quote("tü")
    values = {"url": f"redis://{login}@127.0.0.1:{valkey.port}/0"}
    if given == "setting":
        values["password"] = password
    try:
        ControlClient(Control.model_validate(values), pipeline, timeout_s=PATIENCE_S).ping()
    finally:
        client.acl_deluser("tü")


def test_tls_is_verified(valkey: ValkeyServer, pipeline: str, tmp_path: Path) -> None:
    """With what the url says of it, and by the machine's authorities else, which are not ours."""
    own, other = make_authority(tmp_path), make_authority(tmp_path, "other")
    password = urlsplit(valkey.url()).password

    def ping(port: int, query: str = "", timeout_s: float = PATIENCE_S) -> None:
        url = f"rediss://:{password}@127.0.0.1:{port}/0{query}"
        control_client = ControlClient(
            Control.model_validate({"url": url}), pipeline, timeout_s=timeout_s
        )
        control_client.ping()
        control_client.close()

    def refused(port: int, query: str, words: str) -> None:
        with pytest.raises(Misconfigured, match=f"no verified TLS to redis: .*{words}") as caught:
            ping(port, query)
        assert "ssl_ca_certs" in str(caught.value.hint)
        assert str(password) not in repr(caught.value)

    with TlsFront(tmp_path, own, valkey.port) as front:
        ping(front.port, f"?ssl_ca_certs={quote(str(own.file))}")
        ping(front.port, "?ssl_cert_reqs=none")
        refused(front.port, "", "unable to get local issuer")
        refused(front.port, f"?ssl_ca_certs={quote(str(other.file))}", "unable to get local issuer")
    with TlsFront(tmp_path, own, valkey.port, address="127.0.0.2") as front:
        refused(front.port, f"?ssl_ca_certs={quote(str(own.file))}", "IP address mismatch")
        ping(front.port, f"?ssl_check_hostname=false&ssl_ca_certs={quote(str(own.file))}")
    with pytest.raises(Misconfigured, match="ssl_ca_certs"):
        ping(valkey.port, "?ssl_ca_certs=/no/such.pem")
    with pytest.raises(Unavailable, match="did not answer to TLS"):  # The server has none.
        ping(valkey.port, timeout_s=1.0)
