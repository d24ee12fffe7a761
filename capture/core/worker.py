"""The state machine that joins log, windows, dumps, catalog and requests into segments.

One thread drives it. What the log says comes through `on_batch`, what other threads found through
the other ``on_…`` methods; `next_order`, `seal` and `spill` say what to do next. Everything that
must survive is in the segment handed out: a core that is built anew from the chain's tail goes on
from there.
"""

from __future__ import annotations

from collections.abc import Callable

from capture.core.catalog import CatalogWatch
from capture.core.draft import Draft, Sealed, Spill
from capture.core.dumps import Dumps
from capture.core.events import (
    CatalogRound,
    Chunk,
    ChunkFailed,
    ChunkOrder,
    Limits,
    LogBatch,
    Mark,
    MarkKind,
    RequestArrived,
    RequestRefused,
    Rows,
    SchemaSeen,
    Snapshot,
    Truncated,
    Waiting,
)
from capture.core.requests import REREAD, OpenRequests, answer_of
from capture.core.roller import Roll, flush_due, roll
from capture.core.sequencer import Sequencer
from capture.core.tables import CATALOG, VALUE, Adopted, Tables
from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.manifest import (
    RECENT_ANSWERS_MAX,
    Manifest,
    OpenState,
    SchemaEvent,
    TableCondition,
    Truncate,
)
from tideline.contract.patterns import check_patterns, matches
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.contract.schema import TableSchema, Verdict, parse_table

REREAD_KEYS_MAX = 10_000
"""Rows that changed their key during a dump and are read again one by one; above that the whole
table is dumped again."""


