"""Logical messages of a source's log, as the chain holds them.

They are in parts of their own, which a manifest names apart from those of tables
(`Manifest.logged_messages`): warehouses know nothing of them, and publishers read them. A part has
the messages of one prefix: `LOG_COLUMNS`, and `CONTENT`. Its ``table`` is the prefix, in a schema
that is not one of the source's. The content of a message that was too large is NULL.
"""

from __future__ import annotations

import functools

from tideline.contract.schema import RESERVED_PREFIX, Column, TableId, TableSchema, parse_table
from tideline.contract.types import Kind

CONTENT = RESERVED_PREFIX + "content"
"""binary: the content of a message."""
FEATURE = "logged-messages"
"""The feature that a manifest with messages requires: readers that do not know it would take their
parts for garbage."""
_SCHEMA = RESERVED_PREFIX + "messages"


@functools.lru_cache(maxsize=100)
def message_schema(prefix: str) -> TableSchema:
    """Return the schema that the messages of ``prefix`` have in parts. No table can have it: the
    column's name is ours."""
    column = Column(CONTENT, Kind.BINARY.value, "bytea", nullable=True)
    return TableSchema(str(TableId(_SCHEMA, prefix)), (column,), ())


def is_message_table(table: str, fingerprint: str) -> bool:
    """Return whether a part of ``table``, with the schema of that fingerprint, has messages."""
    name = parse_table(table)
    return name.schema == _SCHEMA and message_schema(name.name).fingerprint == fingerprint
