"""The source's description of a table, besides its columns' types: document (g), and the target's.

Comments and NOT NULL are not in a schema: the log does not carry them, so no row can be said to
have been written under one. They are as the catalog has them now, and a change of them is no schema
event: it costs no dump, splits no segment and begins no generation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.schema import TableSchema

DESCRIPTION_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands."""
DESCRIPTION_PROPERTY = "tideline.description"
"""The property in which a target records how much of this it has (`Described`)."""
COMMENT_MAX = 4_000
"""Maximum number of characters of a comment that are kept."""


class Description(msgspec.Struct, frozen=True, omit_defaults=True):
    """The table's ``comment``, those of its columns by name, and the columns that the catalog
    declares NOT NULL where a schema does not say so (PostgreSQL)."""

    table: str
    comment: str = ""
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    not_null: tuple[str, ...] = ()
    version: int = written_version(DESCRIPTION_VERSION)
    requires: tuple[str, ...] = written_features()

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the canonical JSON; equal descriptions have equal ones."""
        return hashlib.sha256(encode_description(self)).hexdigest()[:16]


def describe(
    table: str, comment: str | None, columns: Mapping[str, str | None], not_null: tuple[str, ...]
) -> Description:
    """Make the description of a table from its catalog; no comment and an empty one are the
    same."""
    return Description(
        table,
        _cut(comment or ""),
        {name: _cut(text) for name, text in sorted(columns.items()) if text},
        tuple(sorted(not_null)),
    )


def encode_description(description: Description) -> bytes:
    return msgspec.json.encode(description, order="deterministic")


def decode_description(raw: bytes, at: str = "") -> Description:
    """Decode a description; CorruptData for bytes that are not one, or need a newer reader."""
    return _READER.read(raw, at)


class PlannedDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description that the target of ``table``, of rebuild ``build``, is to have.

    ``fingerprint`` stands for it, and for the columns that it was made for. ``columns`` are
    comments by column, ``not_null`` the columns that the source says hold no NULL. ``more``: the
    plan does not bring all that waits, so that rows may still be older than this description.
    """

    table: str
    target: str
    fingerprint: str
    comment: str = ""
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    not_null: tuple[str, ...] = ()
    build: int = 0
    more: bool = False


def planned_description(
    found: Description, schema: TableSchema, target: str, build: int
) -> PlannedDescription:
    """Return the description that a target with the columns of ``schema`` is to have."""
    names = schema.column_names
    firm = {column.name for column in schema.columns if not column.nullable} | set(found.not_null)
    return PlannedDescription(
        table=found.table,
        target=target,
        fingerprint=_both(found.fingerprint, schema.fingerprint),
        comment=found.comment,
        columns={name: found.columns[name] for name in names if name in found.columns},
        not_null=tuple(name for name in names if name in firm),
        build=build,
    )


def is_described(described: str | None, description: str, schema: str) -> bool:
    """Return whether a target with ``described`` in `DESCRIPTION_PROPERTY` is as these fingerprints
    require."""
    return Described.parse(described).fingerprint == _both(description, schema)


class Described(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of its description that a target has: which one, the columns (``""``: the table
    itself) whose comment is the source's, and ``not_null``, all that the source declares NOT NULL,
    also where the target's own columns do not."""

    fingerprint: str = ""
    comments: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Described:
        """Parse the property; empty where it is not there, or not ours."""
        try:
            return cls() if text is None else _DESCRIBED.decode(text)
        except msgspec.MsgspecError:
            return cls()

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def _cut(text: str) -> str:
    return text if len(text) <= COMMENT_MAX else text[: COMMENT_MAX - 1] + "…"


def _both(description: str, schema: str) -> str:
    return f"{description}/{schema}"


_READER = DocumentReader(
    Description, version=DESCRIPTION_VERSION, features=FEATURES, name="description"
)
_DESCRIBED = msgspec.json.Decoder(Described)
