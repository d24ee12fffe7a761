"""Copies of tables without a key: one SELECT in one snapshot, taken piece by piece.

The server waits while no rows are read. The order of the first chunk's statements is that of
`chunks`; probes are written while the snapshot is taken (`probes`), and the snapshot itself shows
which of them it holds.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pymysql

from tideline.contract.errors import InvariantBroken
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.sources.chunks import SourceChunk, opened_copy
from tideline_capture.sources.mysql.catalog.tables import MysqlCatalogTable
from tideline_capture.sources.mysql.catalog.watch import EVERYTHING
from tideline_capture.sources.mysql.snapshot.chunk_query import whole_table
from tideline_capture.sources.mysql.snapshot.row_chunk import typed_rows
from tideline_capture.sources.mysql.snapshot.row_packets import RowStream


class StatementCopy:
    """A `TableCopy`; ``connection`` is inside the snapshot's transaction."""

    def __init__(
        self, connection: Any, table: MysqlCatalogTable, probes: tuple[tuple[str, int], ...]
    ) -> None:
        self.table = table
        self._connection = connection
        self._probes = probes
        self._stream: RowStream | None = None
        self._rows = 0

    def close(self) -> None:
        with suppress(pymysql.Error, OSError):
            self._connection._force_close()

    def opened(self, order: ChunkOrder) -> SourceChunk:
        """See `TableCopy.opened`."""
        return opened_copy(order, self.table, EVERYTHING, ("0",), self._probes)

    def read(self, order: ChunkOrder) -> SourceChunk:
        """See `TableCopy.read`. The place is how many rows were read."""
        token, count = order.after_key or ("", "")
        if count != str(self._rows):
            raise InvariantBroken(f"a copy of {order.table} stands elsewhere than its dump")
        if self._stream is None:
            query = whole_table(self.table.table)
            self._stream = RowStream(self._connection, query, bytes_max=order.bytes_max)
        rows, ended = self._stream.take()
        self._rows += len(rows)
        columns, behind = self.table.table.columns, (token, str(self._rows))
        convert = partial(typed_rows, columns, rows, len(columns))
        return SourceChunk(
            order, self.table, EVERYTHING, len(rows), behind, ended, convert, self._probes
        )
