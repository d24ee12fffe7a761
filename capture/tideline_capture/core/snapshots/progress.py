"""Appends the rows of a valid chunk to the open segment, and advances its dump."""

from __future__ import annotations

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Copied, DeleteBefore
from tideline.contract.open_state import TableDump
from tideline_capture.core.chunks import Chunk, ChunkOrder
from tideline_capture.core.effects import Deciding, Effects, SchemaRead, SnapshotDone, Unfit
from tideline_capture.core.events import Watermark
from tideline_capture.core.facts import CatalogIdentity, TableFacts
from tideline_capture.core.snapshots.emit import dump_rows, missing_rows
from tideline_capture.core.snapshots.window import ChunkWindow, settle, untouched
from tideline_capture.core.state import CATALOG, VALUE, CoreState


class DumpProgress:
    """Advances dumps, chunk by chunk."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._begun_with: dict[tuple[str, str], str] = {}

    def columns_followed(self, facts: TableFacts) -> None:
        """Note which columns a table had before, also in the identities that dumps began with."""
        for (request_id, table), catalog in self._begun_with.items():
            if table == facts.table:
                identity = CatalogIdentity.parse(catalog).with_columns_of(facts.identity)
                self._begun_with[request_id, table] = identity.text

    def fits(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> Deciding[bool]:
        """Return whether the chunk belongs to the dump as it was begun; if not, do what follows."""
        state, facts, table = self._state, chunk.facts, order.table
        if facts.problem is not None or facts.schema is None:
            yield Unfit(table, facts.problem or "it has no schema", facts.hint, CATALOG)
            return False
        if chunk.key_overflow:
            columns = ", ".join(chunk.key_overflow)
            reason = f"key column {columns} has a value that its type cannot hold"
            hint = "change the value or the column's type, then dump the table"
            yield Unfit(table, reason, hint, VALUE)
            return False
        if dump.key_definition is not None and dump.key_definition != facts.key_definition:
            state.update_dump(order.request_id, TableDump(table))
            return False
        if not state.captures(table):
            state.fail_table(table, "the table is quarantined")
            return False
        yield SchemaRead(facts.schema, facts)
        # Adopting can have restarted this dump: its low watermark was before the schema event.
        now = state.requests.dump(order.request_id, table)
        return now is not None and now.first_low_seq is not None

    def emit(
        self, order: ChunkOrder, window: ChunkWindow, chunk: Chunk, watermark: Watermark
    ) -> None:
        """Mint sequences for the rows that the window left, and add them to the segment."""
        schema = self._state.schema(order.table)
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        settled = settle(window, schema, chunk.batch)
        count = settled.whole.true_count + len(settled.partial)
        first = self._state.mint(count)
        rows = dump_rows(schema, chunk.batch, settled, first_seq=first, ts_us=watermark.clock_us)
        if chunk.missing is not None:
            gone = untouched(window, schema, chunk.missing)
            first = self._state.mint(gone.num_rows)
            rows += missing_rows(schema, gone, first_seq=first, ts_us=watermark.clock_us)
        for part in rows:
            self._state.emit(part)

    def advance(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> Deciding[bool]:
        """Advance past ``chunk``, which was emitted; return whether it was the dump's last."""
        asked = chunk.batch.num_rows if order.keys is None else chunk.keys_read
        if order.boundary_only and not chunk.complete:
            asked = order.rows_max
        phase, last_key, complete = dump.phase, chunk.last_key or dump.last_key, chunk.complete
        keys = self._state.requests.keys_asked(order.request_id)
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
        self._state.update_dump(order.request_id, advanced)
        if dump.chunks == 0:
            self._begun_with[order.request_id, order.table] = chunk.facts.catalog
        if complete:
            yield from self._finish(order, advanced)
            self._state.end()
        return complete

    def _finish(self, order: ChunkOrder, dump: TableDump) -> Effects:
        requests = self._state.requests.open
        item = next(one for one in requests if one.request.request_id == order.request_id)
        if item.request.whole and dump.first_low_seq is not None:
            self._state.record(self._delete_before(order, dump, dump.first_low_seq))
            catalog = self._begun_with.pop((order.request_id, order.table), None)
            yield SnapshotDone(item, dump, catalog)

    def _delete_before(self, order: ChunkOrder, dump: TableDump, seq: int) -> DeleteBefore:
        if not order.keyless:
            return DeleteBefore(dump.table, seq, order.request_id)
        return DeleteBefore(
            dump.table,
            seq,
            order.request_id,
            copied=Copied(
                first_manifest=dump.first_manifest or 0,
                last_seq=self._state.last_seq,
                rows=dump.rows,
                seen=dump.seen,
            ),
        )
