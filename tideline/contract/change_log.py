"""The columns that a table kept as a change log (``append``) has in addition to the source's
own."""

from __future__ import annotations

from tideline.contract.schema import TableSchema

BATCH = "_batch_id"
SEQUENCE = "_sequence_num"
OPERATION = "_operation"
BEFORE_PREFIX = "_before_"


def clash(schema: TableSchema) -> str | None:
    """Return a column of the source that has the name of one of these; None without one."""
    own = {BATCH, SEQUENCE, OPERATION}
    own |= {(BEFORE_PREFIX + name).lower() for name in schema.column_names}
    return next((name for name in schema.column_names if name.lower() in own), None)
