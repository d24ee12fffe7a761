"""Maintenance of warehouse tables: the order of a run, its measurements and its receipt.

A table's files are rewritten when the measurements say that it pays, and files that left its newest
version are removed after a retention. Neither changes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version

MAINTENANCE_VERSION = 1
VACUUM_HOURS_MIN = 24.0
"""The least age of vacuumed files, for any caller: files of a running commit are not in the log
yet, and readers of an older version still read files that were removed since."""


class Thresholds(msgspec.Struct, frozen=True):
    """The settings of section ``maintain``, as a run is given them."""

    file_bytes: int
    small_files_min: int
    deleted_percent: float
    bytes_max: int
    vacuum_hours: float
    retries_max: int


class MaintainedTable(msgspec.Struct, frozen=True):
    """A table and its location."""

    table: str
    target: str


class MaintenanceOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The order of one run. ``named``: the tables were asked for one by one, so that no size is too
    large."""

    maintenance_id: str
    pipeline: str
    incarnation: str
    thresholds: Thresholds
    tables: tuple[MaintainedTable, ...]
    named: bool = False
    version: int = written_version(MAINTENANCE_VERSION)
    requires: tuple[str, ...] = written_features()


class Files(msgspec.Struct, frozen=True, omit_defaults=True, rename={"fragmented": "worn"}):
    """A table's newest version, as its log describes it.

    ``small`` files are less than half of what a file should be, and not alone in their partition;
    in a clustered table those that are not clustered yet, of any size, and ``small_bytes`` includes
    all that is rewritten with them. ``fragmented`` ones have more deleted rows than is worth
    keeping. ``rows`` includes the ``deleted`` ones, which deletion vectors mark; ``vectors`` files
    have one.
    """

    files: int = 0
    bytes: int = 0
    small: int = 0
    small_bytes: int = 0
    fragmented: int = 0
    rows: int = 0
    deleted: int = 0
    vectors: int = 0
    vector_bytes: int = 0

    @property
    def deleted_percent(self) -> float:
        return 100 * self.deleted / self.rows if self.rows else 0.0


class MaintenanceOutcome(StrEnum):
    """The outcome of a run for a table."""

    REWRITTEN = "rewritten"
    LEFT = "left"
    """Rewriting would not pay, or is too much; the reason says which."""
    FAILED = "failed"


class TableMaintenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One table of a run: its files ``before`` and ``after``, and why they were rewritten or left.

    ``vacuumed``: files that were removed; None when that was not reached. ``attempts`` of the
    rewrite, of which ``conflicts`` were lost to a merge.
    """

    table: str
    outcome: MaintenanceOutcome
    reason: str
    before: Files | None = None
    after: Files | None = None
    vacuumed: int | None = None
    attempts: int = 0
    conflicts: int = 0
    seconds: float = 0.0
    error: str | None = None
    error_kind: str | None = None
    hint: str | None = None


class MaintenanceReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of a run, table by table; each is independent."""

    maintenance_id: str
    pipeline: str
    tables: tuple[TableMaintenance, ...]
    version: int = written_version(MAINTENANCE_VERSION)
    requires: tuple[str, ...] = written_features()


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to put small files together (``compact``), to write files without deleted rows
    (``purge``), or neither; and why."""

    reason: str
    compact: bool = False
    purge: bool = False

    @property
    def rewrite(self) -> bool:
        return self.compact or self.purge


def decide(files: Files, thresholds: Thresholds, *, named: bool) -> Decision:
    """Decide whether rewriting a table's files pays.

    A purge rewrites every file with a deletion vector: it waits until enough of them are
    fragmented.
    """
    compact = files.small >= thresholds.small_files_min
    wear = files.deleted_percent >= thresholds.deleted_percent
    purge = files.fragmented > 0 and (wear or files.fragmented >= thresholds.small_files_min)
    reasons = [f"{files.small} small files"] if compact else []
    reasons += (
        [f"{files.fragmented} files with {files.deleted_percent:.1f} % of all rows deleted"]
        if purge
        else []
    )
    if not reasons:
        return Decision(
            f"{files.small} small and {files.fragmented} fragmented of {files.files} files do not"
            " pay"
        )
    reason = ", ".join(reasons)
    size = files.small_bytes * compact + files.vector_bytes * purge
    if size > thresholds.bytes_max and not named:
        return Decision(
            f"{reason}, but {size} bytes are more than maintain.bytes_max:"
            " name the table to have it done"
        )
    return Decision(reason, compact, purge)


def decode_order(raw: bytes, at: str = "") -> MaintenanceOrder:
    """Decode an order; CorruptData for bytes that are not one."""
    return _ORDER.read(raw, at)


def decode_maintenance_receipt(raw: bytes, at: str = "") -> MaintenanceReceipt:
    """Decode a receipt; CorruptData for bytes that are not one."""
    return _RECEIPT.read(raw, at)


_ORDER = DocumentReader(
    MaintenanceOrder, version=MAINTENANCE_VERSION, features=frozenset(), name="maintenance order"
)
_RECEIPT = DocumentReader(
    MaintenanceReceipt,
    version=MAINTENANCE_VERSION,
    features=frozenset(),
    name="maintenance receipt",
)
