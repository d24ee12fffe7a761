"""The worker's side of the control queue: claim requests, acknowledge them, answer.

Only the worker that extends the chain claims. An entry stays pending until it is acknowledged,
which the worker does after the manifest that names the request is durable. So a killed worker's
entries are claimed again by its successor, and a request is never lost between Redis and chain. It
may be claimed twice: requests are idempotent by id.

Redis is not trusted. Entries are measured inside Redis, and one that is too big never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from redis import Redis, RedisError

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import (
    Answer,
    encode_answer,
    is_id,
    parse_command,
    parse_request,
)
from tideline.control import (
    COMMAND_FIELD,
    GROUP,
    REQUEST_FIELD,
    WORKER_TTL_S,
    WorkerStatus,
    answer_key,
    stream_key,
    worker_key,
    workers_key,
)
from tideline.redis_client import translate
from tideline.settings import Control
from tideline_capture.core.events import Arrival, CommandArrived, RequestArrived, RequestRefused

MESSAGES_MAX = 64
"""Entries per claim and kind; with ``control.message_bytes_max`` this bounds the memory."""
TIMEOUT_S = 1.0
RETRY_AFTER_S = 2.0
"""The time that Redis is left alone after a failure, so that a hung one costs the worker little."""
CLAIM_IDLE_S = 30.0

_CLAIM = """
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local count, idle_ms, cursor = ARGV[3], ARGV[4], ARGV[5]
local bytes_max = tonumber(ARGV[6])
local fields = {[ARGV[7]] = true, [ARGV[8]] = true}
local entries = {}
local function take(found)
  for _, entry in ipairs(found or {}) do
    local size, value, field = -1, '', ''
    local pairs_of = entry and entry[2] or {}
    for at = 1, #pairs_of, 2 do
      if fields[pairs_of[at]] then
        field = pairs_of[at]
        size = string.len(pairs_of[at + 1])
        if size <= bytes_max then value = pairs_of[at + 1] end
      end
    end
    if entry then entries[#entries + 1] = {entry[1], size, value, field} end
  end
end
local function reclaim()
  return redis.pcall('XAUTOCLAIM', stream, group, consumer, idle_ms, cursor, 'COUNT', count)
end
local old = reclaim()
if old.err and string.find(old.err, 'NOGROUP') then
  redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  old = reclaim()
end
if old.err then return old end
take(old[2])
if old[1] == '0-0' then
  local new = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count,
    'STREAMS', stream, '>')
  if new then take(new[1][2]) end
