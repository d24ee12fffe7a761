"""Compares one table of a verification plan with one version of its target.

Invariants: a difference is reported only for keys that nothing touched between the chunk and the
target's applied position; "equal" only when every part matched its manifest; no value is reported.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tideline.contract.errors import CorruptData, Misconfigured, TidelineError
from tideline.contract.modes import Mode
from tideline.contract.part import PENDING, SEQ
from tideline.contract.verification import (
    CHANGED_MAX,
    KEYS_MAX,
    DifferentKey,
    Scope,
    TableComparison,
    TableResult,
    VerificationOutcome,
    VerifyPlan,
)
from tideline_spark.failures import unexpected
from tideline_spark.formats.registry import open_target
from tideline_spark.modes import mode_of
from tideline_spark.pending import Keys, key_text
from tideline_spark.ranges import spans_of, within
from tideline_spark.schemas import column as col
from tideline_spark.verification.checked_target import modes_of
from tideline_spark.verification.comparison import (
    COLUMNS,
    DIFFERENT,
    EXTRA,
    KIND,
    MISSING,
    PAIR,
    SEQUENCE,
    WAITS,
    Compared,
    changed_keys,
    compare,
    twins,
)
from tideline_spark.verification.verification_parts import (
    SourceRows,
    as_planned,
    read_chunks,
    read_touched,
)

_COUNTED = (MISSING, EXTRA, DIFFERENT, SEQUENCE)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The compared rows: the chunks' rows, the target's live rows, and keys touched in between."""

    source: SourceRows
    target: DataFrame
    touched: DataFrame | None
    wanted: Compared
    asked_only: bool


@dataclass(frozen=True, slots=True)
class _SetAside:
    """Keys set aside, and the number of them that the source's rows have."""

    count: int = 0
    present: int = 0
    keys: Keys = ()