class Worker:
    """The core. ``token`` makes a fresh mark token; ``durable_number`` is set by the runtime to the
    number of the newest durable manifest."""

    def __init__(
        self,
        tail: Manifest,
        state: OpenState,
        schemas: dict[str, TableSchema],
        *,
        limits: Limits,
        token: Callable[[], str],
    ) -> None:
        self.limits = limits
        self.position = tail.position
        self.source_time_us = tail.source_time_us
        self.durable_number = tail.manifest_number
        self.in_transaction = False
        self.last_change_at: float | None = None
        self.sequencer = Sequencer(tail.last_seq)
        self.tables = Tables(state.tables, schemas)
        self.requests = OpenRequests(state.requests, state.recent, RECENT_ANSWERS_MAX)
        self.draft = Draft(self.sequencer.next)
        self.dumps = Dumps(self, token)
        self.catalog = CatalogWatch(self)
        self._announced: dict[str, TableSchema] = {}
        self._token = token
        self._moved_at: float | None = None

    # -- what the log says ---------------------------------------------------------------------

    def on_batch(self, batch: LogBatch, *, now: float, since: float | None = None) -> None:
        """Take what was read; its rows were sequenced from `sequencer.next`.

        ``since``: when the oldest of it was received; the segment's age counts from there.
        """
        first = self.sequencer.next
        for table, column in batch.unholdable:
            self._park_value(table, column, first)
        self.sequencer.take(batch.changes)
        for rows in batch.rows:
            self.emit(rows)
        if batch.changes:
            self.last_change_at = now
            if self.draft.opened_at is None:
                self.draft.opened_at = now if since is None else since
        self.dumps.unseen.committed(batch.transactions)
        self.in_transaction = batch.in_transaction
        for control in batch.controls:
            self._on_control(control, now=now)
        if batch.boundary is not None and batch.boundary.position != self.position:
            self.position = batch.boundary.position
            self._moved_at = now if self._moved_at is None else self._moved_at

    def _on_control(self, control: Mark | SchemaSeen | Truncated, *, now: float) -> None:
        if isinstance(control, SchemaSeen):
            self._on_schema(control.schema, control.xid)
        elif isinstance(control, Truncated):
            for table in control.tables:
                if self.tables.captures(table):
                    self.draft.truncates.append(Truncate(self.sequencer.take(1), table))
                    self.dumps.disturb(table, "a truncate")
                    self.catalog.truncated(table, control.xid)
        elif control.kind is MarkKind.LOW:
            self.dumps.on_low(control)
        elif control.kind is MarkKind.HIGH:
            self.dumps.on_high(control, now=now)
        elif control.kind is MarkKind.CATALOG_LOW:
            self.catalog.on_low(control)
        else:
            self.source_time_us = max(control.clock_us, self.source_time_us or 0)
            self.catalog.on_high(control)

    def _on_schema(self, schema: TableSchema, xid: int) -> None:
        table = schema.table
        self.catalog.schema_seen(table, xid)
        if not schema.key:
            self._announced.pop(table, None)
            if self.tables.captures(table):
                self.park(table, reason="it lost its key", hint=None, cause=CATALOG)
            return
        self._announced[table] = schema
        if self.tables.captures(table):
            self.adopt(schema)

    def emit(self, rows: Rows) -> None:
        """Add sequenced rows to the segment."""
        if rows.schema.fingerprint not in self.tables.schemas:
            raise InvariantBroken(f"rows of {rows.schema.table} came before their schema")
        self.dumps.saw_rows(rows)
        self.draft.add(rows)

    # -- schemas and conditions ----------------------------------------------------------------

    def adopt(self, schema: TableSchema) -> Adopted | None:
        """Mint the schema event that ``schema`` calls for, and do what its verdict demands."""
        adopted = self.tables.adopt(schema)
        if adopted is None:
            return None
        seq = self.sequencer.take(1)
        self.draft.schemas.append(schema)
        self.draft.schema_events.append(
            SchemaEvent(
                seq,
                schema.table,
                schema.fingerprint,
                adopted.before,
                adopted.verdict.value,
                adopted.changes,
            )
        )
        self.draft.state_changed = True
        self.dumps.disturb(schema.table, "a schema change")
        self.catalog.schema_changed(schema.table)
        what = ", ".join(adopted.changes)
        if adopted.verdict is Verdict.UNPROVEN:
            since = self.catalog.last_equal(schema.table, seq)
            self.doubt(schema.table, since=since, reason=f"schema change: {what}")
        elif adopted.verdict is Verdict.INCOMPATIBLE:
            self.tables.block(schema.table, since=seq, reason=f"incompatible change: {what}")
            self.requests.restart(schema.table)
        return adopted

    def unpark(self, table: str) -> None:
        """Capture ``table`` again, with the schema the log announced meanwhile."""
        self.tables.unpark(table)
        if table in self._announced:
            self.adopt(self._announced[table])

    def doubt(self, table: str, *, since: int, reason: str) -> None:
        """Mark ``table`` unproven and see to it that a delete-complete dump follows."""
        self.tables.unprove(table, since=since, reason=reason)
        self.draft.state_changed = True
        restarted = self.requests.restart(table)
        blocked = self.tables.states[table].condition is TableCondition.BLOCKED
        if not restarted and self.limits.dump_unproven and not blocked:
            self.request_dump("unproven", [table])

    def request_dump(self, why: str, tables: list[str]) -> None:
        """Accept a whole-table dump that the worker itself asks for."""
        request_id = f"{why}:{self.sequencer.next}:{self._token()[:8]}"
        self.requests.accept(
            DumpRequest(request_id, tuple(tables), requested_by="tideline"), tables
        )
        self.draft.accepted.append(request_id)
        self.draft.state_changed = True

    def reread(self, table: str, keys: list[tuple[str, ...]]) -> None:
        """Have these keys' rows read again, by a request that the same manifest makes durable."""
        if self.requests.reread_keys(table) + len(keys) > REREAD_KEYS_MAX:
            reason = "more rows changed their key during a dump than can be read again one by one"
            self.doubt(table, since=self.sequencer.last, reason=reason)
            return
        new_id = f"{REREAD}{self.sequencer.next}:{self._token()[:8]}"
        accepted = self.requests.reread(table, tuple(keys), new_id)
        if accepted is not None:
            self.draft.accepted.append(accepted)
        self.draft.state_changed = True

    def park(self, table: str, *, reason: str, hint: str | None, cause: str) -> None:
        """Stop capturing ``table`` from the next sequence on."""
        seq = self.sequencer.next
        if self.tables.park(table, seq=seq, reason=reason, hint=hint, cause=cause):
            self.draft.state_changed = True
            self.dumps.disturb(table, "the table was parked")
        self.fail_dumps(table, f"the table is parked: {reason}")

    def fail_dumps(self, table: str, error: str) -> None:
        """End every open dump of ``table`` with ``error``."""
        if self.requests.fail_table(table, error):
            self.draft.state_changed = True
            self.end_requests()

    def _park_value(self, table: str, column: str, seq: int) -> None:
        if seq != self.sequencer.next:
            raise InvariantBroken(f"parking {table} between the rows of a batch")
        self.park(
            table,
            reason=f"key column {column} has a value that its type cannot hold",
            hint="change the value or the column's type, then dump the table",
            cause=VALUE,
        )

    # -- requests ------------------------------------------------------------------------------

    @property
    def surveyed(self) -> bool:
        """Whether it is known which tables there are. Before that no request can be judged."""
        return bool(self.tables.states) or self.catalog.seen_token is not None

    def on_request(self, arrived: RequestArrived) -> Answer | None:
        """Accept, join or refuse; an answer is returned when it need not wait for a manifest."""
        request = arrived.request
        ended = self.requests.ended(request.request_id)
        if ended is not None or request.request_id in self.requests:
            self.draft.messages.append(arrived.message_id)
            return ended if ended is not None and ended.manifest_number is not None else None
        tables, error = self._tables_for(request)
        if error is None and len(self.requests) >= self.limits.open_requests_max:
            error = f"{self.limits.open_requests_max} requests are open already; ask again later"
        if error is not None:
            refused = RequestRefused(arrived.message_id, request.request_id, error)
            self.on_refused(refused)
            return None
        for table in tables:
            self._take_up(table)
        self.requests.accept(request, tables)
        self.draft.accepted.append(request.request_id)
        self.draft.messages.append(arrived.message_id)
        self.draft.urgent = self.draft.state_changed = True
        return None

    def on_refused(self, refused: RequestRefused) -> None:
        """Record a message that is no request we can serve."""
        hint = "`tideline status` shows the tables that are captured"
        answer = Answer(refused.request_id, RequestState.REFUSED, error=refused.error, hint=hint)
        self.draft.refused.append(answer)
        self.draft.messages.append(refused.message_id)
        self.draft.urgent = True

    def _tables_for(self, request: DumpRequest) -> tuple[list[str], str | None]:
        if request.request_id.startswith(REREAD):
            return [], f"ids that begin with {REREAD!r} are for requests of the worker's own"
        try:
            check_patterns(request.tables)
        except Misconfigured as error:
            return [], error.message
        known = {table: parse_table(table) for table in self.tables.states}
        chosen = []
        for pattern in request.tables:
            hits = [text for text, table in known.items() if matches(table, (pattern,), ())]
            if not hits:
                return [], f"no captured table matches {pattern!r}"
            served = [table for table in hits if self._serves(request, table)]
            if not served:
                reason = self.tables.states[hits[0]].reason
                return [], f"table {hits[0]} is parked: {reason}"
            chosen.extend(served)
        tables = list(dict.fromkeys(chosen))
        if request.keys is not None and len(tables) != 1:
            return [], f"keys needs exactly one table, {len(tables)} match"
        if request.keys is not None:
            schema = self.tables.schema(tables[0])
            if schema is None or len(schema.key) != len(request.keys[0]):
                wanted = ", ".join(schema.key) if schema else "unknown"
                return [], f"each key of {tables[0]} must give its key columns: {wanted}"
        return tables, None

    def _serves(self, request: DumpRequest, table: str) -> bool:
        """A parked table is not dumped: nothing of it is captured meanwhile. One that a value had
        parked is taken up again by a dump of the whole table."""
        return self.tables.captures(table) or (request.whole and self.tables.parked(table) == VALUE)

    def _take_up(self, table: str) -> None:
        state = self.tables.states[table]
        if self.tables.parked(table) is not None:
            since = state.since_seq or self.sequencer.next
            self.unpark(table)
            self.tables.unprove(table, since=since, reason=state.reason or "")

    def end_requests(self) -> None:
        """Hand requests that ended to the segment."""
        for answer in self.requests.take_ended():
            self.draft.finished.append(answer)
            self.draft.urgent = self.draft.state_changed = True

    def on_durable(self, manifest: Manifest) -> None:
        """``manifest``, and with it all that was handed over before it, is durable."""
        self.durable_number = manifest.manifest_number
        self.requests.durable(manifest.finished)

    def answers(self) -> list[Answer]:
        """How every open request stands; only durable steps are to be told as such."""
        waiting = self.dumps.waiting()
        return [answer_of(item, waiting=waiting) for item in self.requests.open]

    # -- what other threads found --------------------------------------------------------------

    def on_chunk(self, chunk: Chunk | ChunkFailed | Waiting, *, now: float) -> None:
        self.dumps.on_chunk(chunk, now=now)

    def on_catalog(self, observed: CatalogRound) -> None:
        self.catalog.on_round(observed)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.dumps.on_snapshot(snapshot)

    # -- what to do next -----------------------------------------------------------------------

    def next_order(self, *, now: float) -> ChunkOrder | None:
        """The next chunk to read; None while one is under way, or nothing is to be dumped."""
        return self.dumps.orders.next(now=now)

    def flush_due(self, *, now: float, buffered_since: float | None) -> bool:
        return flush_due(self.draft, self.limits, now=now, buffered_since=buffered_since)

    def spill(self, *, now: float) -> Spill | None:
        """Rows to upload before their transaction has ended."""
        if self._roll(now) is not Roll.SPILL:
            return None
        self.draft.spilled = True
        schemas = tuple(self.draft.schemas)
        return Spill(self.draft.take_rows(), schemas)

    def seal(self, *, now: float, force: bool = False) -> Sealed | None:
        """Close the segment if it is due, or if ``force`` and anything is in it."""
        forced = force and not self.in_transaction and (self.draft.has_content() or self._moved_at)
        if not forced and self._roll(now) is not Roll.CLOSE:
            return None
        draft = self.draft
        self.draft = Draft(self.sequencer.next)
        self._moved_at = None
        return Sealed(
            draft.first_seq,
            self.sequencer.last,
            self.position,
            self.source_time_us,
            draft.take_rows(),
            tuple(draft.schemas),
            tuple(draft.schema_events),
            tuple(draft.truncates),
            tuple(draft.floors),
            tuple(draft.accepted),
            tuple(draft.finished),
            tuple(draft.refused),
            self.open_state(),
            draft.state_changed,
            tuple(draft.messages),
        )

    def open_state(self) -> OpenState:
        return OpenState(self.requests.open, dict(self.tables.states), self.requests.recent)

    def idle(self) -> bool:
        """Nothing is open: no request, and nothing in the segment that a reader would miss."""
        return not (len(self.requests) or self.draft.has_content())

    def _roll(self, now: float) -> Roll:
        if self.draft.opened_at is None and self.draft.has_content():
            self.draft.opened_at = now
        return roll(
            self.draft,
            self.limits,
            now=now,
            in_transaction=self.in_transaction,
            moved_at=self._moved_at,
        )