end
return {old[1], entries}
"""
"""Claims idle entries and, when none of these are left, new ones. Creates the group where it is
missing (after a FLUSHALL too). Measures: ``{cursor, {{id, bytes or -1, value or '', field}, …}}``.
One round trip that never waits."""


class RequestQueue:
    """The queue of one pipeline, for the worker named ``consumer``; used by one thread.

    No method waits for messages. When Redis is away they raise Unavailable, after the time-out of
    ``redis`` at most, and for `RETRY_AFTER_S` from then on at once. `close` closes ``redis``.
    """

    def __init__(
        self,
        redis: Redis,
        control: Control,
        pipeline: str,
        consumer: str,
        *,
        clock: Callable[[], float],
        claim_idle_s: float = CLAIM_IDLE_S,
    ) -> None:
        self._control = control
        self._pipeline = pipeline
        self._consumer = consumer
        self._claim_idle_s = claim_idle_s
        self._clock = clock
        self._redis = redis
        self._cursor = "0-0"
        self._inheriting = True
        self._retry_at = float("-inf")

    def claim(self) -> list[Arrival]:
        """Claim new entries, and pending ones idle for ``claim_idle_s``; [] when there are none.

        The first claims take over everything that is pending, however fresh: the worker that
        claimed it wrote the chain before us, and is gone or about to be fenced.
        """
        idle_ms = 0 if self._inheriting else int(self._claim_idle_s * 1000)
        bytes_max = self._control.message_bytes_max
        with self._errors():
            reply: list[Any] = self._redis.eval(
                _CLAIM,
                1,
                stream_key(self._pipeline),
                GROUP,
                self._consumer,
                MESSAGES_MAX,
                idle_ms,
                self._cursor,
                bytes_max,
                REQUEST_FIELD,
                COMMAND_FIELD,
            )
        self._cursor = reply[0].decode()
        if self._cursor == "0-0":
            self._inheriting = False
        return [
            _arrival(entry.decode(), size, raw, field=field.decode(), bytes_max=bytes_max)
            for entry, size, raw, field in reply[1]
        ]

    def acknowledge(self, ids: Sequence[str]) -> None:
        """Remove these entries for good; call it after their effects are durable."""
        if not ids:
            return
        with self._errors():
            stream = stream_key(self._pipeline)
            pipe = self._redis.pipeline(transaction=True)
            pipe.xack(stream, GROUP, *ids)
            pipe.xdel(stream, *ids)
            pipe.execute()

    def answer(self, answer: Answer) -> None:
        """Replace the newest answer to its request; it expires after ``control.answer_ttl_s``."""
        ttl_ms = int(self._control.answer_ttl_s * 1000)
        with self._errors():
            key = answer_key(self._pipeline, answer.request_id)
            self._redis.set(key, encode_answer(answer), px=ttl_ms)

    def publish(self, status: WorkerStatus) -> None:
        """Publish this worker's status; to be repeated well within `WORKER_TTL_S`."""
        oldest_us = status.updated_at_us - int(self._control.answer_ttl_s * 1_000_000)
        with self._errors():
            index = workers_key(self._pipeline)
            pipe = self._redis.pipeline(transaction=True)
            key = worker_key(self._pipeline, status.writer)
            pipe.set(key, msgspec.json.encode(status), px=int(WORKER_TTL_S * 1000))
            pipe.zadd(index, {status.writer: status.updated_at_us})
            pipe.zremrangebyscore(index, "-inf", oldest_us)
            pipe.execute()

    def withdraw(self, writer: str) -> None:
        """Remove the worker's status: it stops cleanly."""
        with self._errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.delete(worker_key(self._pipeline, writer))
            pipe.zrem(workers_key(self._pipeline), writer)
            pipe.execute()

    def close(self) -> None:
        self._redis.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise Unavailable for any error of Redis: the worker continues without it, and retries
        later."""
        if self._clock() < self._retry_at:
            raise Unavailable("redis did not answer a moment ago", hint="see control.url")
        try:
            yield
        except (RedisError, OSError) as error:
            self._retry_at = self._clock() + RETRY_AFTER_S
            cause = translate(error)
            raise Unavailable(cause.message, cause.hint) from None


def _arrival(entry_id: str, size: int, raw: bytes, *, field: str, bytes_max: int) -> Arrival:
    if size < 0:
        text = f"the message has no field {REQUEST_FIELD!r} or {COMMAND_FIELD!r}"
        return _refused(entry_id, raw, text)
    if size > bytes_max:
        text = f"the message has {size} bytes, above control.message_bytes_max, {bytes_max}"
        return _refused(entry_id, raw, text)
    try:
        if field == COMMAND_FIELD:
            return CommandArrived(entry_id, parse_command(raw))
        return RequestArrived(entry_id, parse_request(raw))
    except Misconfigured as error:
        return _refused(entry_id, raw, error.message)


def _refused(entry_id: str, raw: bytes, text: str) -> RequestRefused:
    """Build the refusal, under the client's id where it can be read, else one made of the
    entry's."""
    return RequestRefused(entry_id, _request_id(raw) or f"entry-{entry_id}", text)


def _request_id(raw: bytes) -> str | None:
    """Return the id of a request that is otherwise wrong, so that its client learns of it."""
    try:
        found = _IDENTIFIED.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    named = found.request_id or found.command_id
    return named if is_id(named) else None


class _Identified(msgspec.Struct):
    request_id: str = ""
    command_id: str = ""


_IDENTIFIED = msgspec.json.Decoder(_Identified)
