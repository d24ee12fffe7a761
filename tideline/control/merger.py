"""The merger and its clients in Redis: who merges, that it is alive, and what it is asked to run.

::

    tideline:{pipeline}:merger:lease     the token of the merger that merges, expires
    tideline:{pipeline}:merger           its status, JSON, expires
    tideline:{pipeline}:merges           sorted set: ids of plans that it is asked to run or runs →
                                         when they came, µs
    tideline:{pipeline}:merger:reserved  sorted set: tables that a rebuild is about to swap → when
                                         it last said so, µs

None of it decides what a table holds: plans and receipts are in the store, and a table's own log
refuses what was applied. With all of it lost, two may merge for a moment (one of them in vain), a
client waits in vain for a moment, and then merges itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Literal, cast

import msgspec
import redis

from tideline.contract.document import DocumentReader, written_version
from tideline.contract.request import is_id
from tideline.control.queue import CLIENT_TIMEOUT_S
from tideline.redis_client import connect, redis_errors
from tideline.settings import Control

MERGER_STATUS_VERSION = 1
LEASE_S = 12.0
"""The time after which a merger that does not renew its lease is taken for gone. A status lives as
long."""
PLANS_MAX = 1_000
"""Maximum plans that wait; the newest are refused, and their clients merge themselves."""

_RENEW = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
"""


class MergerStatus(msgspec.Struct, frozen=True):
    """The latest status of the merger.

    ``starting``: it has no Spark session yet, or replaces a sick one (``replaced`` so often, lastly
    because of ``reason``). ``plans`` are those that it runs, ``waiting`` the number of tables with
    changes to merge, ``failing`` those whose merges fail, with the reason, ``reserved`` those that
    it leaves to a rebuild, and does not merge any more. Times are µs since 1970
    by its clock; ``merged_at_us`` is when a table last was merged.
    """

    merger: str
    pipeline: str
    state: Literal["merging", "starting"]
    host: str
    pid: int
    started_at_us: int
    updated_at_us: int
    manifest_number: int = 0
    tables_merged: int = 0
    merged_at_us: int | None = None
    waiting: int = 0
    plans: tuple[str, ...] = ()
    failing: dict[str, str] = msgspec.field(default_factory=dict)
    memory_bytes: int = 0
    replaced: int = 0
    reason: str | None = None
    reserved: tuple[str, ...] = ()
    version: int = written_version(MERGER_STATUS_VERSION)
    requires: tuple[str, ...] = ()


class Lease(Enum):
    """The state of a lease, to the merger that renews it."""

    HELD = auto()
    TAKEN = auto()
    """Another merger has it."""


def lease_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:merger:lease"


def merger_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:merger"


def merges_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:merges"


def reserved_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:merger:reserved"


class MergerClient:
    """Asks the merger to run plans. Raises as `ControlClient` does."""

    def __init__(
        self, control: Control, pipeline: str, *, timeout_s: float = CLIENT_TIMEOUT_S
    ) -> None:
        self._pipeline = pipeline
        self._redis = connect(control, timeout_s=timeout_s)

    def status(self) -> MergerStatus | None:
        """Return the status of the merger; None where there is none."""
        with redis_errors():
            raw = self._redis.get(merger_key(self._pipeline))
        return None if raw is None else _STATUSES.read(cast(bytes, raw))

    def ask(self, plan_id: str) -> None:
        """Ask for the stored plan of that id to be run; asked again, it joins the first."""
        with redis_errors():
            self._redis.zadd(
                merges_key(self._pipeline), {plan_id: time.time_ns() // 1_000}, nx=True
            )

    def withdraw(self, plan_id: str) -> None:
        """Take back what was asked; one that is being run goes on."""
        with redis_errors():
            self._redis.zrem(merges_key(self._pipeline), plan_id)

    def reserve(self, table: str) -> None:
        """Ask the merger to leave a table alone; to be repeated, see `reservation.RESERVED_S`."""
        with redis_errors():
            self._redis.zadd(reserved_key(self._pipeline), {table: time.time_ns() // 1_000})

    def give_back(self, table: str) -> None:
        """Take that back."""
        with redis_errors():
            self._redis.zrem(reserved_key(self._pipeline), table)

    def close(self) -> None:
        self._redis.close()


class MergerQueue:
    """The merger's side, under the lease's ``token``. Raises Unavailable, and Misconfigured for a
    login that is refused; used by one thread."""

    def __init__(
        self,
        control: Control,
        pipeline: str,
        token: str,
        *,
        timeout_s: float = CLIENT_TIMEOUT_S,
        lease_s: float | None = None,
        client: redis.Redis | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._token = token
        self._lease_ms = int((lease_s or LEASE_S) * 1000)
        self._redis = client or connect(control, timeout_s=timeout_s)

    def renew(self) -> Lease:
        """Take the lease, or keep it; one that Redis has lost is taken again."""
        with redis_errors():
            held = self._redis.eval(
                _RENEW, 1, lease_key(self._pipeline), self._token, str(self._lease_ms)
            )
        return Lease.HELD if held == 1 else Lease.TAKEN

    def release(self) -> None:
        """Give up the lease, and the status, at once: another merger takes over."""
        with redis_errors():
            self._redis.eval(
                _RELEASE, 2, lease_key(self._pipeline), merger_key(self._pipeline), self._token
            )

    def publish(self, status: MergerStatus) -> None:
        """Publish the status; only the holder of the lease does."""
        with redis_errors():
            self._redis.set(
                merger_key(self._pipeline), msgspec.json.encode(status), px=self._lease_ms
            )

    def asked(self) -> list[str]:
        """Return the plans that are to be run, those that came first before others."""
        with redis_errors():
            found = cast(
                "list[bytes]", self._redis.zrange(merges_key(self._pipeline), 0, PLANS_MAX - 1)
            )
        names = [(raw, raw.decode(errors="replace")) for raw in found]
        self._remove([raw for raw, name in names if not is_id(name)])
        return [name for _, name in names if is_id(name)]

    def reserved(self) -> dict[str, float]:
        """Return the tables that are to be left alone, and when each reservation was renewed, by
        the clock of who did."""
        with redis_errors():
            found = cast(
                "list[tuple[bytes, float]]",
                self._redis.zrange(reserved_key(self._pipeline), 0, PLANS_MAX - 1, withscores=True),
            )
        return {raw.decode(errors="replace"): renewed for raw, renewed in found}

    def lapsed(self, tables: Iterable[str]) -> None:
        """Remove reservations that no one repeats."""
        if names := list(tables):
            with redis_errors():
                self._redis.zrem(reserved_key(self._pipeline), *names)

    def began(self, plans: Iterable[str]) -> None:
        """Record that these plans are run: the next merger runs them again if this one dies."""
        if listed := {plan: time.time_ns() // 1_000 for plan in plans}:
            with redis_errors():
                self._redis.zadd(merges_key(self._pipeline), listed, nx=True)

    def ended(self, plans: Iterable[str]) -> None:
        """Remove plans that have their receipts, or cannot be run."""
        self._remove(list(plans))

    def _remove(self, members: Sequence[str | bytes]) -> None:
        if members:
            with redis_errors():
                self._redis.zrem(merges_key(self._pipeline), *members)

    def close(self) -> None:
        self._redis.close()


_STATUSES = DocumentReader(
    MergerStatus, version=MERGER_STATUS_VERSION, features=frozenset(), name="merger's status"
)
