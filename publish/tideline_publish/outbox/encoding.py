"""The outbox of a publisher, by its settings."""

from __future__ import annotations

import pyarrow as pa

from tideline.contract.manifest import Part
from tideline.contract.patterns import matches
from tideline.contract.schema import TableSchema, parse_table
from tideline.settings import PublishSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.outbox.event import EventMaker, PutAside
from tideline_publish.outbox.messages import OutboxMessages
from tideline_publish.outbox.rows import OutboxRows
from tideline_publish.selection import Selection


class Outbox:
    """Encodes the tables and messages that are an outbox."""

    def __init__(
        self, pipeline: str, publisher: PublishSettings, put_aside: PutAside | None = None
    ) -> None:
        settings = publisher.outbox
        maker = EventMaker(settings, pipeline, put_aside)
        self._settings = settings
        self._selection = Selection(publisher)
        self._tables: dict[str, bool] = {}
        self._rows = OutboxRows(settings, maker)
        self._messages = OutboxMessages(settings, maker)

    def has(self, table: str) -> bool:
        """Return whether ``table`` is an outbox."""
        if self._settings.table is None:
            return False
        if table not in self._tables:
            self._tables[table] = matches(parse_table(table), (self._settings.table,))
        return self._tables[table]

    def has_messages(self, part: Part) -> bool:
        """Return whether the messages in ``part`` are events."""
        return bool(self._settings.messages) and (
            parse_table(part.table).name in self._settings.messages
        )

    def rows(self, schema: TableSchema, part: Part, rows: pa.RecordBatch) -> list[ChangeEvent]:
        """Return the events of the rows of a table. Raises Misconfigured."""
        return self._rows.events(schema, self._selection.columns(schema), rows, part.key)

    def messages(self, part: Part, rows: pa.RecordBatch) -> list[ChangeEvent]:
        """Return the events of messages. Raises Misconfigured."""
        return self._messages.events(part.table, rows, part.key)

    def truncated(self, table: str, seq: int) -> None:
        """Judge a truncate of an outbox; raises Misconfigured."""
        self._rows.truncated(table, seq)
