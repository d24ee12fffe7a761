"""Makes an event of the fields of an outbox: where it goes, its key, headers and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tideline.contract.errors import Misconfigured
from tideline.settings.outbox import OutboxSettings
from tideline_publish.events import ChangeEvent, Headers
from tideline_publish.names import coded

TOPIC_CHARACTERS_MAX = 249
"""Kafka's limit of a topic's name."""
OWN_HEADERS = ("id", "type", "time")
"""The headers of every event, before those of extra columns; outputs add `SEQUENCE_HEADER`."""
SEQUENCE_HEADER = "tl_seq"


class InvalidEvent(Exception):
    """A row or message is no event; the text says why, without any value."""


@dataclass(frozen=True, slots=True)
class OutboxChange:
    """The change that an event is made of; fields as in `ChangeEvent`. ``raw`` is what is put aside
    of one that is invalid: a JSON document."""

    seq: int
    table: str
    op: str
    tx: int
    ts_us: int
    object_key: str
    raw: Callable[[], bytes]


Fields = Mapping[str, bytes | None]
"""The values of an outbox's columns, or of a message's fields, by name."""
PutAside = Callable[[ChangeEvent, str], None]
"""Takes an event that is invalid, with its document as the value, and the reason."""


class EventMaker:
    """Makes events by the settings. One that is invalid is handed to ``put_aside``; None: it is an
    error."""

    def __init__(
        self, settings: OutboxSettings, pipeline: str, put_aside: PutAside | None = None
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._put_aside = put_aside
        self.required = (
            settings.id, settings.aggregate_type, settings.aggregate_id, settings.type,
        )  # fmt: skip
        self.known = frozenset((*self.required, settings.payload, settings.time or settings.id))

    def event(self, source: OutboxChange, fields: Fields, at: bytes) -> ChangeEvent | None:
        """Return the event of ``fields``; None for one that was put aside. ``at``: the time of one
        that has no own. Raises Misconfigured for an invalid one."""
        try:
            return self._made(source, fields, at)
        except InvalidEvent as error:
            self.refuse(source, str(error))
            return None

    def refuse(self, source: OutboxChange, reason: str) -> None:
        """Put an invalid event aside, or raise Misconfigured."""
        if self._put_aside is None:
            raise Misconfigured(
                f"change {source.seq} of the outbox {source.table} is no event: {reason}",
                hint='correct what writes it; outbox.on_invalid = "dead_letter" with'
                " outbox.dead_letter_folder has the publisher go on behind it",
            )
        event = ChangeEvent(
            source.seq, 0, source.table, source.op, source.tx, source.ts_us, None, source.raw()
        )
        self._put_aside(event, reason)

    def _made(self, source: OutboxChange, fields: Fields, at: bytes) -> ChangeEvent:
        settings = self._settings
        event_id, aggregate_type, aggregate_id, event_type = map(fields.get, self.required)
        # One by one, so that each is known to be there behind this.
        if not event_id or not aggregate_type or not aggregate_id or not event_type:
            missing = [name for name in self.required if not fields.get(name)]
            raise InvalidEvent(f"{' and '.join(missing)} NULL or empty")
        time = (fields.get(settings.time) if settings.time else None) or at
        headers: Headers = (
            ("id", event_id),
            ("type", event_type),
            ("time", time),
            *self._extra(fields),
        )
        return ChangeEvent(
            source.seq,
            0,
            source.table,
            source.op,
            source.tx,
            source.ts_us,
            aggregate_id,
            fields.get(settings.payload),
            source.object_key,
            self._route(aggregate_type),
            headers,
        )

    def _extra(self, fields: Fields) -> Headers:
        extra = [
            (name, value)
            for name, value in fields.items()
            if name not in self.known and value is not None
        ]
        for name, _ in extra:
            check_header(name)
        return tuple(extra)

    def _route(self, aggregate_type: bytes) -> str:
        text = aggregate_type.decode("utf-8", "surrogateescape")
        name = self._settings.topic.format(
            pipeline=self._pipeline, type=coded(text, "A-Za-z0-9._-")
        )
        if len(name) > TOPIC_CHARACTERS_MAX or name in (".", ".."):
            raise InvalidEvent(f"{self._settings.aggregate_type} makes no topic's name")
        return name


def check_header(name: str) -> None:
    """Raise InvalidEvent for an extra column or field whose header would be there twice."""
    if name in (*OWN_HEADERS, SEQUENCE_HEADER):
        raise InvalidEvent(f"{name} would be a second header of that name")
