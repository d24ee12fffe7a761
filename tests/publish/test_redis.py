"""Redis Streams as an output, on a real Valkey: what others do to its streams, and a server that
loses memory, its role or its last writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from devtools.services.valkey import ValkeyServer
from tests.fixtures.certificates import make_authority
from tests.fixtures.tls_front import TlsFront
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.redis_client import EVENTS_ACL, translate
from tideline.settings.outputs.redis import RedisSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.redis import output as redis_output
from tideline_publish.outputs.redis.output import RedisOutput

BEGINNING = ChainPosition("one", 0, 0)
A, B = "public.a", "public.b"
STREAM_A = "s:public.a"
CANARY = "canary-4f1c"

Opened = Callable[..., RedisOutput]


def event(seq: int, table: str = A, part: int = 0) -> ChangeEvent:
    return ChangeEvent(seq, part, table, "u", 7, 1_000, b'{"id":1}', b'{"row":%d}' % seq)


def at(seq: int, incarnation: str = "one") -> ChainPosition:
    return ChainPosition(incarnation, seq, seq)


@pytest.fixture
def client(valkey: ValkeyServer) -> Iterator[Any]:
    with redis.Redis.from_url(valkey.url(), decode_responses=True) as client:
        yield client


@pytest.fixture
def opened(valkey: ValkeyServer) -> Iterator[Opened]:
    """An output that is open behind a position."""
    made = []

    def make(position: ChainPosition = BEGINNING, name: str = "events", **given: Any) -> Any:
        settings = {"url": valkey.url(), "stream": "s:{schema}.{table}", **given}
        found = RedisOutput("shop", name, RedisSettings.model_validate(settings))
        made.append(found)
        found.open(position)
        return found

    yield make
    for one in made:
        one.close()


def publish(output: RedisOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(at(events[-1].seq))


def ids(client: Any, stream: str = STREAM_A) -> list[str]:
    return [entry_id for entry_id, _ in client.xrange(stream)]


def test_an_entry_has_the_sequence_as_its_id_and_the_event(opened: Opened, client: Any) -> None:
    keyless = ChangeEvent(2, 1, A, "t", 0, 0, None, b"{}")
    publish(opened(), event(1), keyless)
    first = {"table": A, "op": "u", "key": '{"id":1}', "value": '{"row":1}'}
    assert client.xrange(STREAM_A) == [
        ("1-0", first),
        ("2-1", {"table": A, "op": "t", "value": "{}"}),
    ]


def test_what_is_there_is_not_there_again_even_when_all_was_trimmed(
    opened: Opened, client: Any
) -> None:
    publish(opened(), event(1), event(2))
    client.xtrim(STREAM_A, maxlen=0, approximate=False)
    publish(opened(), event(1), event(2), event(3))
    assert ids(client) == ["3-0"]


def test_a_batch_ends_at_the_first_event_that_is_refused(opened: Opened, client: Any) -> None:
    """Else the later one would be there, and no id below it can follow."""
    output = opened()
    publish(output, event(1), event(2, B))
    client.delete("s:public.b")
    client.set("s:public.b", "a text")
    with pytest.raises(Misconfigured, match=r"s:public\.b holds no stream"):
        publish(output, event(3), event(4, B), event(5))
    assert ids(client) == ["1-0", "3-0"]
    with pytest.raises(Misconfigured, match=r"s:public\.b holds no stream"):
        publish(opened(), event(4, B))


def test_batches_that_are_full_go_before_the_position_does(
    opened: Opened, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_output, "BATCH_EVENTS", 2)
    output = opened()
    output.write([event(seq) for seq in range(1, 6)])
    assert len(ids(client)) == 4
    assert client.get("tideline:shop:publisher:events") is None
    output.close()
    again = opened()
    publish(again, *[event(seq) for seq in range(1, 6)])
    assert ids(client) == [f"{seq}-0" for seq in range(1, 6)]
    assert again.open(BEGINNING) == at(5)


def test_an_entry_of_another_is_found_and_never_taken_for_ours(opened: Opened, client: Any) -> None:
    output = opened()
    publish(output, event(1))
    client.xadd(STREAM_A, {"by": "another"})
    with pytest.raises(Unavailable, match="not below"):
        publish(output, event(2))
    for _ in range(2):
        with pytest.raises(Misconfigured, match="did not write"):
            publish(opened(at(1)), event(2))
    assert len(ids(client)) == 2


def test_a_stream_that_was_there_with_entries_is_left_alone(opened: Opened, client: Any) -> None:
    client.xadd(STREAM_A, {"by": "another"})
    with pytest.raises(Misconfigured, match="did not write"):
        publish(opened(), event(1))


def test_a_stream_that_a_group_of_consumers_made_is_taken(opened: Opened, client: Any) -> None:
    client.xgroup_create(STREAM_A, "readers", "0", mkstream=True)
    publish(opened(), event(1))
    [[_, found]] = client.xreadgroup("readers", "me", {STREAM_A: ">"})
    assert [entry_id for entry_id, _ in found] == ["1-0"]


def test_each_stream_has_one_publisher(opened: Opened) -> None:
    publish(opened(), event(1))
    with pytest.raises(Misconfigured, match=r"of another publisher, shop\.events"):
        publish(opened(name="others"), event(2))


def test_the_streams_of_an_earlier_incarnation_are_no_place_for_the_next(opened: Opened) -> None:
    """Its sequences begin again: every event would be taken for one that is there."""
    publish(opened(), event(1), event(2))
    with pytest.raises(Misconfigured, match="before it was started again") as caught:
        publish(opened(at(0, "two")), event(1))
    assert f'DEL "{STREAM_A}" "{STREAM_A}:writer"' in str(caught.value)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again by others"])
def test_a_stream_that_was_removed_is_missed(opened: Opened, client: Any, again: bool) -> None:
    output = opened()
    publish(output, event(1))
    client.delete(STREAM_A)
    if not again:
        with pytest.raises(Misconfigured, match="was removed"):
            publish(output, event(2))
        assert not client.exists(STREAM_A)
    else:
        client.xgroup_create(STREAM_A, "readers", "0", mkstream=True)
    with pytest.raises(Misconfigured, match="was removed"):
        publish(opened(at(1)), event(2))
    client.delete(STREAM_A, f"{STREAM_A}:writer")
    publish(opened(at(1)), event(2))
    assert ids(client) == ["2-0"]


def test_without_memory_nothing_is_left_out(opened: Opened, client: Any) -> None:
    output = opened()
    publish(output, event(1))
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable, match="no memory left"):
            publish(output, event(2), event(3))
    finally:
        client.config_set("maxmemory", 0)
    again = opened(at(1))
    publish(again, event(2), event(3))
    assert ids(client) == ["1-0", "2-0", "3-0"]


def test_a_primary_that_became_a_replica_is_named(opened: Opened, client: Any) -> None:
    output = opened()
    publish(output, event(1))
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(Unavailable, match=r"redis\.url is a replica") as caught:
            publish(output, event(2))
    finally:
        client.replicaof("NO", "ONE")
    assert "have publish.….redis.url name the new primary" in str(caught.value)


def test_writes_that_the_server_lost_are_written_again(tmp_path: Path) -> None:
    """As after a failover to a replica that had not got them."""
    with ValkeyServer(tmp_path / "own") as server:
        settings = RedisSettings.model_validate({"url": server.url(), "stream": "s"})
        output = RedisOutput("shop", "events", settings)
        output.open(BEGINNING)
        publish(output, event(1))
        with redis.Redis.from_url(server.url(), decode_responses=True) as client:
            client.save()
            publish(output, event(2), event(3, B))
            output.close()
            server.kill()
            server.start()
            assert output.open(at(3)) == at(1)
            publish(output, event(2), event(3, B))
            assert ids(client, "s") == ["1-0", "2-0", "3-0"]
        output.close()


def test_a_stream_keeps_about_as_many_as_it_may(opened: Opened, client: Any) -> None:
    publish(opened(entries_max=100), *[event(seq) for seq in range(1, 2_001)])
    assert 100 <= len(ids(client)) < 300
    assert ids(client)[-1] == "2000-0"


def test_a_position_of_an_earlier_epoch_does_not_count(opened: Opened) -> None:
    publish(opened(), event(1), event(2))
    moved = ChainPosition("one", 0, 0, epoch=1)
    assert opened().open(moved) == moved


def test_the_password_is_in_a_file_and_the_server_is_verified(
    opened: Opened, client: Any, valkey: ValkeyServer, tmp_path: Path
) -> None:
    parts = urlsplit(valkey.url())
    file = tmp_path / "password"
    file.write_text(f"{parts.password}\n")
    authority = make_authority(tmp_path)
    with TlsFront(tmp_path, authority, valkey.port) as front:
        url = f"rediss://127.0.0.1:{front.port}/0"
        with pytest.raises(Misconfigured, match="no verified TLS") as caught:
            opened(url=url, password_file=file)
        assert "publish.….redis.url" in str(caught.value)
        publish(opened(url=f"{url}?ssl_ca_certs={authority.file}", password_file=file), event(1))
        assert front.encrypted > 0
    assert ids(client) == ["1-0"]


def test_a_cluster_is_named() -> None:
    error = translate(redis.exceptions.MovedError("866 10.0.0.1:6379"), "publish.….redis")
    assert isinstance(error, Misconfigured)
    assert "publish.….redis.url is of a Redis Cluster" in str(error)


def test_a_user_with_the_rights_that_the_hint_names_can_publish(
    opened: Opened, client: Any, valkey: ValkeyServer
) -> None:
    rights = EVENTS_ACL.replace("STREAMS", "s:*").split()
    client.execute_command("ACL", "SETUSER", "tide", "reset", "on", f">{CANARY}", *rights)
    port = urlsplit(valkey.url()).port
    publish(opened(url=f"redis://tide:{CANARY}@127.0.0.1:{port}/0"), event(1))
    assert ids(client) == ["1-0"]
    client.execute_command("ACL", "SETUSER", "tide", "resetpass", ">other")
    with pytest.raises(Misconfigured, match=r"refuses the login of publish\.….redis\.url") as one:
        opened(url=f"redis://tide:{CANARY}@127.0.0.1:{port}/0")
    assert CANARY not in str(one.value)
