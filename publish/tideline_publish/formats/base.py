"""The protocol of forms of events: rows and truncates in, keys and values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tideline.contract.manifest import Truncate
from tideline.contract.schema import TableSchema


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Keys and values of rows, in their order; a key is None for a table without one."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes]


class EventFormat(Protocol):
    """Encodes events. Rows have the columns of parts (`tideline.contract.part`), and none of them
    changed its key: such an update comes as a delete of the old key and the update."""

    def rows(
        self, schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch
    ) -> EncodedRows:
        """Encode ``rows``, of which an event shows ``columns``."""
        ...

    def truncate(self, truncate: Truncate, ts_us: int) -> bytes:
        """Encode a truncate; ``ts_us`` is the source's time of its manifest."""
        ...
