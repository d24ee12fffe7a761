"""The tables whose rows can come through BigQuery's change stream.

https://cloud.google.com/bigquery/docs/change-data-capture#limitations
"""

from __future__ import annotations

from tideline.contract.modes import Mode
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind

KEY_COLUMNS_MAX = 16
"""The columns that a primary key of BigQuery's can have."""
COLUMNS_MAX = 2_000
_OWN_COLUMNS = 5
"""Ours in every streamed table."""
_NO_KEYS = frozenset({Kind.FLOAT32, Kind.FLOAT64, Kind.BINARY})
"""Types that no primary key of BigQuery's has."""
_INSTEAD = 'leave out writes = "stream"'


def stream_problem(schema: TableSchema, mode: Mode) -> str | None:
    """Return why no table of ``schema``, kept in ``mode``, can be written by streams, and what to
    do; None if one can.

    A stream replaces or deletes the whole row of a key, and nothing else.
    """
    if mode is not Mode.CURRENT:
        return f'writes = "stream" is for mode "current", not {mode.value}: {_INSTEAD}'
    if not schema.key:
        return f'writes = "stream" needs a key: name its columns (key), or {_INSTEAD}'
    if len(schema.key) > KEY_COLUMNS_MAX:
        return (
            f'writes = "stream" takes a key of at most {KEY_COLUMNS_MAX} columns, which has'
            f" {len(schema.key)} here: {_INSTEAD}"
        )
    if len(schema.columns) + _OWN_COLUMNS > COLUMNS_MAX:
        most = COLUMNS_MAX - _OWN_COLUMNS
        return f'writes = "stream" takes at most {most} columns: {_INSTEAD}'
    for name in schema.key:
        kind = schema.column(name).logical.kind
        if kind in _NO_KEYS:
            return (
                f'writes = "stream" takes no key of {kind.value}, as its column {name!r} is:'
                f" {_INSTEAD}"
            )
    return None