class ComparisonRun:
    """One table of one plan, in its own session."""

    def __init__(self, spark: SparkSession, plan: VerifyPlan, comparison: TableComparison) -> None:
        self._plan = plan
        self._comparison = comparison
        self._session = spark.newSession()
        self._target = open_target(self._session, comparison.target)

    def run(self) -> TableResult:
        """Compare and return the result; an error means that the table could not be compared."""
        began = time.monotonic()
        try:
            result = self._compare()
        except Exception as error:  # noqa: BLE001  the other tables continue
            result = self._unhealed(unexpected(error, f"verifying {self._comparison.table}"))
        return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 3))

    def _compare(self) -> TableResult:
        sample = self._comparison.scope is Scope.SAMPLE
        if sample and all(chunk.skipped for chunk in self._comparison.chunks):
            raise Misconfigured(
                f"the sample has none of the {len(self._comparison.chunks)} chunks of"
                f" {self._comparison.table}: nothing was compared",
                hint="take a larger sample, or smaller chunks",
            )
        mode, apart = modes_of(self._target, self._comparison)
        sides = self._sides(mode, apart.away)
        compared = compare(sides.source.frame, sides.target, sides.touched, sides.wanted)
        counts = compared.agg(
            *(F.count(F.when(col(KIND) == kind, 1)).alias(kind) for kind in _COUNTED),
            F.count(F.when(col(PAIR), 1)).alias(PAIR),
            F.count(F.when(col(WAITS), 1)).alias(WAITS),
        ).first()
        found: Mapping[str, int] = {} if counts is None else counts.asDict()
        changing = self._changing(sides)
        nothing = not (found[PAIR] or found[MISSING] or found[EXTRA] or changing.count)
        if nothing and self._comparison.scope is Scope.RANGE:
            raise Misconfigured(
                f"the range of {self._comparison.table} has no row, neither at the source nor in"
                " the warehouse: there is nothing to compare",
                hint="are its ends the right way round?",
            )
        compared_rows = sides.source.present - changing.present
        doubled = found[PAIR] + found[MISSING] != compared_rows
        differing = sum(found[kind] for kind in _COUNTED)
        keys, columns = self._listed(compared) if differing else ((), {})
        twice: Keys = ()
        if doubled:
            twice = self._keys_of(self._twins(sides))
            if not twice:
                raise CorruptData(
                    f"verification parts of {self._comparison.table} have a key in several rows",
                    hint="verify the table again: its rows are read again",
                )
            keys = (*keys, *(DifferentKey(key, "duplicate") for key in twice))
        result = VerificationOutcome.CHANGING if changing.count else VerificationOutcome.EQUAL
        return self._result(
            VerificationOutcome.DIFFERS if differing or twice else result,
            rows=compared_rows,
            missing=found[MISSING],
            extra=found[EXTRA],
            different=found[DIFFERENT],
            sequence=found[SEQUENCE],
            duplicates=len(twice),
            columns=columns,
            keys=keys[:KEYS_MAX],
            changing=changing.count,
            changed_keys=changing.keys,
            pending=found[WAITS],
            extra_sought=sides.wanted.both or self._comparison.scope is Scope.KEYS,
            uncompared=tuple(
                name
                for name in self._comparison.schema.column_names
                if name not in sides.wanted.columns
            ),
        )

    def _sides(self, mode: Mode, away: Sequence[str]) -> _Sides:
        comparison = self._comparison
        source = read_chunks(self._session, self._plan.store_url, comparison)
        touched = read_touched(self._session, self._plan.store_url, comparison)
        live = mode_of(as_planned(comparison, mode)).live()
        target = self._target.rows(comparison.target_version).where(live)
        held = set(target.columns)
        lacking = [name for name in comparison.schema.column_names if name not in held]
        wrong = [name for name in lacking if name not in away]
        wrong += [name for name in (SEQ, PENDING) if name not in held]
        if wrong:
            raise Misconfigured(
                f"the target of {comparison.table} lacks columns: {', '.join(wrong)}",
                hint="someone dropped them there: remove the table to have it rebuilt",
            )
        spans = spans_of(self._session, comparison)
        if spans is not None:
            target = within(target, comparison.schema, spans)
            touched = None if touched is None else within(touched, comparison.schema, spans)
        wanted = Compared(
            comparison.schema,
            tuple(name for name in comparison.schema.column_names if name in held),
            comparison.applied_seq,
            comparison.low_seq,
            both=spans is not None,
        )
        if comparison.scope is Scope.KEYS:
            asked = source.frame.select(*(col(name) for name in comparison.schema.key)).distinct()
            target = target.join(F.broadcast(asked), list(comparison.schema.key), "left_semi")
        asked_only = spans is None and comparison.scope is not Scope.RANGE
        return _Sides(source, target, touched, wanted, asked_only)

    def _changing(self, sides: _Sides) -> _SetAside:
        if sides.touched is None:
            return _SetAside()
        found = changed_keys(
            sides.source.frame, sides.touched, sides.wanted, asked_only=sides.asked_only
        ).persist()
        try:
            counts = found.agg(
                F.count(F.lit(1)).alias("all"), F.count(F.when(col(PAIR), 1)).alias("present")
            ).first()
            count, present = (0, 0) if counts is None else (counts["all"], counts["present"])
            keys = self._keys_of(found, CHANGED_MAX) if 0 < count <= CHANGED_MAX else ()
            return _SetAside(count, present, keys)
        finally:
            found.unpersist()

    def _twins(self, sides: _Sides) -> DataFrame:
        names = list(self._comparison.schema.key)
        keys = sides.source.frame.select(*(col(name) for name in names))
        return twins(sides.target, names).join(keys, names, "left_semi")

    def _listed(self, compared: DataFrame) -> tuple[tuple[DifferentKey, ...], dict[str, int]]:
        schema = self._comparison.schema
        differing = compared.where(col(KIND).isNotNull())
        texts = [key_text(schema, name).alias(f"key{at}") for at, name in enumerate(schema.key)]
        rows = differing.select(*texts, col(KIND), col(COLUMNS)).limit(KEYS_MAX).collect()
        keys = tuple(
            DifferentKey(
                tuple("" if row[at] is None else row[at] for at in range(len(texts))),
                row[KIND],
                tuple(row[COLUMNS] or ()),
            )
            for row in rows
        )
        counted = (
            differing.select(F.explode(col(COLUMNS)).alias("name")).groupBy("name").count()
        ).collect()
        return keys, {row["name"]: row["count"] for row in counted}

    def _keys_of(self, frame: DataFrame, most: int = KEYS_MAX) -> Keys:
        schema = self._comparison.schema
        texts = [key_text(schema, name).alias(f"key{at}") for at, name in enumerate(schema.key)]
        return tuple(tuple(row) for row in frame.select(*texts).limit(most).collect())

    def _unhealed(self, error: TidelineError) -> TableResult:
        reason = f"{type(error).__name__}: {error.message}"
        return self._result(VerificationOutcome.NOT_COMPARED, reason=reason, hint=error.hint)

    def _result(self, result: VerificationOutcome, **found: object) -> TableResult:
        comparison = self._comparison
        about = TableResult(
            table=comparison.table,
            outcome=result,
            seq=comparison.applied_seq,
            manifest_number=comparison.applied,
            source_time_us=comparison.source_time_us,
            target_version=comparison.target_version,
            app_id=comparison.app_id,
            scope=comparison.scope,
            sample_percent=comparison.sample_percent,
            key_range=comparison.key_range,
            doubts=comparison.doubts,
        )
        return msgspec.structs.replace(about, **found)
