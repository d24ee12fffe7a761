"""The merger's lease, status and plans, in a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tideline.contract.errors import Unavailable
from tideline.control.merger import (
    Lease,
    MergerClient,
    MergerQueue,
    MergerStatus,
    lease_key,
    merges_key,
)
from tideline.redis_client import COMMANDS, connect
from tideline.settings import Control

PIPELINE = "shop"
STATUS = MergerStatus("a", PIPELINE, "merging", "host", 7, 1, 2, plans=("p",))


@pytest.fixture
def control(valkey: ValkeyServer) -> Control:
    return Control.model_validate({"url": valkey.url()})


@pytest.fixture
def mergers(control: Control) -> Iterator[tuple[MergerQueue, MergerQueue]]:
    with (
        closing(MergerQueue(control, PIPELINE, "a", lease_s=0.4)) as first,
        closing(MergerQueue(control, PIPELINE, "b", lease_s=0.4)) as second,
    ):
        yield first, second


def test_one_merger_has_the_lease(mergers: tuple[MergerQueue, MergerQueue]) -> None:
    first, second = mergers
    assert first.renew() is Lease.HELD
    assert second.renew() is Lease.TAKEN
    assert first.renew() is Lease.HELD
    second.release()
    assert second.renew() is Lease.TAKEN, "only its holder gives it up"
    first.release()
    assert second.renew() is Lease.HELD


def test_a_lease_that_is_not_renewed_is_taken_over(
    mergers: tuple[MergerQueue, MergerQueue],
) -> None:
    first, second = mergers
    assert first.renew() is Lease.HELD
    poll("the lease ends", lambda: second.renew() is Lease.HELD)
    assert first.renew() is Lease.TAKEN


def test_a_lease_that_redis_lost_is_taken_again(
    mergers: tuple[MergerQueue, MergerQueue], valkey: ValkeyServer
) -> None:
    first, second = mergers
    first.renew()
    valkey.flush()
    assert first.renew() is Lease.HELD
    assert second.renew() is Lease.TAKEN


def test_the_status_goes_with_the_lease(
    mergers: tuple[MergerQueue, MergerQueue], control: Control
) -> None:
    first, _ = mergers
    with closing(MergerClient(control, PIPELINE)) as client:
        assert client.status() is None
        first.renew()
        first.publish(STATUS)
        assert client.status() == STATUS
        poll("it expires", lambda: client.status() is None)
        first.renew()
        first.publish(STATUS)
        first.release()
        assert client.status() is None


def test_plans_stay_until_they_have_ended(
    mergers: tuple[MergerQueue, MergerQueue], control: Control
) -> None:
    first, second = mergers
    with closing(MergerClient(control, PIPELINE)) as client:
        client.ask("one")
        client.ask("two")
        client.ask("one")
        first.began(["own"])
        assert first.asked() == ["one", "two", "own"]
        assert second.asked() == ["one", "two", "own"], "another merger is asked for the same"
        first.ended(["one"])
        client.withdraw("two")
        assert first.asked() == ["own"]


def test_what_cannot_be_an_id_is_removed(
    mergers: tuple[MergerQueue, MergerQueue], control: Control
) -> None:
    redis: Any = connect(control, timeout_s=1.0)
    redis.zadd(merges_key(PIPELINE), {"../../etc": 1, b"\xff\n": 2, "fine": 3})
    assert mergers[0].asked() == ["fine"]
    assert redis.zrange(merges_key(PIPELINE), 0, -1) == [b"fine"]
    redis.close()


def test_the_commands_that_a_login_is_made_for_are_enough(
    valkey: ValkeyServer, control: Control
) -> None:
    redis: Any = connect(control, timeout_s=1.0)
    redis.execute_command(
        "ACL", "SETUSER", "merger", "on", ">secret", "~tideline:*", *COMMANDS.split()
    )
    limited = Control.model_validate({"url": f"redis://merger:secret@127.0.0.1:{valkey.port}/0"})
    with (
        closing(MergerQueue(limited, PIPELINE, "a")) as queue,
        closing(MergerClient(limited, PIPELINE)) as client,
    ):
        assert queue.renew() is Lease.HELD
        queue.publish(STATUS)
        client.ask("p")
        queue.began(["q"])
        assert queue.asked() == ["p", "q"]
        queue.ended(["p"])
        client.withdraw("q")
        assert client.status() == STATUS
        queue.release()
    assert redis.get(lease_key(PIPELINE)) is None
    redis.execute_command("ACL", "DELUSER", "merger")
    redis.close()


def test_without_redis_each_call_says_so() -> None:
    nowhere = Control.model_validate({"url": "redis://127.0.0.1:1/0"})
    with closing(MergerQueue(nowhere, PIPELINE, "a")) as queue:
        for call in (queue.renew, queue.release, queue.asked):
            with pytest.raises(Unavailable):
                call()
