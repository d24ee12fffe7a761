"""Events as entries of Redis's streams, by ids that are their sequences.

The server refuses an id that is not above the last one of its stream, so an event is there once,
whoever appends it: also after entries were trimmed. The publisher's position is kept at the same
server, behind what it covers: where a replica that lacks the last writes becomes the primary, they
are written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import msgspec
import redis
import structlog

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import parse_table
from tideline.redis_client import connect, passing_refusal, redis_errors
from tideline.settings.outputs.redis import RedisSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope
from tideline_publish.outputs.names import name_of
from tideline_publish.outputs.redis.script import REMOVED, StreamEntry, append
from tideline_publish.outputs.redis.streams import EventId, claim, removed, wrong_type

ANSWER_S = 10.0
BATCH_EVENTS, BATCH_BYTES = 1_000, 1 << 20
"""A script is ended at these: the server does nothing else while one runs."""
_VALUE_BYTES_MAX = 512_000_000
"""Redis's own limit of a text (``proto-max-bulk-len``) is 512 MiB."""
_NAME_MAX = 1_000
_POSITION = msgspec.json.Decoder(ChainPosition)

log = structlog.get_logger("tideline.publisher")


class RedisOutput:
    """See `Output`."""

    def __init__(
        self,
        pipeline: str,
        publisher: str,
        settings: RedisSettings,
        *,
        has_outbox: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._writer = f"{pipeline}.{publisher}"
        self._position_key = f"tideline:{pipeline}:publisher:{publisher}"
        self._settings = settings
        self._client: redis.Redis | None = None
        self._incarnation = ""
        self._streams: dict[tuple[str, str], str] = {}
        self._last: dict[str, EventId] = {}
        self._batch: list[StreamEntry] = []
        self._batch_bytes = 0
        # Events of an outbox have streams of their own.
        several = has_outbox or "{table}" in settings.stream
        self.order = OrderScope.TABLE if several else OrderScope.ALL
        self.record_bytes_max: int | None = _VALUE_BYTES_MAX
        self.keeps_position = True
        self.whole_only = False
        self.gathers_s = 0.0
        self.dead_letters = 0

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        self._client = connect(self._settings, timeout_s=ANSWER_S)
        self._incarnation = logged.incarnation
        with redis_errors(self._settings.section):
            raw = self._client.get(self._position_key)
        own = None if raw is None else self._decoded(raw)
        if own is None or (own.epoch, own.incarnation) != (logged.epoch, logged.incarnation):
            if logged.seq > 0:
                log.warning("Redis has no position of this publisher: it is new, or lost its data")
            return logged
        if own.seq < logged.seq:
            log.warning(
                "Redis lost writes that it had confirmed; they are written again",
                from_seq=own.seq + 1,
                through_seq=logged.seq,
            )
        return own

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in events:
            stream = self._stream(event)
            if (event.seq, event.part) <= self._last[stream]:
                continue
            if event.size > _VALUE_BYTES_MAX:
                raise _too_large(event)
            self._batch.append(StreamEntry(stream, event))
            self._batch_bytes += event.size
            if len(self._batch) >= BATCH_EVENTS or self._batch_bytes >= BATCH_BYTES:
                self._append(b"")

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        self._append(msgspec.json.encode(position))

    def close(self) -> None:
        """See `Output`."""
        client, self._client = self._client, None
        self._streams, self._last, self._batch, self._batch_bytes = {}, {}, [], 0
        if client is not None:
            with suppress(redis.RedisError, OSError):
                client.close()

    def _append(self, position: bytes) -> None:
        assert self._client is not None
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        with redis_errors(self._settings.section):
            done, reply = append(
                self._client,
                batch,
                writer=f"{self._writer} {self._incarnation}",
                entries_max=self._settings.entries_max,
                position_key=self._position_key,
                position=position,
            )
        if reply:
            raise self._refused(reply, batch[done].stream if done < len(batch) else "")
        for entry in batch:
            self._last[entry.stream] = entry.event.seq, entry.event.part

    def _refused(self, reply: str, stream: str) -> TidelineError:
        word = reply.partition(" ")[0]
        if word == REMOVED:
            return removed(stream)
        if word == "WRONGTYPE":
            return wrong_type(stream)
        if "equal or smaller" in reply:  # The next session finds out whose.
            return Unavailable(f"the stream {stream} has an id that is not below that of an event")
        return passing_refusal(word, self._settings.section) or Unavailable(
            f"redis refuses an event of {stream}: {word}"
        )

    def _stream(self, event: ChangeEvent) -> str:
        """Return the stream of an event, whose last id is known then."""
        place = (event.route, "" if event.route else event.table)
        if place not in self._streams:
            assert self._client is not None
            stream = event.route or self._stream_of_table(event.table)
            if stream not in self._last:
                with redis_errors(self._settings.section):
                    last = claim(self._client, stream, self._writer, self._incarnation)
                self._last[stream] = last
            self._streams[place] = stream
        return self._streams[place]

    def _stream_of_table(self, table: str) -> str:
        return name_of(
            self._settings.stream,
            self._pipeline,
            parse_table(table),
            setting="redis.stream",
            chars_max=_NAME_MAX,
        )

    def _decoded(self, raw: object) -> ChainPosition:
        try:
            return _POSITION.decode(cast("bytes", raw))
        except (msgspec.MsgspecError, TypeError):
            raise Misconfigured(
                f"the key {self._position_key} holds no position of a publisher",
                hint="another program writes to it: remove it",
            ) from None


def _too_large(event: ChangeEvent) -> Misconfigured:
    return Misconfigured(
        f"the event of change {event.seq} of {event.table} has {event.size} bytes, more than"
        f" Redis takes ({_VALUE_BYTES_MAX})",
        hint="leave a column out (publish.….columns)",
    )
