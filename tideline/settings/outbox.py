"""The outbox of a publisher: a table, or logical messages, whose rows are events already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns
from tideline.settings.base import Effect, Section

ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
MessagePrefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,63}$")]
"""The prefix of logical messages."""
_TOPIC = r"^([A-Za-z0-9._-]|\{pipeline\}|\{type\})+$"


class OutboxSettings(Section):
    """Rows that an application wrote as events, and where they go."""

    effect = Effect.COMMAND

    table: str | None = None
    """The outbox: a table, or a pattern over `schema.table`. Its inserts are events, whatever the
    publisher's `tables` and `operations` say."""
    messages: Annotated[tuple[MessagePrefix, ...], Field(max_length=20)] = ()
    """Prefixes of PostgreSQL's logical messages that are events; those among `source.messages`."""
    topic: Annotated[str, Field(pattern=_TOPIC, max_length=249)] = "outbox.event.{type}"
    """The topic or stream of an event, by its aggregate's type. A character of a type other than
    A-Z, a-z, 0-9, `.`, `_` and `-` is `_x`, its code in hex, and `_`."""
    id: ColumnName = "id"
    """The column with the event's id, unique for ever: consumers know by it what comes again."""
    aggregate_type: ColumnName = "aggregatetype"
    """The column with the type of the aggregate, `{type}` in `topic`."""
    aggregate_id: ColumnName = "aggregateid"
    """The column with the aggregate's id, the event's key: events of one aggregate are in order."""
    type: ColumnName = "type"
    """The column with the event's type."""
    payload: ColumnName = "payload"
    """The column with the event's value: text, JSON or bytes, which are not changed. NULL is a
    tombstone."""
    time: ColumnName | None = None
    """The column with the event's time; None: when its transaction committed."""
    others: Literal["error", "ignore"] = "error"
    """Updates and truncates of the table: the publisher stops, or leaves them out. Deletes are
    always left out."""
    dumped: Literal["error", "ignore", "publish"] = "error"
    """Rows that a dump read: the log may or may not have had their inserts. `error`: the publisher
    stops; `publish`: they are events, some for the second time and behind later ones; `ignore`:
    they are none."""
    on_invalid: Literal["error", "dead_letter"] = "error"
    """A row or message that is no event (no id, no JSON): the publisher stops, or puts it into a
    file of `dead_letter_folder` and goes on."""
    dead_letter_folder: Path | None = None
    """An absolute path; for `on_invalid = "dead_letter"`."""

    @property
    def is_set(self) -> bool:
        """Return whether there is an outbox."""
        return self.table is not None or bool(self.messages)

    @field_validator("table")
    @classmethod
    def _sound_pattern(cls, pattern: str | None) -> str | None:
        try:
            check_patterns(() if pattern is None else (pattern,))
        except Misconfigured as error:
            raise ValueError(error.message) from None
        return pattern

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        names = [self.id, self.aggregate_type, self.aggregate_id, self.type, self.payload]
        names += [] if self.time is None else [self.time]
        if len(set(names)) < len(names):
            raise ValueError("must name another column for each of id, aggregate_type and so on")
        return self

    @model_validator(mode="after")
    def _letters_have_a_place(self) -> Self:
        folder = self.dead_letter_folder
        if self.on_invalid == "dead_letter" and (folder is None or not folder.is_absolute()):
            raise ValueError(
                "has no place for dead letters: set dead_letter_folder to an absolute path"
            )
        return self
