"""A chunk that was read to verify: what a manifest says of it, and its rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tideline.contract.manifest import Check
from tideline.contract.schema import TableSchema


@dataclass(frozen=True, slots=True)
class CheckRows:
    """``check`` lacks what the upload tells: key, bytes, digest. ``rows`` holds the table's columns
    (and ``_tl_overflow``), ``missing`` the key columns of asked-for keys that have no row."""

    check: Check
    schema: TableSchema
    rows: pa.RecordBatch
    missing: pa.RecordBatch | None = None

    @property
    def bytes(self) -> int:
        """In memory."""
        return int(self.rows.nbytes) + (0 if self.missing is None else int(self.missing.nbytes))
