"""What happens to the columns of a table, step by step: what a schema event says beyond schemas.

Two schemas do not tell a rename from a drop and an add, nor what old rows hold in a new column. The
worker does, where the source lets it know; merges carry each step out at its sequence.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StepKind(StrEnum):
    """How a column changed, or (``key``) which columns are the key."""

    ADD = "add"
    DROP = "drop"
    RENAME = "rename"
    WIDEN = "widen"
    RETYPE = "retype"
    KEY = "key"


class ColumnStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. ``column`` is its name afterwards (of a dropped one: before; of ``key``: empty).

    ``was`` is the old name, of a rename. ``type`` is the logical type afterwards, of ``add``,
    ``widen`` and ``retype``. ``default`` is what rows that existed hold in an added column, None
    for NULL: digits for numbers, ISO 8601 (a space between date and time) for dates and
    timestamps, ``true`` or ``false``, hex digits for binary, the text itself for strings.
    """

    kind: StepKind
    column: str = ""
    was: str = ""
    type: str = ""
    default: str | None = None
