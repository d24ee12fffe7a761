"""CloudEvents 1.0 in their JSON form (https://cloudevents.io), around Tideline's own.

``id`` is unique for the ``source``: incarnation, sequence and operation. ``subject`` is the table,
and ``sequence`` CloudEvents' own extension: a text that sorts as events do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from tideline.contract.manifest import Manifest, Truncate
from tideline.contract.part import OP, SEQ, TS
from tideline.contract.schema import TableSchema
from tideline.contract.types import TIMESTAMP
from tideline_publish.events import TRUNCATED
from tideline_publish.formats.base import EncodedRows
from tideline_publish.formats.json import JsonFormat
from tideline_publish.formats.json_values import json_values

_TYPES: Mapping[str, str] = {
    "c": "tideline.row.created",
    "u": "tideline.row.updated",
    "d": "tideline.row.deleted",
    "r": "tideline.row.read",
    TRUNCATED: "tideline.table.truncated",
}


class CloudEventsFormat:
    """See `EventFormat`."""

    def __init__(self, pipeline: str) -> None:
        self.tombstones = False
        self._data = JsonFormat()
        self._source = f"/tideline/{pipeline}"

    def rows(
        self,
        manifest: Manifest,
        schema: TableSchema,
        columns: Sequence[str],
        rows: pa.RecordBatch,
    ) -> EncodedRows:
        """See `EventFormat`."""
        data = self._data.rows(manifest, schema, columns, rows)
        ops = rows.column(OP).to_pylist()
        heads = {op: self._head(manifest, schema.table, op) for op in set(ops)}
        times = json_values(rows.column(TS), TIMESTAMP).to_pylist()
        values = [
            _event(heads[op], seq, op, at, value)
            for seq, op, at, value in zip(
                rows.column(SEQ).to_pylist(), ops, times, data.values, strict=True
            )
        ]
        return EncodedRows(data.keys, values)

    def truncate(self, manifest: Manifest, schema: TableSchema, truncate: Truncate) -> bytes:
        """See `EventFormat`."""
        data = self._data.truncate(manifest, schema, truncate)
        ts_us = pa.array([manifest.through_us or 0], pa.timestamp("us", "UTC"))
        (at,) = json_values(ts_us, TIMESTAMP).to_pylist()
        head = self._head(manifest, truncate.table, TRUNCATED)
        return _event(head, truncate.seq, TRUNCATED, at, data)

    def _head(self, manifest: Manifest, table: str, op: str) -> tuple[bytes, bytes]:
        """Return the texts before and behind the sequence and operation in ``id``."""
        begin = msgspec.json.encode({"specversion": "1.0", "id": f"{manifest.incarnation}-"})
        rest = {
            "source": self._source,
            "type": _TYPES[op],
            "subject": table,
            "datacontenttype": "application/json",
        }
        return begin.removesuffix(b'"}'), msgspec.json.encode(rest)[1:-1]


def _event(head: tuple[bytes, bytes], seq: int, op: str, at: str, data: bytes) -> bytes:
    begin, rest = head
    return b'%b%d-%b",%b,"time":%b,"sequence":"%020d","data":%b}' % (
        begin, seq, op.encode(), rest, at.encode(), seq, data,
    )  # fmt: skip
