"""Refuses a store on which two workers could both believe that they own the chain.

Some S3 look-alikes ignore ``If-None-Match`` or check it without holding a lock. Before a worker
trusts a store, two clients race a create-only PUT there, and a third one must lose.
"""

from __future__ import annotations

import contextlib
from functools import partial

from tideline.contract import layout
from tideline.contract.errors import Misconfigured
from tideline.contract.target_url import ICEBERG
from tideline.settings import Settings, Store
from tideline.store.objects import ObjectStore, open_store
from tideline.system import RealSystem, System


def probe_store(settings: Store, pipeline: str) -> None:
    """Race two independent clients for one key and read it back.

    Raises Misconfigured when not exactly one wins, when the store cannot be written, or when it
    does not return what was written; Unavailable when it does not answer.
    """
    probe_clients(open_store(settings), open_store(settings), pipeline, RealSystem())


def probe_warehouse(settings: Settings) -> bool:
    """Race two clients as `probe_store` does where tables with a log lie in an object store: that,
    too, rests on create-only PUTs. Of Iceberg tables the catalog takes one commit of two.

    Return whether there was anything to race for. Raises as `probe_store` does.
    """
    if not settings.warehouse.in_object_store or settings.formats == {ICEBERG}:
        return False
    probe_store(settings.warehouse_store(), settings.pipeline)
    return True


def probe_clients(first: ObjectStore, second: ObjectStore, pipeline: str, system: System) -> None:
    """Run the probe with two clients that share no connection."""
    key = layout.probe_key(pipeline, system.new_id())
    offers = [b"first " + key.encode(), b"second " + key.encode()]
    won = system.at_once(
        [partial(first.create, key, offers[0]), partial(second.create, key, offers[1])]
    )
    if all(won) or first.create(key, b"third"):
        raise Misconfigured(
            f"the store {first.url} lets two writers create the same object",
            hint="use a store that honours If-None-Match on PUT; this one cannot fence a worker",
        )
    # With a lost answer a winner may not know that it won: then either offer is right.
    expected = [offer for offer, mine in zip(offers, won, strict=True) if mine] or offers
    if first.get(key) not in expected or second.get(key) not in expected:
        raise Misconfigured(
            f"the store {first.url} does not return what was written to it",
            hint="use a store that is consistent after a write",
        )
    with contextlib.suppress(Misconfigured):
        # A bucket that denies deletion is accepted: it only costs space.
        first.delete(key)
