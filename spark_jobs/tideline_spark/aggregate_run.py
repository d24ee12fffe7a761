"""Brings one aggregate's table to the documents of a place of the chain, in one commit.

Documents that are as they were are not written. Where the definition or a member's columns are
others than those that the table was made by, all of it is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tideline.contract.aggregate_tables import (
    SHAPE_PROPERTY,
    AggregateOrder,
    AggregateOutcome,
    AggregateResult,
    AggregateTable,
    aggregate_app,
)
from tideline.contract.aggregates import nodes
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.part import OVERFLOW, PENDING, SEQ
from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import NO_LAYOUT
from tideline.contract.target_properties import (
    BUILD_PROPERTY,
    build_of_properties,
    owner_of,
    owner_properties,
)
from tideline_spark.attempts import Overtaken, Patience, try_until
from tideline_spark.document_rows import documents
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import RowCounts, TargetSnapshot
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target
from tideline_spark.local_parts import TARGET_BYTES_MAX
from tideline_spark.modes import mode_named
from tideline_spark.schemas import column as col
from tideline_spark.schemas import quote
from tideline_spark.session import SMALL
from tideline_spark.working_columns import GONE

BEFORE_WRITE = "before-write"
AFTER_WRITE = "after-write"
_VIEW = "tideline_documents"
_OLD, _NEW = "_tl_held", "_tl_made"


class AggregateRun:
    """One aggregate of one order, in its own session. ``on_point`` is called with `BEFORE_WRITE`
    and `AFTER_WRITE` around its commit."""

    def __init__(
        self,
        spark: SparkSession,
        order: AggregateOrder,
        table: AggregateTable,
        on_point: Callable[[str], None],
    ) -> None:
        self._order = order
        self._table = table
        self._on_point = on_point
        self._session = spark.newSession()
        self._target = open_target(self._session, table.target)

    def run(self, patience: Patience) -> AggregateResult:
        """Write what differs, and return the result; retries lost races. Raises what else goes
        wrong."""
        doing = f"writing the documents of {self._table.aggregate.name}"
        tried = try_until(self._attempt, patience, doing)
        if tried.error is not None:
            raise tried.error
        assert tried.result is not None
        return tried.result

    def _attempt(self) -> AggregateResult:
        seen = self._target.snapshot()
        self._check_ours(seen)
        build = build_of_properties(seen.properties)
        applied = seen.applied.get(self._app(build))  # The id names the chain, too.
        if seen.properties.get(SHAPE_PROPERTY) != self._table.shape:
            applied = None
        if applied is not None and applied >= self._table.manifest:
            return self._result(AggregateOutcome.CURRENT, applied)
        made = self._documents()
        self._on_point(BEFORE_WRITE)
        if applied is None:
            counts = self._replace(made, build + 1 if seen.exists else build)
        else:
            counts = self._merge(made, build, applied)
        self._on_point(AFTER_WRITE)
        if counts is None:
            raise Overtaken  # Another run was faster: the next look shows what is left to do.
        result = self._result(AggregateOutcome.WRITTEN, self._table.manifest)
        return replace(result, **counts._asdict())

    def _check_ours(self, seen: TargetSnapshot) -> None:
        if not seen.exists:
            return
        pipeline, _, table = owner_of(seen.properties)
        if (pipeline, table) != (self._order.pipeline, self._table.aggregate.table):
            raise Misconfigured(
                f"the table at {self._table.target} is not that of this pipeline's aggregate"
                f" {self._table.aggregate.name}",
                hint="remove or move it, or name another warehouse.url",
            )

    def _app(self, build: int) -> str:
        order = self._order
        return aggregate_app(order.pipeline, order.incarnation, self._table.aggregate, build)

    def _documents(self) -> DataFrame:
        members = self._table.members
        targets = {name: open_target(self._session, one.target) for name, one in members.items()}
        if sum(one.look().stored_bytes() for one in targets.values()) <= TARGET_BYTES_MAX:
            for setting, value in SMALL.items():
                self._session.conf.set(setting, value)
        rows = {name: self._rows(name, target) for name, target in targets.items()}
        schemas = {name: member.schema for name, member in members.items()}
        return documents(self._table.aggregate, rows, schemas)

    def _rows(self, name: str, target: Target) -> DataFrame:
        """Return the member's rows. Raises where a column is not in the warehouse, or a row lacks
        values that are still to be read from the source."""
        member, used = self._table.members[name], self._used(name)
        frame = target.rows(member.version).where(mode_named(member.mode).live())
        held = {*frame.columns}
        missing = [one for one in member.schema.column_names if one in used and one not in held]
        if missing:
            raise Misconfigured(
                f"the warehouse's table of {name} has no column {missing[0]}",
                hint="name the columns that documents show (`columns`), or take the column into"
                f' the table: tables."{name}" in the settings',
            )
        if not frame.where(col(PENDING).isNotNull()).isEmpty():
            raise Unavailable(
                f"rows of {name} lack values that the log did not carry",
                hint="`tideline merge` once the worker has read them again",
            )
        names = [one for one in member.schema.column_names if one in used]
        return frame.select(*(col(one) for one in names), col(OVERFLOW))

    def _used(self, name: str) -> frozenset[str]:
        """Return the columns of the table that documents or their joins need."""
        found: set[str] = set()
        for node in nodes(self._table.aggregate):
            member = node.member
            schema = self._table.members[member.table].schema
            if member.table == name:
                found |= {*member.shown(schema), *schema.key, *member.own}
                found |= {one for child in member.children for one in child.parents}
        return frozenset(found)

    def _replace(self, made: DataFrame, build: int) -> RowCounts | None:
        made.withColumn(SEQ, F.lit(self._table.seq)).createOrReplaceTempView(_VIEW)
        order, aggregate = self._order, self._table.aggregate
        properties = {
            **owner_properties((order.pipeline, order.incarnation, aggregate.table)),
            SHAPE_PROPERTY: self._table.shape,
            BUILD_PROPERTY: str(build),
        }
        version = self._target.replace(
            _VIEW,
            properties,
            self._record(build, 0),
            NO_LAYOUT,
            vectors=self._table.deletion_vectors,
        )
        if version is None:
            return None
        written = next(one for one in self._target.commits(version))
        return RowCounts(inserted=written.rows_written)

    def _merge(self, made: DataFrame, build: int, applied: int) -> RowCounts | None:
        """Bring the documents that are new, others than before, or gone to the table."""
        key = self._table.members[self._table.aggregate.root.table].schema.key
        names = [name for name in made.columns if name not in key]
        old = self._target.rows().select(*made.columns).alias(_OLD)
        same_key = [col(name, of=_OLD) == col(name, of=_NEW) for name in key]
        joined = made.alias(_NEW).join(old, same_key, "full_outer")
        gone = col(key[0], of=_NEW).isNull()
        here = col(key[0], of=_OLD).isNotNull()
        same = [col(name, of=_OLD).eqNullSafe(col(name, of=_NEW)) for name in names]
        as_before = here & ~gone
        for one in same:
            as_before &= one
        joined.where(~as_before).select(
            *(F.coalesce(col(n, of=_NEW), col(n, of=_OLD)).alias(n) for n in key),
            *(col(name, of=_NEW).alias(name) for name in names),
            gone.alias(GONE),
        ).createOrReplaceTempView(_VIEW)
        values = {name: of_source(name) for name in (*key, *names)}
        values[SEQ] = str(self._table.seq)
        rows = RowMerge(
            source=quote(_VIEW),
            on=" AND ".join(f"{of_target(name)} = {of_source(name)}" for name in key),
            matched=(RowClause(of_source(GONE)), RowClause(None, values)),
            inserted=RowClause(f"NOT {of_source(GONE)}", values),
            key=key,
        )
        return self._target.merge(rows, self._record(build, applied))

    def _record(self, build: int, applied: int) -> CommitMetadata:
        order, table = self._order, self._table
        return CommitMetadata(
            app_id=self._app(build),
            pipeline=order.pipeline,
            incarnation=order.incarnation,
            plan_id=order.order_id,
            from_manifest=applied,
            to_manifest=table.manifest,
            seq=table.seq,
            complete_through_us=table.through_us,
            digest=table.digest,
        )

    def _result(self, outcome: AggregateOutcome, manifest: int) -> AggregateResult:
        table = self._table
        at_place = manifest == table.manifest
        return AggregateResult(
            table.aggregate.name,
            outcome,
            table.target,
            manifest=manifest,
            seq=table.seq if at_place else None,
            through_us=table.through_us if at_place else None,
        )
