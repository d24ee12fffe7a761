"""For services that consume a publisher's events: what they need besides Kafka's client.

It needs none of Tideline's servers, settings or extras.
"""

from __future__ import annotations

from tideline.consumer.cache_invalidation import CacheInvalidator, redis_evictor
from tideline.consumer.dedup import forget_seen, make_seen_table, seen
from tideline.consumer.own_transactions import OwnTransactions, note_transactions

__all__ = [
    "CacheInvalidator",
    "OwnTransactions",
    "forget_seen",
    "make_seen_table",
    "note_transactions",
    "redis_evictor",
    "seen",
]
