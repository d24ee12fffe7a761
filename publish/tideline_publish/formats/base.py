"""The protocol of forms of events: rows and truncates in, keys and values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tideline.contract.manifest import Manifest, Truncate
from tideline.contract.schema import TableSchema


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Keys and values of rows, in their order; a key is None for a table without one."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes]


class EventFormat(Protocol):
    """Encodes events. Rows have the columns of parts (`tideline.contract.part`). An update that
    changed the key comes as a delete of the old key, and as itself.

    ``tombstones``: deletes are followed by an event without a value.
    """

    tombstones: bool

    def rows(
        self,
        manifest: Manifest,
        schema: TableSchema,
        columns: Sequence[str],
        rows: pa.RecordBatch,
    ) -> EncodedRows:
        """Encode ``rows`` of a part of ``manifest``, of which an event shows ``columns``."""
        ...

    def truncate(self, manifest: Manifest, schema: TableSchema, truncate: Truncate) -> bytes:
        """Encode a truncate of ``manifest``, of a table that has ``schema`` at its end (without
        columns where it is not known)."""
        ...
