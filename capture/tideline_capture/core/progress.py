"""What a chunk that counts brings: its rows to the segment that is filled, and its dump forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Copied, Floor, TableCondition, TableDump
from tideline_capture.core.blocks import unblocks
from tideline_capture.core.drift import restated_columns
from tideline_capture.core.emit import dump_rows, missing_rows
from tideline_capture.core.events import Chunk, ChunkOrder, Mark, TableFacts
from tideline_capture.core.requests import FOLLOW_UP
from tideline_capture.core.tables import CATALOG, VALUE
from tideline_capture.core.window import Window, settle, untouched

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker


class Progress:
    """The dumps' way on, chunk by chunk. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self._core = core
        self._begun_with: dict[tuple[str, str], str] = {}

    def restate(self, facts: TableFacts) -> None:
        """It is known which columns a table had before these: what dumps began with is that too."""
        for (request_id, table), catalog in self._begun_with.items():
            if table == facts.table:
                self._begun_with[request_id, table] = restated_columns(catalog, facts)

    def fits(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> bool:
        """Whether the chunk belongs to the dump as it was begun; if not, what follows is done."""
        core, facts = self._core, chunk.facts
        if facts.problem is not None or facts.schema is None:
            reason = facts.problem or "it has no schema"
            core.conditions.park(order.table, reason=reason, hint=facts.hint, cause=CATALOG)
            return False
        if chunk.key_overflow:
            columns = ", ".join(chunk.key_overflow)
            core.conditions.park(
                order.table,
                reason=f"key column {columns} has a value that its type cannot hold",
                hint="change the value or the column's type, then dump the table",
                cause=VALUE,
            )
            return False
        if dump.key_definition is not None and dump.key_definition != facts.key_definition:
            core.requests.update(order.request_id, TableDump(order.table))
            core.draft.state_changed = True
            return False
        if not core.tables.captures(order.table):
            core.conditions.fail_dumps(order.table, "the table is parked")
            return False
        core.conditions.adopt(facts.schema, facts)
        # Adopting can have begun this dump anew: its low mark was before the schema event.
        now = core.requests.dump(order.request_id, order.table)
        return now is not None and now.first_low_seq is not None

    def emit(self, order: ChunkOrder, window: Window, chunk: Chunk, mark: Mark) -> None:
        """Mint sequences for what the window left of its rows, and add them to the segment."""
        core = self._core
        schema = core.tables.schema(order.table)
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        settled = settle(window, schema, chunk.batch)
        count = settled.whole.true_count + len(settled.partial)
        first = core.sequencer.take(count)
        rows = dump_rows(schema, chunk.batch, settled, first_seq=first, ts_us=mark.clock_us)
        if chunk.missing is not None:
            gone = untouched(window, schema, chunk.missing)
            first = core.sequencer.take(gone.num_rows)
            rows += missing_rows(schema, gone, first_seq=first, ts_us=mark.clock_us)
        for part in rows:
            core.draft.add(part)

    def advance(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> bool:
        """``chunk`` was emitted; whether it was the dump's last."""
        core = self._core
        asked = chunk.batch.num_rows if order.keys is None else chunk.keys_read
        if order.boundary_only and not chunk.complete:
            asked = order.rows_max
        phase, last_key, complete = dump.phase, chunk.last_key or dump.last_key, chunk.complete
        keys = core.requests.keys_asked(order.request_id)
        if order.keys is not None:
            done = (int(dump.last_key[0]) if dump.last_key else 0) + asked
            last_key, complete = (str(done),), done >= len(keys)
        elif complete and keys:
            phase, last_key, complete = "keys", None, False
        advanced = replace(
            dump,
            state="done" if complete else "running",
            phase=phase,
            last_key=last_key,
            key_definition=chunk.facts.key_definition,
            chunks=dump.chunks + 1,
            rows=dump.rows + asked,
            rows_estimate=chunk.rows_estimate or dump.rows_estimate,
        )
        core.requests.update(order.request_id, advanced)
        core.draft.state_changed = True
        if dump.chunks == 0:
            self._begun_with[order.request_id, order.table] = chunk.facts.catalog
        if complete:
            self._finish(order, advanced)
            core.end_requests()
        return complete

    def _finish(self, order: ChunkOrder, dump: TableDump) -> None:
        core = self._core
        item = next(i for i in core.requests.open if i.request.request_id == order.request_id)
        if not item.request.whole or dump.first_low_seq is None:
            return
        core.draft.floors.append(self._floor(order, dump, dump.first_low_seq))
        catalog = self._begun_with.pop((order.request_id, order.table), None)
        if catalog is not None:
            # What changed before the first chunk is in the dump: no round need ask for another.
            state = core.tables.states[dump.table]
            core.tables.states[dump.table] = replace(state, catalog=catalog)
        state = core.tables.states[dump.table]
        blocked = state.condition is TableCondition.BLOCKED
        if blocked and not unblocks(item, state):
            return
        # It began before changes that are in doubt, and another one is to prove them.
        followed = core.requests.awaits_dump(dump.table, f"{FOLLOW_UP}:")
        if blocked or not followed:
            core.tables.proven(
                dump.table,
                first_low_seq=dump.first_low_seq,
                first_manifest=dump.first_manifest or 0,
                last_seq=core.sequencer.last,
            )
        if blocked and followed:
            reason = "changes that the log does not tell came during its dump"
            core.tables.unprove(dump.table, since=dump.first_low_seq, reason=reason)

    def _floor(self, order: ChunkOrder, dump: TableDump, seq: int) -> Floor:
        if not order.keyless:
            return Floor(dump.table, seq, order.request_id)
        return Floor(
            dump.table,
            seq,
            order.request_id,
            copied=Copied(
                first_manifest=dump.first_manifest or 0,
                last_seq=self._core.sequencer.last,
                rows=dump.rows,
                seen=dump.seen,
            ),
        )
