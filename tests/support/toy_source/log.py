"""The toy's log as the worker reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.toy_source.database import Connection, Version
from tideline.contract.part import BEFORE
from tideline.contract.position import PostgresPosition, SourcePosition
from tideline.contract.schema import Column
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.types import Kind
from tideline_capture.arrow_types import Converted, arrow_type
from tideline_capture.core.events import (
    Begun,
    Boundary,
    Control,
    LogBatch,
    Rows,
    SchemaSeen,
    StatementSeen,
    Truncated,
    UnknownWatermark,
)
from tideline_capture.sources.decoded import (
    DELETE,
    INSERT,
    UPDATE,
    TypedColumns,
    TypedRows,
    assemble,
)
from tideline_capture.sources.watermark_key import WatermarkKey

_ENTRIES = "SELECT id, at_us, kind, version, old, new FROM _log WHERE id > ? ORDER BY id LIMIT ?"
Entry = tuple[int, int, str, int, str | None, str | None]


class ToyLogReader:
    """A `LogReader`: rows come in bulk, anything else ends a batch."""

    def __init__(
        self,
        connection: Connection,
        key: WatermarkKey,
        begin: int,
        captures: Callable[[str], bool],
        chosen: Callable[[str], bool],
    ) -> None:
        self.buffered_bytes = 0
        self.must_take = False
        self._connection = connection
        self._key = key
        self._at = begin
        self._captures = captures
        self._chosen = chosen
        self._pending: list[Entry] = []
        self._control: Control | None = None
        self._inside = False
        self._versions: dict[int, Version] = {}
        self._described: dict[str, int] = {}

    @property
    def at_commit(self) -> bool:
        return bool(self._pending) and self._pending[-1][2] == "commit"

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll`."""
        count = 0
        for entry in (
            [] if self.must_take else self._connection.rows(_ENTRIES, (self._at, messages_max))
        ):
            kind = entry[2]
            if kind == "row" and self._describe(entry):
                count += 1  # The row is read once more, behind the description.
                break
            self._at = entry[0]
            count += 1
            if kind in ("row", "commit"):
                self._pending.append(entry)
                self.buffered_bytes += len(entry[4] or "") + len(entry[5] or "")
                if kind == "commit" and until_commit:
                    break
                continue
            self._control = self._read(entry)
            self.must_take = self._control is not None
            if self.must_take:
                break
        return count

    def take(self, next_seq: int) -> LogBatch:
        """See `LogReader.take`."""
        pending, self._pending = self._pending, []
        control, self._control = self._control, None
        self.must_take, self.buffered_bytes = False, 0
        of_version: dict[int, list[tuple[int, int, Entry]]] = {}
        seq, tx, boundary = next_seq, 0, None
        for entry in pending:
            self._inside = entry[2] == "row"
            if entry[2] == "commit":
                boundary, tx = Boundary(PostgresPosition(entry[0])), entry[0]
            elif self._captures(self._version(entry).schema.table):
                of_version.setdefault(entry[3], []).append((seq, tx, entry))
                seq += 1
        if control is not None:
            self._inside = True
        return LogBatch(
            rows=tuple(
                _rows(self._versions[number], group) for number, group in of_version.items()
            ),
            changes=seq - next_seq,
            controls=() if control is None else (control,),
            boundary=None if self._inside else boundary,
            in_transaction=self._inside,
            transactions=np.empty(0, np.int64),
        )

    def confirm(self, position: SourcePosition) -> None:
        """The toy forgets nothing."""

    def wait(self, timeout_s: float) -> None:
        time.sleep(min(timeout_s, 0.01))

    def close(self) -> None:
        self._connection.close()

    def _version(self, entry: Entry) -> Version:
        number = entry[3]
        if number not in self._versions:
            self._versions[number] = self._connection.version(number)
        return self._versions[number]

    def _describe(self, entry: Entry) -> bool:
        """Whether the row's table is to be described first: it is, then."""
        version = self._version(entry)
        table = version.schema.table
        if self._described.get(version.name) == version.number or not self._chosen(table):
            return False
        self._described[version.name] = version.number
        self._control, self.must_take = SchemaSeen(version.schema), True
        return True

    def _read(self, entry: Entry) -> Control | None:
        """What an entry that is no row says; None of a table that the settings do not name."""
        reported: Any = json.loads(entry[5] or "null")
        if entry[2] == "mark":
            return self._key.opened(*reported) or UnknownWatermark()
        if entry[2] == "truncate":
            return Truncated((reported,)) if self._captures(reported) else None
        table, verb = reported["table"], reported["verb"]
        if not self._chosen(table):
            return None
        if verb == "CREATE":
            begun = (Begun(table, empty=True, at_us=entry[1]),)
            return StatementSeen(reported["text"], (table,), neutral=True, begun=begun)
        if verb == "DROP":
            return StatementSeen(reported["text"], (table,), neutral=False, ended=(table,))
        if "step" not in reported:
            return StatementSeen(reported["text"], (table,), neutral=False)
        steps = (ColumnStep(StepKind(reported["step"]), reported["column"]),)
        return StatementSeen(reported["text"], (table,), neutral=True, steps=steps)


def typed(values: Sequence[Any], column: Column) -> Converted:
    """SQLite's values of a column, all of which its type holds."""
    if column.logical.kind is Kind.TIMESTAMP_NTZ:
        return Converted(pa.array(values, pa.string()).cast(pa.timestamp("us")), None)
    return Converted(pa.array(values, arrow_type(column.logical)), None)


def _rows(version: Version, group: Sequence[tuple[int, int, Entry]]) -> Rows:
    """Entries, with their sequences and the ids of transactions, as rows of a part."""
    schema = version.schema
    olds = [json.loads(entry[4] or "null") for _, _, entry in group]
    news = [json.loads(entry[5] or "null") for _, _, entry in group]
    pairs = list(zip(olds, news, strict=True))
    place = schema.column_names.index("id")
    columns = TypedColumns()
    for at, column in enumerate(schema.columns):
        gone = [old[at] if at == place else None for old in [o or [None] * 99 for o in olds]]
        values = [gone[row] if new is None else new[at] for row, new in enumerate(news)]
        columns.add(column.name, typed(values, column))
    moved = [old and new and old[place] != new[place] for old, new in pairs]
    if any(moved):
        before = [old[place] if there else None for old, there in zip(olds, moved, strict=True)]
        columns.add(BEFORE + "id", typed(before, schema.columns[place]))
    codes = [INSERT if old is None else DELETE if new is None else UPDATE for old, new in pairs]
    seq, tx, ts = (
        np.array(numbers, np.int64)
        for numbers in zip(*((seq, tx, entry[1]) for seq, tx, entry in group), strict=True)
    )
    rows = TypedRows(np.array(codes, np.uint8), columns, before_rows=sum(map(bool, moved)))
    return assemble(rows, schema, seq=seq, tx=tx, ts=ts).rows
