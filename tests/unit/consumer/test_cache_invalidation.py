"""What a cache is told to forget, and which transactions count as an application's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tideline.consumer import CacheInvalidator, OwnTransactions, redis_evictor

Evicted = list[tuple[str, Mapping[str, Any] | None]]


def event(seq: int, tx: int, op: str = "u", key: int | None = 1) -> str:
    found: dict[str, Any] = {"op": op, "table": "public.orders", "seq": seq, "tx": tx}
    return json.dumps(found if key is None else {**found, "key": {"id": key}})


@pytest.fixture
def evicted() -> Evicted:
    return []


def invalidator(evicted: Evicted, own: OwnTransactions) -> CacheInvalidator:
    return CacheInvalidator(lambda table, key: evicted.append((table, key)), own)


def test_changes_of_others_are_evicted_and_own_ones_are_not(evicted: Evicted) -> None:
    own = OwnTransactions()
    own.add(7)
    cache = invalidator(evicted, own)
    handled = [cache.handle(event(at, tx, key=at)) for at, tx in enumerate((7, 8, 7, 9))]
    assert handled == [False, True, False, True]
    assert evicted == [("public.orders", {"id": 1}), ("public.orders", {"id": 3})]


def test_an_own_change_that_comes_again_is_evicted(evicted: Evicted) -> None:
    """Another's change may have come in between, and a consumer that begins again does not know."""
    own = OwnTransactions()
    own.add(7)
    cache = invalidator(evicted, own)
    assert [cache.handle(event(1, 7)), cache.handle(event(1, 7))] == [False, True]


def test_a_truncate_evicts_the_table_and_a_dump_its_rows(evicted: Evicted) -> None:
    cache = invalidator(evicted, OwnTransactions())
    assert cache.handle(event(1, 0, "t", key=None))
    assert cache.handle(event(2, 0, "r"))
    assert evicted == [("public.orders", None), ("public.orders", {"id": 1})]


def test_the_upper_half_of_an_id_is_not_in_the_log(evicted: Evicted) -> None:
    own = OwnTransactions()
    own.add(3 * 2**32 + 7)
    assert not invalidator(evicted, own).handle(event(1, 7))


def test_transactions_are_forgotten_by_age_and_by_number() -> None:
    now = [0.0]
    own = OwnTransactions(size_max=3, age_max_s=10, clock=lambda: now[0])
    for tx in range(5):
        own.add(tx)
    assert [own.skips(tx, 1) for tx in range(5)] == [False, False, True, True, True]
    now[0] = 10.0
    assert not own.skips(4, 2)
    assert len(own) == 0


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"op": "u"}', "{"])
def test_what_is_no_event_is_an_error(evicted: Evicted, text: str) -> None:
    with pytest.raises(ValueError):
        invalidator(evicted, OwnTransactions()).handle(text)


def test_redis_forgets_a_row_or_all_of_a_table() -> None:
    class Client:
        def __init__(self) -> None:
            self.names = {"orders:1", "orders:2", "customers:1"}

        def delete(self, *names: str) -> None:
            self.names -= set(names)

        def scan_iter(self, match: str) -> list[str]:
            return sorted(one for one in self.names if one.startswith(match.rstrip("*")))

    client = Client()
    evict = redis_evictor(
        client,
        lambda table, key: f"{table.partition('.')[2]}:{key['id']}",
        lambda table: f"{table.partition('.')[2]}:*",
    )
    evict("public.orders", {"id": 2})
    assert client.names == {"orders:1", "customers:1"}
    evict("public.orders", None)
    assert client.names == {"customers:1"}
