"""The rows of a whole batch of events, decoded table by table.

The rows of one version of a table in a whole batch are walked side by side and decoded together.
The walk gives how many rows each event has, and with that their numbers: rows have sequences in the
log's order, without holes, whatever table they are of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured
from tideline_capture.core.events import CascadeSeen, Control, Int64Array, Rows
from tideline_capture.sources.decoded import INSERT
from tideline_capture.sources.mysql.binlog.bulk import (
    OPERATIONS,
    EventColumns,
    TransactionStarts,
    read_transaction_starts,
    row_areas,
)
from tideline_capture.sources.mysql.binlog.decode import Walked, walk_events
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.table_cache import Known, Role, TableCache, table_ids

_NONE: Int64Array = np.empty(0, np.int64)
_NO_TRANSACTIONS = TransactionStarts(_NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class Taken:
    """The content of a batch's events: ``changes`` rows, and the controls that their tables caused.
    See `LogBatch` for ``unholdable``."""

    rows: tuple[Rows, ...] = ()
    changes: int = 0
    controls: tuple[Control, ...] = ()
    unholdable: tuple[tuple[str, str], ...] = ()


class BulkRows:
    """Decodes the frequent events, and moves `LogState` over their transactions."""

    def __init__(self, state: LogState, tables: TableCache, rules: LogRules) -> None:
        self._state = state
        self._tables = tables
        self._rules = rules

    def take(self, bulk: EventColumns, next_seq: int) -> Taken:
        """Return the rows of ``bulk``, which has no rare event; they are numbered from
        ``next_seq``."""
        state = self._state
        transactions = read_transaction_starts(bulk)
        if state.replay is not None:  # Another transaction's GTID; ours began with its commit.
            transactions = _NO_TRANSACTIONS
        rows = self._find_rows(bulk, transactions)
        taken = self._decode(bulk, rows, next_seq, frozenset())
        ends = np.flatnonzero(bulk.codes == EventCode.XID)
        framed, commits, _ = bulk.queries()
        ends = np.sort(np.concatenate([ends, commits]))
        last_end = int(ends[-1]) if len(ends) else -1
        if state.replay is None:
            state.pass_over(bulk, transactions, last_end)
            state.framed(framed, last_end)
        state.wrote |= self._tables_taken(rows.ids[rows.indices > last_end])
        return taken

    def _find_rows(self, bulk: EventColumns, transactions: TransactionStarts) -> _RowEvents:
        """Return the row events of chosen tables, and their transactions."""
        state = self._state
        indices = np.flatnonzero(OPERATIONS[bulk.codes])
        if state.preparing is not None:
            if len(transactions.indices):
                raise CorruptData("the binlog has no end of an XA transaction")
            indices = indices[:0]
        ids = table_ids(bulk.data, bulk.starts[indices] + HEADER_BYTES)
        begun = np.searchsorted(transactions.indices, indices) - 1
        tx, ts = transactions.tx, transactions.ts
        if state.open is not None:
            tx, ts = np.append(tx, state.open.tx), np.append(ts, state.open.ts)
        elif len(indices) and begun[0] < 0:
            raise CorruptData("the binlog has rows outside of any transaction")
        return _RowEvents(indices, ids, tx[begun], ts[begun])

    def _decode(
        self, bulk: EventColumns, events: _RowEvents, next_seq: int, without: frozenset[str]
    ) -> Taken:
        """Return all rows, by table. A table with a key that cannot be held is left out, and the
        others are renumbered: sequences must not have holes."""
        groups, controls = self._walk(bulk, events, without)
        controls += self._cascaded(bulk, events)
        counts = np.zeros(len(events.indices), np.int64)
        for group in groups:
            counts[group.chosen] = group.walked.rows_per_event
        first = next_seq + np.cumsum(counts) - counts
        rows = []
        for group in groups:
            schema, chosen, walked = group.known.schema, group.chosen, group.walked
            if schema is None:
                raise InvariantBroken("rows of a table without a schema")
            each = walked.rows_per_event
            within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
            decoded = walked.to_batch(
                schema,
                seq=np.repeat(first[chosen], each) + within,
                tx=np.repeat(events.tx[chosen], each),
                ts=np.repeat(events.ts[chosen], each),
                image=self._rules.images(group.known.name),
            )
            if decoded.key_overflow:
                rest = self._decode(bulk, events, next_seq, without | {schema.table})
                left_out = ((schema.table, decoded.key_overflow[0]), *rest.unholdable)
                return Taken(rest.rows, rest.changes, rest.controls, left_out)
            rows.append(decoded.rows)
        return Taken(tuple(rows), int(counts.sum()), controls)

    def _walk(
        self, bulk: EventColumns, events: _RowEvents, without: frozenset[str]
    ) -> tuple[list[_Group], tuple[Control, ...]]:
        """Return the row events of captured tables, by version of a table, walked through."""
        by_version: dict[int, tuple[Known, list[int]]] = {}
        for table_id in np.unique(events.ids).tolist():
            known = self._tables.get(table_id)
            if known is None:
                raise CorruptData("the binlog has rows of a table that it did not describe")
            if self._takes(known, without):
                by_version.setdefault(id(known), (known, []))[1].append(table_id)
        groups, gaps = [], []
        for known, table_numbers in by_version.values():
            if known.table is None:
                raise known.error or InvariantBroken(f"{known.name} was not read")
            chosen = np.flatnonzero(np.isin(events.ids, table_numbers))
            areas = row_areas(bulk, events.indices[chosen], len(known.table.columns))
            if areas.partial.any():
                gaps.append(self._refuse_partial(known))
                chosen, starts = chosen[~areas.partial], areas.starts[~areas.partial]
            else:
                starts = areas.starts
            indices = events.indices[chosen]
            kinds = OPERATIONS[bulk.codes[indices]]
            if len(indices):
                walked = walk_events(bulk.data, starts, bulk.stops[indices], kinds, known.table)
                groups.append(_Group(known, chosen, walked))
        return groups, tuple(gaps)

    def _cascaded(self, bulk: EventColumns, events: _RowEvents) -> tuple[Control, ...]:
        """Return the tables that updates and deletes of these rows may have changed, unlogged."""
        changed = OPERATIONS[bulk.codes[events.indices]] != INSERT
        children: set[str] = set()
        for table_id in np.unique(events.ids[changed]).tolist():
            known = self._tables.get(table_id)
            if known is not None:
                children |= self._rules.children_of(known.name)
        return (CascadeSeen(tuple(sorted(children))),) if children else ()

    def _takes(self, known: Known, without: frozenset[str]) -> bool:
        table = str(known.name)
        chosen = known.role is Role.CHOSEN and table not in without
        return chosen and self._rules.captures(table)

    def _refuse_partial(self, known: Known) -> Control:
        """Return the gap of rows with some columns only: a session may leave columns out at any
        time, and what is not there must not become NULL."""
        error = Misconfigured(
            f"the log has only some columns of rows of {known.name}",
            hint="binlog_row_image was not FULL: SET GLOBAL binlog_row_image = 'FULL', and end"
            " sessions that set another",
        )
        # The log's position is that behind the batch by now.
        return self._rules.gap(error, self._state, tables=(str(known.name),), where="before")

    def _tables_taken(self, ids: Int64Array) -> frozenset[str]:
        """Return those of these tables whose rows are taken."""
        known = [self._tables.get(table_id) for table_id in np.unique(ids).tolist()]
        taken = [one for one in known if one is not None and self._takes(one, frozenset())]
        return frozenset(str(one.name) for one in taken)


@dataclass(frozen=True, slots=True)
class _RowEvents:
    """Row events: their indices in the batch, their tables' numbers, their transactions."""

    indices: Int64Array
    ids: Int64Array
    tx: Int64Array
    ts: Int64Array


@dataclass(frozen=True, slots=True)
class _Group:
    """The row events (``chosen`` of a `_RowEvents`) of one version of a table."""

    known: Known
    chosen: Int64Array
    walked: Walked
