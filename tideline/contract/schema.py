"""A table's schema, its fingerprint, and the differences between two versions of it."""

from __future__ import annotations

import functools
import hashlib
import re
from enum import StrEnum

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.types import LogicalType, parse_type, widens

RESERVED_PREFIX = "_tl_"
"""The prefix of our own column names, in parts and in warehouse tables."""
SPARKS_OWN = "_metadata"
"""Spark's name for file metadata: it cannot merge into a table with such a column."""

_PLAIN_NAME = re.compile(r'[^."\s*?\[\]]+')
"""A name without quotes. Shell wildcards are quoted too, so that a table's text as a pattern means
that table only."""
_TABLE_NAME = re.compile(r'((?:[^."\s]+)|(?:"(?:[^"]|"")+"))\.((?:[^."\s]+)|(?:"(?:[^"]|"")+"))')


class TableId(msgspec.Struct, frozen=True, order=True):
    """A table by schema (or database) and name. Documents hold its text form, ``str(table)``."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.name)}"


def parse_table(text: str) -> TableId:
    """Parse the table that ``text`` (``schema.table``, either part may be ``"quoted"``) names."""
    match = _TABLE_NAME.fullmatch(text)
    if match is None:
        raise CorruptData(f"not a table name of the form schema.table: {text!r}")
    return TableId(_unquoted(match[1]), _unquoted(match[2]))


class Column(msgspec.Struct, frozen=True):
    """A column: ``type`` is a logical type's text, ``source_type`` the source's own text."""

    name: str
    type: str
    source_type: str
    nullable: bool = True

    @property
    def logical(self) -> LogicalType:
        return parse_type(self.type)


class TableSchema(msgspec.Struct, frozen=True):
    """The columns of a table in the source's order, and the names of its key columns.

    ``key`` is in key order. It is empty for a table whose rows only their own values distinguish,
    which is captured only where the settings say so.
    """

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the canonical JSON; equal schemas have equal fingerprints."""
        return _fingerprint(self)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise CorruptData(f"column {name!r} is not in the schema of {self.table}")


def is_ours(column: str) -> bool:
    """Return whether a source's column has a name that is ours; targets' names know no case."""
    return column.lower().startswith(RESERVED_PREFIX)


def is_reserved(column: str) -> bool:
    """Return whether a source's column has a name that no target can hold: ours, or Spark's."""
    return is_ours(column) or column.lower() == SPARKS_OWN


def encode_schema(schema: TableSchema) -> bytes:
    return msgspec.json.encode(schema)


def decode_schema(raw: bytes) -> TableSchema:
    """Decode a schema; CorruptData for bytes that are not one."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise CorruptData("not a schema") from None


# Made on import, like `DocumentReader`.
_DECODER = msgspec.json.Decoder(TableSchema)


class ChangeKind(StrEnum):
    """The kind of difference of one column, or of the key, between two schemas."""

    ADD = "add"
    DROP = "drop"
    WIDEN = "widen"
    RETYPE = "retype"
    SOURCE_TYPE = "source_type"
    NULLABLE = "nullable"
    KEY = "key"
    ORDER = "order"


class SchemaChange(msgspec.Struct, frozen=True):
    """One difference. ``column`` is empty for ``key`` and ``order``."""

    kind: ChangeKind
    column: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        sides = " → ".join(side for side in (self.before, self.after) if side)
        return f"{self.kind.value} {self.column} {sides}".replace("  ", " ").strip()


class Verdict(StrEnum):
    """The effect of a schema change on rows that are already in the warehouse."""

    NEUTRAL = "neutral"
    """Rows keep their values: the target takes the step and nothing else happens."""
    DOUBTFUL = "unproven"
    """Rows may have changed without row events: a delete-complete dump is needed."""
    INCOMPATIBLE = "incompatible"
    """The target cannot hold both: merges of the table stop until it is dumped again."""


def difference(old: TableSchema, new: TableSchema) -> tuple[SchemaChange, ...]:
    """Return every difference from ``old`` to ``new``, in the order of the columns; () when equal.

    A rename cannot be distinguished from a drop and an add, and is reported as these.
    """
    before = {column.name: column for column in old.columns}
    after = {column.name: column for column in new.columns}
    changes = [_drop(column) for column in old.columns if column.name not in after]
    for column in new.columns:
        if column.name not in before:
            changes.append(SchemaChange(ChangeKind.ADD, column.name, after=column.source_type))
        else:
            changes.extend(_column_changes(before[column.name], column))
    if old.key != new.key:
        changes.append(SchemaChange(ChangeKind.KEY, "", ", ".join(old.key), ", ".join(new.key)))
    shared = [name for name in old.column_names if name in after]
    if shared != [name for name in new.column_names if name in before]:
        changes.append(SchemaChange(ChangeKind.ORDER))
    return tuple(changes)


def verdict(changes: tuple[SchemaChange, ...], new: TableSchema) -> Verdict:
    """Return the gravest verdict over ``changes``; ``new`` is the schema they lead to.

    A nullable column that is added without a default is neutral: rows that exist hold NULL at the
    source too. Whether it has a default is not in a schema; a caller who sees one in the catalog
    raises the verdict.
    """
    worst = Verdict.NEUTRAL
    for change in changes:
        if change.kind in (ChangeKind.RETYPE, ChangeKind.KEY):
            return Verdict.INCOMPATIBLE
        if change.kind in (ChangeKind.DROP, ChangeKind.WIDEN, ChangeKind.SOURCE_TYPE):
            worst = Verdict.DOUBTFUL
        if change.kind is ChangeKind.ADD and not new.column(change.column).nullable:
            worst = Verdict.DOUBTFUL
    return worst


@functools.lru_cache(maxsize=4096)
def _fingerprint(schema: TableSchema) -> str:
    return hashlib.sha256(msgspec.json.encode(schema)).hexdigest()[:16]


def _drop(column: Column) -> SchemaChange:
    return SchemaChange(ChangeKind.DROP, column.name, before=column.source_type)


def _column_changes(old: Column, new: Column) -> list[SchemaChange]:
    changes = []
    sides = (old.source_type, new.source_type)
    if old.type != new.type:
        kind = ChangeKind.WIDEN if widens(old.logical, new.logical) else ChangeKind.RETYPE
        changes.append(SchemaChange(kind, new.name, *sides))
    elif old.source_type != new.source_type:
        changes.append(SchemaChange(ChangeKind.SOURCE_TYPE, new.name, *sides))
    if old.nullable != new.nullable:
        words = {True: "null", False: "not null"}
        changes.append(
            SchemaChange(ChangeKind.NULLABLE, new.name, words[old.nullable], words[new.nullable])
        )
    return changes


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text
