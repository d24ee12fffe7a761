"""Moves: a table becomes one of another format, at another url, and the old one is left.

The new table begins as a copy, with the rows and the number of one version of the old one, in one
commit. It follows the chain until it holds what the old one holds; both are compared; and then one
commit of the *old* table makes the new one the target. So what the two tables say of each other
decides, in every process alike:

- `MOVING_PROPERTY` on the new table: it is not in use, unless the old one names it;
- `MOVED_PROPERTY` on the old table: merges of it are refused, and go to the table named.

`FORMER_PROPERTY` stays on the new table, for people: where it came from.
"""

from __future__ import annotations

import msgspec

from tideline.contract.modes import Mode
from tideline.contract.schema import TableSchema
from tideline.contract.table_layout import NO_LAYOUT, TableLayout

MOVING_PROPERTY = "tideline.moving"
MOVED_PROPERTY = "tideline.moved_to"
FORMER_PROPERTY = "tideline.moved_from"
MOVES = "moves"
"""The feature that a reader of plans and of records of rebuilds must know where there is a move."""


class PlannedMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the move of ``table`` from the table at ``source`` to the one at ``target``.

    ``copy``: make the target, from the newest version of the source, whatever that has applied.
    Otherwise the target holds a copy and has followed: both have applied ``to_manifest``, or
    nothing of the table lies between; compare them, and have the target take over, even with
    ``accept_differences``. A target that has taken over is only rid of its mark.

    ``to_seq`` and ``to_digest`` are the manifest's last sequence and its digest; of a copy, the
    manifest is what the planner found applied. ``schema`` is the table's there, ``columns_seq``
    that of the schema steps that the source had taken. ``live_app_id`` and ``live_build`` are the
    source's, ``app_id`` and ``build`` the target's; ``mode`` is of both. ``layout`` and
    ``deletion_vectors`` are what the target is made with. ``superseded``: shadow tables that
    abandoned rebuilds have left.
    """

    table: str
    source: str
    target: str
    schema: TableSchema
    to_manifest: int
    to_seq: int
    app_id: str
    live_app_id: str
    build: int
    live_build: int = 0
    mode: Mode = Mode.CURRENT
    copy: bool = False
    columns_seq: int = 0
    layout: TableLayout = NO_LAYOUT
    deletion_vectors: bool = True
    superseded: tuple[str, ...] = ()
    accept_differences: bool = False
    to_digest: str = ""
