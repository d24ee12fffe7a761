"""Kinesis as an output, at moto behind a real HTTP server that fails requests in part."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from devtools.services.kinesis import REGION, THROTTLED, UNANSWERED, KinesisServer
from tests.fixtures.publishing import BEGINNING, SkippedPauses
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.kinesis.output import KinesisOutput

STREAM = "events"
CANARY = "canary-4f1c"


def event(seq: int, key: int = 1, size: int = 10, op: str = "u") -> ChangeEvent:
    value = json.dumps({"op": op, "seq": seq, "key": key, "row": "x" * size}).encode()
    own = None if op == "t" else json.dumps({"id": key}).encode()
    return ChangeEvent(seq, 0, "public.a", op, 7, 1_700_000_000_000_001, own, value, "shop/part-9")


@pytest.fixture
def server(kinesis: KinesisServer) -> Iterator[KinesisServer]:
    kinesis.call("CreateStream", StreamName=STREAM, ShardCount=3)
    yield kinesis
    kinesis.call("DeleteStream", StreamName=STREAM)


@pytest.fixture
def opened(server: KinesisServer, pauses: SkippedPauses) -> Iterator[Callable[..., KinesisOutput]]:
    made = []

    def make(**given: Any) -> KinesisOutput:
        own = {
            "stream": STREAM,
            "region": REGION,
            "endpoint": server.url,
            "access_key_id": "k",
            "secret_access_key": CANARY,
            **given,
        }
        settings = PublishSettings.model_validate({"output": "kinesis", "kinesis": own})
        made.append(KinesisOutput(OutputContext("shop", "e", settings, RealSystem(), pauses)))
        made[-1].open(BEGINNING)
        return made[-1]

    yield make
    for one in made:
        one.close()


Opened = Callable[..., KinesisOutput]


def publish(output: KinesisOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(ChainPosition("one", 1, events[-1].seq))


def value_of(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(record["Data"]))
    return found


def by_key(server: KinesisServer) -> dict[int, list[int]]:
    """The sequences of each row, in their order."""
    found: dict[int, list[int]] = {}
    for one in map(value_of, server.records(STREAM)):
        found.setdefault(one["key"], []).append(one["seq"])
    return found


@pytest.mark.parametrize("every", [2, 3, 5])
def test_rows_keep_their_order_whatever_part_of_a_request_fails(
    opened: Opened, server: KinesisServer, every: int
) -> None:
    count = [0]

    def fault(number: int, records: list[dict[str, Any]]) -> dict[int, str]:
        count[0] += 1
        return {at: THROTTLED for at in range(len(records)) if (count[0] + at) % every}

    server.fault = fault
    events = [event(seq, key=seq * 7 % 10) for seq in range(1, 120)]
    publish(opened(), *events)
    wanted: dict[int, list[int]] = {}
    for seq in range(1, 120):
        wanted.setdefault(seq * 7 % 10, []).append(seq)
    assert by_key(server) == wanted


def test_no_request_has_two_records_of_one_row(opened: Opened, server: KinesisServer) -> None:
    """PutRecords promises no order among those of a request."""
    publish(opened(), *[event(seq, key=seq % 3) for seq in range(1, 12)])
    for records in server.puts:
        assert max(Counter(one["PartitionKey"] for one in records).values()) == 1
    assert [len(records) for records in server.puts] == [3, 3, 3, 2]


def test_what_failed_comes_first_after_a_pause_that_grows(
    opened: Opened, server: KinesisServer, pauses: SkippedPauses
) -> None:
    server.fault = lambda number, records: {0: THROTTLED} if number < 4 else {}
    publish(opened(), event(1, key=1), event(2, key=2), event(3, key=1))
    first = server.puts[0][0]
    assert [records[0] for records in server.puts[:4]] == [first] * 4
    assert pauses.asked == [0.1, 0.2, 0.4]
    assert by_key(server) == {1: [1, 3], 2: [2]}


def test_what_failed_is_in_the_next_request(opened: Opened, server: KinesisServer) -> None:
    """Not behind all that waits."""
    server.fault = lambda number, _: {0: THROTTLED} if number == 1 else {}
    output = opened(record_bytes_max=1_200, request_bytes_max=1_500)
    publish(output, *[event(seq, key=seq, size=600) for seq in range(1, 7)])
    assert [len(records) for records in server.puts] == [2, 2, 2, 1]
    assert server.puts[1][0] == server.puts[0][0]


def test_a_request_without_an_answer_is_made_again(opened: Opened, server: KinesisServer) -> None:
    server.fault = lambda number, _: {0: UNANSWERED} if number == 1 else {}
    output = opened()
    with pytest.raises(Unavailable, match="does not answer"):
        publish(output, event(1))
    output.open(BEGINNING)
    publish(output, event(1), event(2))
    assert by_key(server) == {1: [1, 1, 2]}


def test_requests_stay_below_the_limits(opened: Opened, server: KinesisServer) -> None:
    """moto refuses a request of 501 records, or of more than 5 MiB."""
    publish(opened(), *[event(seq, key=seq) for seq in range(1, 1_203)])
    assert [len(records) for records in server.puts] == [500, 500, 202]
    server.puts.clear()
    publish(opened(), *[event(seq, key=seq, size=900_000) for seq in range(1, 12)])
    assert [len(records) for records in server.puts] == [5, 5, 1]


def test_a_row_that_is_too_large_is_sent_by_reference(
    opened: Opened, server: KinesisServer
) -> None:
    publish(opened(), event(1), event(2, size=1_048_576), event(3))
    whole, found, _ = map(value_of, server.records(STREAM))
    assert whole["row"]
    assert found == {
        "op": "u",
        "table": "public.a",
        "seq": 2,
        "part": 0,
        "tx": 7,
        "at": "2023-11-14T22:13:20.000001Z",
        "key": {"id": 1},
        "reference": {"object": "shop/part-9", "seq": 2},
    }


def test_the_partition_key_counts_and_the_limit_is_exact(
    opened: Opened, server: KinesisServer
) -> None:
    empty = event(1, size=0).size - len(event(1).key or b"")
    fits = 2_000 - 32 - empty
    publish(opened(record_bytes_max=2_000), event(1, size=fits), event(2, size=fits + 1))
    found = [value_of(one) for one in server.records(STREAM)]
    assert ["reference" in one for one in found] == [False, True]


def test_a_row_that_is_too_large_stops_it_where_references_are_off(opened: Opened) -> None:
    output = opened(by_reference=False, record_bytes_max=2_000)
    with pytest.raises(Misconfigured, match=r"change 2 of public\.a makes a record of") as caught:
        publish(output, event(1), event(2, size=2_000))
    assert "xxx" not in str(caught.value)


def test_partition_keys_show_nothing_of_a_row(opened: Opened, server: KinesisServer) -> None:
    publish(opened(), event(1, key=77_777))
    [record] = server.records(STREAM)
    assert "77777" not in record["PartitionKey"]
    assert len(record["PartitionKey"]) == 32


def test_a_truncate_is_in_every_shard_behind_what_came_before(
    opened: Opened, server: KinesisServer
) -> None:
    events = [event(seq, key=seq) for seq in range(1, 30)]
    after = [event(seq, key=seq) for seq in range(31, 60)]
    server.fault = lambda number, records: {0: THROTTLED} if number % 2 else {}
    publish(opened(), *events, event(30, op="t"), *after)
    shards: dict[str, list[int]] = {}
    for one in server.records(STREAM):
        shards.setdefault(one["ShardId"], []).append(value_of(one)["seq"])
    assert len(shards) == 3
    for seqs in shards.values():
        at = seqs.index(30)
        assert max(seqs[:at], default=0) < 30 < min(seqs[at + 1 :], default=99)


def test_a_truncate_reaches_shards_that_came_to_be_meanwhile(
    opened: Opened, server: KinesisServer
) -> None:
    output = opened()
    split: list[str] = []

    def before(action: str) -> None:
        if action == "PutRecords" and not split:
            split.append(action)
            server.split(STREAM)

    server.before = before
    publish(output, event(1, op="t"))
    assert split
    assert {one["ShardId"] for one in server.open_shards(STREAM)} <= {
        one["ShardId"] for one in server.records(STREAM)
    }


def test_rows_keep_their_order_while_shards_are_split(
    opened: Opened, server: KinesisServer
) -> None:
    count = [0]

    def before(action: str) -> None:
        count[0] += action == "PutRecords"
        if action == "PutRecords" and count[0] in (5, 9):
            server.split(STREAM)

    server.before = before
    server.fault = lambda number, records: {0: THROTTLED} if number % 2 else {}
    publish(opened(), *[event(seq, key=seq % 5) for seq in range(1, 100)])
    found = by_key(server)
    assert {key: sorted(seqs) for key, seqs in found.items()} == found
    assert sum(map(len, found.values())) == 99


def test_status_is_told_why_nothing_is_taken_for_now(opened: Opened, server: KinesisServer) -> None:
    server.fault = lambda number, records: {0: THROTTLED} if number < 4 else {}
    output, reasons = opened(), list[str]()
    output._context = replace(output._context, waits=reasons.append)
    publish(output, event(1))
    assert reasons == [f"Kinesis took no event of the last requests: {THROTTLED}"] * 2


def test_one_that_is_stopped_while_it_waits_says_so(
    opened: Opened, server: KinesisServer, pauses: SkippedPauses
) -> None:
    pauses.stop_after = 2
    server.fault = lambda number, records: dict.fromkeys(range(len(records)), THROTTLED)
    with pytest.raises(Unavailable, match="stopped before Kinesis took"):
        publish(opened(), event(1))
    assert server.records(STREAM) == []


def test_a_stream_that_is_not_there_is_named_and_no_secret(
    opened: Opened, server: KinesisServer
) -> None:
    with pytest.raises(Misconfigured, match="no Kinesis stream other") as caught:
        opened(stream="other")
    assert CANARY not in f"{caught.value} {caught.value.__dict__}"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"stream": None}, "names no stream"),
        ({"endpoint": "http://example.com"}, "must be https://, except"),
        ({"access_key_id": "k"}, "belong together"),
        ({"session_token": "t"}, "without the keys"),
        ({"record_bytes_max": 9_000_000}, "above request_bytes_max"),
        ({"timeout_s": 11}, "would be taken over"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        PublishSettings.model_validate(
            {"output": "kinesis", "kinesis": {"stream": STREAM, **given}}
        )
