"""The findings of a look at the source: tables, load, the transactions that a read sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tideline.contract.description import Description
from tideline.contract.open_state import ColumnNumbers
from tideline.contract.schema import TableSchema

NO_SCHEMA = "-"


@dataclass(frozen=True, slots=True)
class CatalogIdentity:
    """A table's identity.

    See `TableFacts` for the fields; ``columns`` is its digest over them, ``schema`` a
    fingerprint, or `NO_SCHEMA`.
    """

    oid: str
    storage: str
    columns: str
    members: str
    membership: str
    schema: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a stored text."""
        return cls(*text.split("/"))

    @property
    def text(self) -> str:
        return "/".join(
            (self.oid, self.storage, self.columns, self.members, self.membership, self.schema)
        )

    @property
    def fingerprint(self) -> str | None:
        """Return the fingerprint of the schema that the catalog showed, if it could be read."""
        return None if self.schema == NO_SCHEMA else self.schema

    def with_columns_of(self, now: CatalogIdentity) -> CatalogIdentity:
        """Adopt columns and schema that are known to have followed since."""
        return replace(self, columns=now.columns, schema=now.schema)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a read has seen: all below ``xmax`` but those in ``running``.

    64-bit ids; the log's ids are their lower 32 bits.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The source's load; None: it does not report it.

    ``replica_lag_s`` is that of the slowest replica (or of the source, where it is one itself),
    ``running_queries`` counts active sessions but ours, ``log_backlog_bytes`` is what the source
    keeps of its log for us, ``log_warning`` says in words that it will not for much longer.
    ``clock_us`` is its clock, µs UTC.
    """

    replica_lag_s: float | None = None
    running_queries: int | None = None
    log_backlog_bytes: int | None = None
    log_warning: str | None = None
    clock_us: int | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A source's catalog entry for one table at one moment.

    ``problem`` and ``hint`` say why it cannot be captured, if so; ``schema`` is None then.
    ``narrowed``: a publication has only a part of it. ``identity`` names the table itself and its
    storage: ``oid`` changes when it is re-created, ``storage`` when it is rewritten or truncated,
    ``columns`` (a digest each, in their order) with any column, ``members`` (a digest) with
    partitions, labels and row types, ``membership`` when the table joins the publication again or
    what that publishes changes (empty: not in it). ``backfilled`` names columns whose old rows got
    a value without row events; ``defaults`` has that value where all of them got the same and it is
    known (as `ColumnStep.default`). ``numbers`` are those of the schema's columns, where the source
    numbers them. ``key_definition`` changes with the key's columns, types or collation, and with
    the table's identity. ``changed_by`` is the id of the transaction (32 bits) that changed the
    table's own entry last, its ``storage`` above all; 0 where the source does not say.
    ``columns_too``: that one, or one after it, changed entries of its columns as well, so that it
    may have recomputed values. ``description`` is no part of the table's identity: only comments,
    and what may not be NULL.
    """

    table: str
    schema: TableSchema | None
    oid: int
    storage: str
    columns: tuple[str, ...]
    members: str
    key_definition: str
    membership: str
    backfilled: tuple[str, ...] = ()
    problem: str | None = None
    hint: str | None = None
    narrowed: bool = False
    numbers: ColumnNumbers | None = None
    defaults: Mapping[str, str] = field(default_factory=dict, hash=False)
    changed_by: int = field(default=0, compare=False)
    columns_too: bool = field(default=False, compare=False)
    description: Description | None = field(default=None, compare=False)

    @property
    def identity(self) -> CatalogIdentity:
        return CatalogIdentity(
            str(self.oid),
            self.storage,
            self.columns_text,
            self.members,
            self.membership,
            self.schema.fingerprint if self.schema else NO_SCHEMA,
        )

    @property
    def catalog(self) -> str:
        """The text form kept in the open state."""
        return self.identity.text

    @property
    def columns_text(self) -> str:
        """The columns, and the highest number that any ever had, where they have numbers."""
        text = columns_text(self.columns)
        return text if self.numbers is None else f"{text}.{self.numbers.last}"


def columns_text(columns: tuple[str, ...]) -> str:
    """Return the number of columns, and a digest over them.

    The first ones of more columns can be compared with it.
    """
    return f"{len(columns)}.{hashlib.sha256(','.join(columns).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class CatalogRound:
    """One look at the whole catalog, between the watermarks C and B that carry ``token``.

    Tokens of a session's rounds ascend, as texts: one that does not is a copy of a watermark that
    has passed. ``snapshot`` was taken after C and before the look. ``at_us``: this machine's clock
    when B was about to be written, µs UTC; B's clock is not believed beyond it, nor at all without
    it.
    """

    token: str
    tables: tuple[TableFacts, ...]
    snapshot: Snapshot
    at_us: int | None = None
