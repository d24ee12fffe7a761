"""Evicts from a cache what others have changed in the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tideline.consumer.own_transactions import OwnTransactions
from tideline.contract.part import DUMPED

Evict = Callable[[str, Mapping[str, Any] | None], object]
"""A function of a table's name and a row's key; None for the key: all rows of the table."""


class RedisClient(Protocol):
    """The methods of redis-py's client that are used."""

    def delete(self, *names: str) -> Any: ...

    def scan_iter(self, match: str) -> Any: ...


class CacheInvalidator:
    """Evicts the rows of events, in Tideline's own JSON form.

    Changes of the transactions in ``own`` are skipped: who wrote them has the cache right already.
    Events of all tables may come, and several times; what is evicted needlessly is read again.
    """

    def __init__(self, evict: Evict, own: OwnTransactions | None = None) -> None:
        self._evict = evict
        self._own = OwnTransactions() if own is None else own

    def handle(self, event: bytes | str | Mapping[str, Any]) -> bool:
        """Return whether something was evicted for ``event``. Raises what the cache raises, and
        ValueError for what is no such event: acknowledge an event only after this returns."""
        found = event if isinstance(event, Mapping) else json.loads(event)
        try:
            table, op, tx, seq = (found[name] for name in ("table", "op", "tx", "seq"))
        except (KeyError, TypeError):
            raise ValueError("not an event of Tideline's own JSON form") from None
        # A dump's row was not changed, but its cached copy may be older than what was missed.
        if op != DUMPED and self._own.skips(tx, seq):
            return False
        self._evict(table, found.get("key"))
        return True


def redis_evictor(
    client: RedisClient,
    name_of: Callable[[str, Mapping[str, Any]], str],
    pattern_of: Callable[[str], str],
) -> Evict:
    """Return a function that deletes from Redis: the key that ``name_of`` makes of a table and a
    row's key; for a table that was truncated all keys that match ``pattern_of`` of it."""

    def evict(table: str, key: Mapping[str, Any] | None) -> None:
        if key is not None:
            client.delete(name_of(table, key))
            return
        for name in client.scan_iter(match=pattern_of(table)):
            client.delete(name)

    return evict
