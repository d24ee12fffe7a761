"""Tables of the warehouse with the documents of an aggregate: the order of a run and its receipt.

A run reads the members' tables at versions that stand for one place of the chain, joins them, and
writes the documents that differ from those in the aggregate's table, in one commit. So the table
holds at any time what a join at the source gave at one place of its log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tideline.contract.aggregates import Aggregate
from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.modes import Mode
from tideline.contract.plan import app_id, of_build
from tideline.contract.schema import TableSchema

_VERSION = 1
SHAPE_PROPERTY = "tideline.aggregate"
"""The table property that says by which definition, of which columns, its documents are made."""


class MemberVersion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Version ``version`` of the member's table at ``target``, which has applied all of it up to
    the order's manifest; ``schema`` is the member's there, ``mode`` how the table is kept."""

    target: str
    version: int
    schema: TableSchema
    mode: Mode = Mode.CURRENT


class AggregateTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Brings the table at ``target`` to the documents of ``aggregate`` at manifest ``manifest``.

    ``seq`` and ``digest`` are that manifest's last sequence and its digest, ``through_us`` the
    source's clock there, µs since 1970 UTC. ``members``: by table.
    """

    aggregate: Aggregate
    target: str
    manifest: int
    seq: int
    digest: str
    members: Mapping[str, MemberVersion]
    through_us: int | None = None
    deletion_vectors: bool = True

    @property
    def shape(self) -> str:
        """16 hex digits over the definition and the columns of all members: documents of another
        shape are all made again."""
        return shape_of(self.aggregate, {name: one.schema for name, one in self.members.items()})


class AggregateOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of one run. ``delayed``: aggregates that wait, with the reason. ``current``: those
    of which nothing has changed, with the manifest up to which that holds."""

    order_id: str
    pipeline: str
    incarnation: str
    tables: tuple[AggregateTable, ...]
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    current: Mapping[str, int] = msgspec.field(default_factory=dict)
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()


class AggregateOutcome(StrEnum):
    """The outcome of a run for one aggregate."""

    WRITTEN = "written"
    CURRENT = "current"
    """Its table had the documents of that place already, or of a later one."""
    DELAYED = "delayed"
    """Its members' tables have no version of one place of the chain yet."""
    FAILED = "failed"


class AggregateResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result for one aggregate, whose table then has the documents of ``manifest`` (its last
    sequence: ``seq``). Counts are of documents. ``reason``: why it waits."""

    aggregate: str
    outcome: AggregateOutcome
    target: str = ""
    manifest: int | None = None
    seq: int | None = None
    through_us: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    reason: str | None = None
    error: str | None = None
    error_kind: str | None = None
    hint: str | None = None


class AggregateReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of a run; each is independent of the others."""

    order_id: str
    pipeline: str
    aggregates: tuple[AggregateResult, ...]
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()


def shape_of(aggregate: Aggregate, schemas: Mapping[str, TableSchema]) -> str:
    """Return 16 hex digits over the definition and the columns of all members."""
    found = [f"{name} {schema.fingerprint}" for name, schema in sorted(schemas.items())]
    return hashlib.sha256("\n".join((aggregate.fingerprint, *found)).encode()).hexdigest()[:16]


def aggregate_app(pipeline: str, incarnation: str, aggregate: Aggregate, build: int) -> str:
    """Return the id in its table's commits; each shape that follows another is a ``build``."""
    return of_build(app_id(pipeline, incarnation, aggregate.table, 0), build)


def waiting_results(order: AggregateOrder) -> tuple[AggregateResult, ...]:
    """Return the results of the aggregates for which there is nothing to run."""
    delayed = [
        AggregateResult(name, AggregateOutcome.DELAYED, reason=reason)
        for name, reason in sorted(order.delayed.items())
    ]
    current = [
        AggregateResult(name, AggregateOutcome.CURRENT, manifest=number)
        for name, number in sorted(order.current.items())
    ]
    return (*delayed, *current)


def decode_aggregate_order(raw: bytes, at: str = "") -> AggregateOrder:
    """Decode an order; CorruptData for bytes that are not one."""
    return _ORDER.read(raw, at)


def decode_aggregate_receipt(raw: bytes, at: str = "") -> AggregateReceipt:
    """Decode a receipt; CorruptData for bytes that are not one."""
    return _RECEIPT.read(raw, at)


_ORDER = DocumentReader(
    AggregateOrder, version=_VERSION, features=frozenset(), name="order of aggregates"
)
_RECEIPT = DocumentReader(
    AggregateReceipt, version=_VERSION, features=frozenset(), name="receipt of aggregates"
)
