"""Refuses a store on which two workers could both believe that they own the chain.

Some S3 look-alikes ignore ``If-None-Match`` or check it without holding a lock. Before a worker
trusts a store, two clients race a create-only PUT there, and a third one must lose.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Barrier, Thread
from typing import TypeVar

from tideline.contract import layout
from tideline.contract.errors import Misconfigured
from tideline.settings import Store
from tideline.store.objects import ObjectStore, open_store

T = TypeVar("T")


def probe_store(settings: Store, pipeline: str) -> None:
    """Race two independent clients for one key and read it back.

    Raises Misconfigured when not exactly one wins, when the store cannot be written, or when it
    does not return what was written; Unavailable when it does not answer.
    """
    probe_clients(open_store(settings), open_store(settings), pipeline)


def probe_clients(first: ObjectStore, second: ObjectStore, pipeline: str) -> None:
    """Run the probe with two clients that share no connection."""
    key = layout.probe_key(pipeline, secrets.token_hex(8))
    offers = [b"first " + key.encode(), b"second " + key.encode()]
    barrier = Barrier(2)

    def create(store: ObjectStore, data: bytes) -> bool:
        barrier.wait()
        return store.create(key, data)

    won = at_once([partial(create, first, offers[0]), partial(create, second, offers[1])])
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


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run each of ``calls`` in its own thread and return their results; raises what the first of
    them raised. Unlike a pool's, the threads do not keep an ending process alive."""
    futures: list[Future[T]] = [Future() for _ in calls]

    def run(call: Callable[[], T], future: Future[T]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            future.set_exception(error)

    for call, future in zip(calls, futures, strict=True):
        Thread(target=run, args=(call, future), name="probe", daemon=True).start()
    return [future.result() for future in futures]
