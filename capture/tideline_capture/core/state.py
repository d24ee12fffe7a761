"""State that the core's deciders share; they change it by its verbs alone.

Its requests and its open segment are for all to read; what changes them is called here.

Changes since the last segment are never noted by hand: what a manifest would hold now is compared
with what the last one was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from tideline.contract.description import Description
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import (
    RECENT_ANSWERS_MAX,
    DeleteBefore,
    Manifest,
    SchemaEvent,
    Truncate,
)
from tideline.contract.open_state import (
    CapturedFrom,
    OpenRequest,
    OpenState,
    TableDump,
    TableState,
)
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.contract.request import Answer, DumpRequest
from tideline.contract.schema import TableSchema
from tideline.contract.sequence import SEQUENCE_MAX
from tideline_capture.core.answers import RecentAnswers
from tideline_capture.core.events import Rows
from tideline_capture.core.limits import CoreLimits, DumpPolicy
from tideline_capture.core.open_requests import OpenRequests, Tuning
from tideline_capture.core.segment import OpenSegment, PartialFlush, Segment, VerificationRows
from tideline_capture.core.source_clock import SourceClock

CATALOG = "catalog"
VALUE = "value"
"""The cause of a table that is quarantined until one of its values changes (`TableState.cause`)."""


class CoreState:
    """The open state, the open segment, and the position in the log.

    ``schemas`` are those that the open state names, by fingerprint.
    """

    def __init__(
        self,
        tail: Manifest,
        state: OpenState,
        schemas: Mapping[str, TableSchema],
        limits: CoreLimits,
        policy: DumpPolicy,
    ) -> None:
        self.limits = limits
        self.policy = policy
        self.position = tail.position
        self.identity = tail.identity
        self.clock = SourceClock(tail.through_us)
        self.durable_number = tail.manifest_number
        """The number of the newest durable manifest."""
        self.last_seq = tail.last_seq
        """The newest sequence that was minted."""
        self.requests = OpenRequests(state)
        self.recent = RecentAnswers(state.recent, RECENT_ANSWERS_MAX)
        self.segment = OpenSegment(self.next_seq)
        self._tables = dict(state.tables)
        self._schemas = dict(schemas)
        self._begun = dict(state.begun)
        self._prepared = dict(state.prepared)
        self._touched: set[str] = set()
        self._resumed_at = tail.position
        self._closed = self.open_state()
        self._closed_from = self._resumed_at

    # -- the place in the log ------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        return self.last_seq + 1

    def mint(self, count: int = 1) -> int:
        """Return the first of ``count`` new sequences; the only place that makes any."""
        if count < 0 or self.last_seq + count > SEQUENCE_MAX:
            raise InvariantBroken(f"cannot mint {count} sequences after {self.last_seq}")
        first = self.next_seq
        self.last_seq += count
        return first

    def move(self, position: SourcePosition) -> None:
        """Note that the log was read up to ``position``."""
        self.position = position

    def identify(self, identity: SourceIdentity) -> None:
        """Note the identity of the source whose log is read."""
        self.identity = identity

    def resume(self, position: SourcePosition) -> None:
        """Read the log from ``position`` on, which its source chose."""
        self.position = self._resumed_at = position

    # -- tables --------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, TableState]:
        return MappingProxyType(self._tables)

    @property
    def schemas(self) -> Mapping[str, TableSchema]:
        """The schemas by fingerprint."""
        return MappingProxyType(self._schemas)

    def set_table(self, table: str, state: TableState) -> None:
        if self._tables.get(table) != state:
            self._tables[table] = state
            self._touched.add(table)

    def change_table(self, table: str, **changes: Any) -> None:
        """Change these fields of the state of ``table``."""
        self.set_table(table, replace(self._tables.get(table, TableState()), **changes))

    def learn(self, schema: TableSchema) -> None:
        """Note that ``schema`` is in force: it is written before the segment."""
        self._schemas[schema.fingerprint] = schema
        self.segment.schemas.append(schema)

    def captures(self, table: str) -> bool:
        """Return whether rows of ``table`` go into segments."""
        return table in self._tables and self.quarantined(table) is None

    def cased(self, table: str) -> str:
        """Return the name of a table in the source's letter case: a statement may use another.

        Returns ``table`` itself where that is one, or several would do.
        """
        if table in self._tables:
            return table
        alike = [name for name in self._tables if name.lower() == table.lower()]
        return alike[0] if len(alike) == 1 else table

    def quarantined(self, table: str) -> str | None:
        """Return the cause for which ``table`` is quarantined, None when it is not.

        A blocked table that is quarantined stays blocked: its target must not pass the schema
        event.
        """
        state = self._tables.get(table)
        return None if state is None else state.cause

    def keyless(self, table: str) -> bool:
        """Return whether ``table`` has no key, so that only the whole row identifies a row."""
        schema = self.schema(table)
        return schema is not None and not schema.key

    def schema(self, table: str) -> TableSchema | None:
        """Return the schema in force for ``table``."""
        state = self._tables.get(table)
        return self._schemas.get(state.schema) if state and state.schema else None

    @property
    def begun(self) -> Mapping[str, CapturedFrom]:
        """The tables that a statement gave their name and whose columns are not known yet."""
        return MappingProxyType(self._begun)

    def begin(self, table: str, begun: CapturedFrom) -> None:
        self._begun[table] = begun

    def forget_begun(self, table: str) -> None:
        """Forget that ``table`` has begun, if it has.

        The name is another table's now, or rows of it were not taken: later ones are not all of
        them.
        """
        self._begun.pop(table, None)

    @property
    def prepared(self) -> Mapping[str, SourcePosition]:
        """The prepared XA transactions that have not ended, and where the log has their rows."""
        return MappingProxyType(self._prepared)

    def hold(self, xid: str, position: SourcePosition | None) -> None:
        """Note that an XA transaction was prepared, with its rows at ``position``; None: it
        ended."""
        if position is None:
            self._prepared.pop(xid, None)
        else:
            self._prepared[xid] = position

    # -- the segment ---------------------------------------------------------------------------

    def begin_segment(self, at: float) -> None:
        """Note that the open segment has content since ``at`` (monotonic seconds), if it had none.

        Its age counts from there.
        """
        if self.segment.opened_at is None:
            self.segment.opened_at = at

    def flush_partial(self) -> PartialFlush:
        """Hand over the rows of the open segment, whose transaction has not ended."""
        return self.segment.flush_partial()

    def emit(self, rows: Rows) -> None:
        """Add sequenced rows."""
        if rows.schema.fingerprint not in self._schemas:
            raise InvariantBroken(f"rows of {rows.schema.table} came before their schema")
        self.segment.add(rows)

    def emit_messages(self, messages: Rows) -> None:
        """Add sequenced logical messages: rows of no table."""
        self.segment.add(messages)

    def record(self, event: SchemaEvent | Truncate | DeleteBefore) -> None:
        if isinstance(event, SchemaEvent):
            self.segment.schema_events.append(event)
        elif isinstance(event, Truncate):
            self.segment.truncates.append(event)
        else:
            self.segment.deletes_before.append(event)

    def describe(self, description: Description) -> None:
        self.segment.descriptions.append(description)

    def verify(self, read: VerificationRows) -> None:
        """Add a verification chunk."""
        self.segment.add_verification(read)
        self.segment.schemas.append(read.schema)

    # -- requests ------------------------------------------------------------------------------

    def accept(self, request: DumpRequest, tables: Iterable[str]) -> None:
        self.requests.accept(request, tables, asked_seq=self.last_seq)
        self.segment.accepted.append(request.request_id)

    def reread(self, table: str, keys: tuple[tuple[str, ...], ...], new_id: str) -> None:
        """Put ``keys`` on the table's re-read list; ``new_id`` is its request's if it is new."""
        accepted = self.requests.reread(table, keys, new_id)
        if accepted is not None:
            self.segment.accepted.append(accepted)

    def acknowledge(self, message_id: str, *, urgent: bool = False) -> None:
        """Acknowledge an entry of the queue once the segment is durable."""
        self.segment.messages.append(message_id)
        self.segment.urgent |= urgent

    def refuse(self, answer: Answer, message_id: str) -> None:
        self.segment.refused.append(answer)
        self.acknowledge(message_id, urgent=True)

    def finish(self, answer: Answer) -> None:
        """Note that a command was carried out."""
        self.recent.remember(answer)
        self.segment.finished.append(answer)
        self.segment.urgent = True

    def take_turn(self, item: OpenRequest) -> None:
        """Note that a chunk of ``item`` is being read."""
        self.requests.took(item)

    def pause(self, chosen: Iterable[str] | None, *, paused: bool) -> None:
        """Pause these requests (None: all), or resume them."""
        self.requests.pause(chosen, paused=paused)

    def tune(self, chosen: Iterable[str] | None, chunk_rows: Tuning, delay_ms: Tuning) -> None:
        """Change the throttle of these requests (None: of all, but those with their own)."""
        self.requests.tune(chosen, chunk_rows, delay_ms)

    def fail_request(self, request_id: str, error: str) -> list[str]:
        """End the open dumps of a request with ``error``; return their tables."""
        return self.requests.fail(request_id, error)

    def update_dump(self, request_id: str, dump: TableDump) -> None:
        self.requests.update(request_id, dump)

    def restart_dumps(self, table: str) -> bool:
        """Restart every open whole-table dump of ``table``; return whether there was one."""
        return self.requests.restart(table)

    def fail_table(self, table: str, error: str) -> None:
        """End every open dump of ``table`` with ``error``."""
        if self.requests.fail_table(table, error):
            self.end()

    def end(self) -> None:
        """Hand requests whose dumps all ended to the segment."""
        for answer in self.requests.take_ended():
            self.recent.remember(answer)
            self.segment.finished.append(answer)
            self.segment.urgent = True

    # -- what is written -----------------------------------------------------------------------

    def open_state(self) -> OpenState:
        live = self._live(self._tables)
        values = {name: getattr(live, name) for name in OpenState.__struct_fields__}
        copies = {name: dict(one) for name, one in values.items() if isinstance(one, Mapping)}
        return replace(live, **copies)

    def _live(self, tables: Mapping[str, TableState]) -> OpenState:
        """Return the open state as it is now, with ``tables``; what is in it may still change."""
        requests = self.requests
        return OpenState(
            requests=requests.open,
            tables=tables,
            recent=self.recent.all,
            prepared=self._prepared,
            paused=requests.paused,
            chunk_rows=requests.chunk_rows,
            delay_ms=requests.delay_ms,
            begun=self._begun,
        )

    @property
    def changed(self) -> bool:
        """Say whether the open state or the log's start position differs from the last
        segment's.

        Called several times per turn, so that of many tables only the touched ones are compared.
        """
        before, touched = self._closed, self._touched
        if touched and any(self._tables[one] != before.tables.get(one) for one in touched):
            return True
        return self._live(before.tables) != before or self._resumed_at != self._closed_from

    def has_content(self) -> bool:
        """Say whether a reader of the chain would miss something without the open segment."""
        return self.segment.has_content() or self.changed

    def close_segment(self) -> Segment:
        """Close the segment, and open the next one."""
        state, changed = self.open_state(), self.changed
        segment = self.segment.close(
            last_seq=self.last_seq,
            position=self.position,
            identity=self.identity,
            source_time_us=self.clock.time_us,
            state=state,
            state_changed=changed,
        )
        self.segment = OpenSegment(self.next_seq)
        self._closed, self._closed_from = state, self._resumed_at
        self._touched.clear()
        return segment

    def durable(self, manifest: Manifest) -> None:
        """Note that ``manifest``, and with it all that was closed before it, is durable."""
        self.durable_number = manifest.manifest_number
        self.recent.durable(manifest.finished)
        # The manifest's maker has numbered the answers in what was written, too.
        numbered = {answer.request_id: answer for answer in manifest.finished}
        recent = tuple(numbered.get(one.request_id, one) for one in self._closed.recent)
        self._closed = replace(self._closed, recent=recent)
