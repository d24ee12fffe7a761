"""The status of a table: one type for what is read of it, the printed text and the JSON document.

`applied_state` fills in what the table's target shows. `tideline status` completes it by the end of
the chain: the captured position, the source's reasons, how late the table is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tideline.contract.modes import Mode
from tideline.contract.table_layout import TableLayout
from tideline.contract.timeliness import Compliance, Lateness
from tideline.planner.verified import VerifiedThrough


class TableStage(StrEnum):
    """The stage of a table; a running dump comes first, then the reason for a due one."""

    ACTIVE = "active"
    DUMPING = "dumping"
    QUARANTINED = "quarantined"
    NEEDS_RESNAPSHOT = "needs-resnapshot"
    SCHEMA_BLOCKED = "schema-blocked"
    TARGET_BLOCKED = "target-blocked"
    """Captured, but no merge can change its target, which has strayed or is not ours."""


class Through(msgspec.Struct, frozen=True):
    """A position: a manifest, a sequence, and the source's clock, µs since 1970 UTC.

    ``source_time_us`` is the clock in the newest heartbeat with nothing left out before it: all
    changes committed by then are contained.
    """

    seq: int
    manifest_number: int | None = None
    source_time_us: int | None = None


class EarlierRows(StrEnum):
    """The state of the rows that a table had before its changes were captured."""

    NONE = "none"
    """The log has the table's creation: there were none."""
    DUMPED = "dumped"
    MISSING = "missing"
    """No dump of the whole table has ended."""


class Beginning(msgspec.Struct, frozen=True):
    """The first sequence of a table's captured changes, the source's clock there, µs since 1970
    UTC (None: unknown), and the state of earlier rows."""

    seq: int
    source_time_us: int | None
    earlier_rows: EarlierRows


class TableStatus(msgspec.Struct, frozen=True):
    """One table. ``since_seq``, ``reason`` and ``hint`` belong to every state but ``active``.

    ``merged`` is None when nothing of it was merged yet; when ``up_to_date``, so that nothing
    captured waits to be merged, it moves with the chain. ``lag_s``: the age of the warehouse's
    table, by this machine's clock. ``complete_through_us``: the source's clock up to which the
    warehouse's table lacks nothing, None while it is in doubt. ``late``: why it is further behind
    than the objective allows, None when it is not. ``slo``: how far the objective was met.
    ``verified``: up to where `tideline verify` last found every row equal, None before it did.
    ``mode``: the warehouse table's mode, None when unknown; ``mode_wanted``: the mode in the
    settings where it differs, which `tideline rebuild` switches to.
    ``deletion_vectors``: whether readers of the table must support them; ``…_wanted`` likewise.
    ``target``: the address of the table's directory, as every reader of its format names it.
    ``captured_from``: where its capture began, None when the chain lacks it.
    ``layout``: how its files are laid out; ``layout_wanted``: the settings' layout where it
    differs. ``unread_by``: by reader that the settings name, the features of the table that it
    cannot read. ``format``: its table format; ``format_wanted``: the settings' format where it
    differs, to which `tideline rebuild --to` moves it. ``former``: the address of the table that it
    was before it was moved, while that is there; nothing is merged into it any more.
    """

    table: str
    state: TableStage
    captured: Through
    merged: Through | None = None
    up_to_date: bool = False
    lag_s: float | None = None
    since_seq: int | None = None
    reason: str | None = None
    hint: str | None = None
    complete_through_us: int | None = None
    late: Lateness | None = None
    slo: Compliance | None = None
    pending: int | None = 0
    verified: VerifiedThrough | None = None
    mode: Mode | None = None
    mode_wanted: Mode | None = None
    deletion_vectors: bool | None = None
    deletion_vectors_wanted: bool | None = None
    target: str | None = None
    captured_from: Beginning | None = None
    layout: TableLayout | None = None
    layout_wanted: TableLayout | None = None
    unread_by: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    format: str | None = None
    format_wanted: str | None = None
    former: str | None = None
