"""Sends requests into the queue, reads answers and workers' statuses out of it."""

from __future__ import annotations

import time
from typing import Literal, NamedTuple, cast

import msgspec
import redis

from tideline.contract.document import DocumentReader, written_version
from tideline.contract.errors import Misconfigured
from tideline.contract.request import (
    Answer,
    Command,
    DumpRequest,
    check_command,
    check_request,
    encode_command,
    encode_request,
    parse_answer,
)
from tideline.redis_client import connect, redis_errors
from tideline.settings import Control

GROUP = "worker"
REQUEST_FIELD = "request"
COMMAND_FIELD = "command"
WORKER_STATUS_VERSION = 1
STREAM_ENTRIES_MAX = 10_000
"""Maximum entries of the stream; the oldest are removed, read or not: their clients repeat them."""
WORKER_TTL_S = 30.0
"""The time after which a worker without a new status is no longer shown as running."""
WORDS_S = 2.0
"""The interval within which a healthy worker publishes a status."""
CLIENT_TIMEOUT_S = 5.0


class WorkerStatus(msgspec.Struct, frozen=True):
    """The latest status of a worker.

    ``live`` reads the log, ``passive`` waits to take over; the reader of the status finds that a
    worker is ``silent`` since ``silent_since_us`` (the worker's clock), or ``fenced``. ``position``
    is the source position up to which all is durable, as the source prints it; ``source_time_us``
    and ``updated_at_us`` are µs since 1970 (the source's clock, the worker's clock). ``note``
    describes what delays it. ``dumps`` are the answers to requests that have not ended.
    ``restart_for`` names the keys of its settings file that have changed and count for it only once
    it is restarted.
    """

    writer: str
    pipeline: str
    state: Literal["live", "passive", "silent", "fenced"]
    host: str
    pid: int
    term: int
    manifest_number: int
    last_seq: int
    updated_at_us: int
    position: str | None = None
    source_time_us: int | None = None
    note: str | None = None
    dumps: tuple[Answer, ...] = ()
    restart_for: tuple[str, ...] = ()
    silent_since_us: int | None = None
    version: int = written_version(WORKER_STATUS_VERSION)
    requires: tuple[str, ...] = ()


class Heard(NamedTuple):
    """A worker's latest status, and the seconds since then."""

    status: WorkerStatus
    silent_s: float


def stream_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:requests"


def answer_key(pipeline: str, request_id: str) -> str:
    return f"tideline:{pipeline}:answer:{request_id}"


def workers_key(pipeline: str) -> str:
    return f"tideline:{pipeline}:workers"


def worker_key(pipeline: str, writer: str) -> str:
    return f"tideline:{pipeline}:worker:{writer}"


class ControlClient:
    """Sends requests to a pipeline's worker and reads the answers; thread-safe.

    Every method raises Unavailable when Redis does not answer within ``timeout_s``, Misconfigured
    when it refuses our login, and CorruptData for a value that we cannot have written. ``client``
    is used in the place of one that is made here.
    """

    def __init__(
        self,
        control: Control,
        pipeline: str,
        *,
        timeout_s: float = CLIENT_TIMEOUT_S,
        client: redis.Redis | None = None,
    ) -> None:
        self._control = control
        self._pipeline = pipeline
        self._redis = client or connect(control, timeout_s=timeout_s)

    def ping(self) -> None:
        """Return when Redis answers and accepts our login."""
        with redis_errors():
            self._redis.ping()

    def ask(self, request: DumpRequest) -> None:
        """Send ``request``; sending it again under the same id joins the one that exists.

        Raises Misconfigured for a request that the worker would refuse unread.
        """
        check_request(request)
        self._send(REQUEST_FIELD, encode_request(request))

    def command(self, command: Command) -> None:
        """Send ``command``, which is answered under its id; the same one again changes nothing.

        Raises Misconfigured for one that the worker would refuse unread.
        """
        check_command(command)
        self._send(COMMAND_FIELD, encode_command(command))

    def _send(self, field: str, raw: bytes) -> None:
        if len(raw) > self._control.message_bytes_max:
            raise Misconfigured(
                f"the {field} has {len(raw)} bytes, above control.message_bytes_max,"
                f" {self._control.message_bytes_max}",
                hint="ask for fewer keys at once, or raise the setting on both sides",
            )
        with redis_errors():
            self._redis.xadd(
                stream_key(self._pipeline),
                {field: raw},
                maxlen=STREAM_ENTRIES_MAX,
                approximate=True,
            )

    def answer(self, request_id: str) -> Answer | None:
        """Return the newest answer to the request, None when there is none (yet, or no longer)."""
        with redis_errors():
            raw = self._redis.get(answer_key(self._pipeline, request_id))
        return None if raw is None else parse_answer(cast(bytes, raw))

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that were heard of within `WORKER_TTL_S`, in the order of their
        names."""
        return list(self._statuses().values())

    def heard(self) -> list[Heard]:
        """Return the same, each with its age by Redis's clock; by the worker's and ours where the
        login may not ask for that, because it was made for fewer than `COMMANDS`."""
        statuses = self._statuses()
        if not statuses:
            return []
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for key in statuses:
                pipe.pttl(key)
            left = pipe.execute(raise_on_error=False)
        now_us = time.time_ns() // 1000
        return [
            Heard(
                status,
                max(0.0, (now_us - status.updated_at_us) / 1_000_000)
                if isinstance(left_ms, redis.RedisError)
                else WORKER_TTL_S - max(0, cast(int, left_ms)) / 1_000,
            )
            for status, left_ms in zip(statuses.values(), left, strict=True)
        ]

    def _statuses(self) -> dict[str, WorkerStatus]:
        """Return the statuses by key, in the order of the workers' names."""
        with redis_errors():
            members = cast("list[bytes]", self._redis.zrange(workers_key(self._pipeline), 0, -1))
            names = sorted(member.decode(errors="replace") for member in members)
            keys = [worker_key(self._pipeline, name) for name in names]
            values = cast("list[bytes | None]", self._redis.mget(keys)) if keys else []
        found = zip(keys, values, strict=True)
        return {key: _parse_status(raw) for key, raw in found if raw is not None}

    def close(self) -> None:
        self._redis.close()


def _parse_status(raw: bytes) -> WorkerStatus:
    return _STATUSES.read(raw)


_STATUSES = DocumentReader(
    WorkerStatus, version=WORKER_STATUS_VERSION, features=frozenset(), name="worker's status"
)
