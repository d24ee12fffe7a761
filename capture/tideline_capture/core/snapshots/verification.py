"""Judges a verification chunk once its high watermark passes.

Such a chunk is read like a dump's, between two watermarks and by the same rules of visibility. But
its rows get no sequences: they are the source's rows between two sequences, which a comparison
takes into account. So nothing here may change the chain's state of a table: a chunk that does not
fit ends its request or is read again, and never quarantines, completes or dumps a table.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import VerificationChunk
from tideline.contract.open_state import TableCondition, TableDump
from tideline.contract.request import DumpRequest
from tideline_capture.core.chunks import Chunk, ChunkOrder
from tideline_capture.core.segment import VerificationRows
from tideline_capture.core.state import CoreState

SCHEMA_TRIES_MAX = 60
"""Limit of rereads of a chunk while the log has not yet shown its columns."""
_ALL = 100


def sampled(request: DumpRequest, table: str, after_key: tuple[str, ...] | None) -> bool:
    """Return whether the rows of the chunk behind ``after_key`` are to be read.

    Decided by the request's id and the chunk's beginning alone, so that a successor decides alike.
    """
    if request.sample_percent is None:
        return True
    text = "\0".join([request.request_id, table, *(after_key or ())])
    return int.from_bytes(sha256(text.encode()).digest()[:4]) % _ALL < request.sample_percent


class ChunkVerification:
    """Judges verification chunks, and hands their rows on."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._waits: dict[tuple[str, str], int] = {}

    def fits(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> bool | None:
        """Return whether the chunk can be compared.

        None: it is to be read again; False: what follows is done.
        """
        facts, table = chunk.facts, order.table
        reason = facts.problem
        if reason is None and facts.schema is None:
            reason = "it has no schema"
        if reason is None and chunk.key_overflow:
            reason = f"key column {', '.join(chunk.key_overflow)} has a value its type cannot hold"
        state = self._state.tables.get(table)
        if (
            reason is None
            and state is not None
            and state.condition is TableCondition.SCHEMA_BLOCKED
        ):
            reason = f"the table is blocked: {state.reason}"
        if reason is None and not self._state.captures(table):
            reason = "the table is quarantined"
        if reason is not None:
            self._end(order, dump, reason)
            return False
        if dump.key_definition is not None and dump.key_definition != facts.key_definition:
            self._state.update_dump(order.request_id, TableDump(table))
            return False
        known = self._state.schema(table)
        if known is not None and known == facts.schema:
            self._waits.pop((order.request_id, table), None)
            return True
        tries = self._waits.get((order.request_id, table), 0) + 1
        self._waits[order.request_id, table] = tries
        if tries <= SCHEMA_TRIES_MAX:
            return None
        self._end(order, dump, "its columns are others than the log says, and stay so")
        return False

    def keep(self, order: ChunkOrder, low_seq: int, chunk: Chunk, dump: TableDump) -> None:
        """Hand the chunk's rows to the open segment."""
        schema = self._state.schema(order.table)
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        keys = order.keys is not None
        verified = VerificationChunk(
            order.request_id,
            order.table,
            schema.fingerprint,
            dump.chunks,
            low_seq,
            self._state.last_seq,
            rows=0 if order.boundary_only else chunk.batch.num_rows,
            after_key=order.after_key,
            last_key=None if keys else chunk.last_key,
            complete=chunk.complete and not keys,
            skipped=order.boundary_only,
            phase="keys" if keys else "rows",
        )
        rows = chunk.batch.slice(0, verified.rows)
        missing = chunk.missing if keys else None
        if missing is not None:
            verified = replace(verified, rows=verified.rows + missing.num_rows)
            done = int(dump.last_key[0]) if dump.last_key else 0
            asked = len(self._state.requests.keys_asked(order.request_id))
            verified = replace(verified, complete=done + chunk.keys_read >= asked)
        self._state.verify(VerificationRows(verified, schema, rows, missing))

    def _end(self, order: ChunkOrder, dump: TableDump, reason: str) -> None:
        self._state.update_dump(order.request_id, replace(dump, state="failed", error=reason))
        self._waits.pop((order.request_id, order.table), None)
        self._state.end()
