"""The four jobs as the commands and the DAGs run them, each of which may be run again.

They share one Spark application. What is written without Spark (plans, records, receipts) is
written under ``still``; ``on_point`` is called at every named point, by the thread that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tests.faults.every_mode import NOW, EveryMode
from tideline.contract import layout
from tideline.contract.errors import Unavailable
from tideline.contract.maintenance import VACUUM_HOURS_MIN, MaintenanceReceipt
from tideline.contract.manifest import VerificationChunk, digest
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan, app_id
from tideline.contract.receipt import Outcome, Receipt
from tideline.contract.schema import parse_table
from tideline.contract.verification import TableComparison, TableResult, VerifyPlan
from tideline.planner import begin_rebuild, next_step, plan_merge
from tideline.planner.maintaining import order_maintenance
from tideline.planner.runs import store_receipt
from tideline.planner.targets import target_of
from tideline.planner.verified import store_verification
from tideline.store.objects import open_store
from tideline_capture.segments import verification_part_schema, write_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEPS_MAX = 50


def nowhere(point: str) -> None:
    """Nobody waits at a point."""


@dataclass
class Jobs:
    """The jobs on ``tables``."""

    spark: SparkSession
    tables: EveryMode
    on_point: Callable[[str], None] = nowhere
    still: AbstractContextManager[Any] = field(default_factory=nullcontext)
    vacuum_hours: float = VACUUM_HOURS_MIN

    def merge(self, plan_id: str, *names: str) -> Receipt:
        """Plan, or take the plan that is there, and run it."""
        settings = self.tables.history.settings
        with self.still:
            plan = plan_merge(settings, plan_id=plan_id, tables=names or None)
        self.on_point("planned")
        return self.run(plan)

    def run(self, plan: Plan) -> Receipt:
        from tideline_spark.merge import run_plan

        receipt = run_plan(self.spark, plan, on_point=self.on_point)
        self.on_point("run")
        with self.still:
            store_receipt(self.tables.history.settings, receipt)
        self.on_point("recorded")
        return receipt

    def rebuild(self, table: str, mode: Mode) -> None:
        """Step after step to the end. A step that a race has overtaken is followed by the next, or
        is Unavailable where it says so."""
        settings = self.tables.history.settings
        with self.still:
            record = begin_rebuild(settings, table, mode=mode)
        self.on_point("begun")
        for _ in range(_STEPS_MAX):
            with self.still:
                plan = next_step(settings, record)
            if plan is None:
                return
            self.on_point("planned")
            assert not plan.delayed, plan.delayed
            receipt = self.run(plan)
            failed = [one for one in receipt.tables if one.outcome is Outcome.FAILED]
            if failed and failed[0].error_kind == Unavailable.__name__:
                raise Unavailable(failed[0].error or "", hint=failed[0].hint or "")
            assert not failed, failed
        raise AssertionError("the rebuild does not end")

    def maintain(self, name: str, *names: str) -> MaintenanceReceipt:
        """Every table with two small files or more is rewritten; what is old and stray goes."""
        from tideline_spark.maintain import maintain

        settings = self.tables.history.settings
        with self.still:
            order = order_maintenance(settings, maintenance_id=name, tables=names or None)
        thresholds = replace(order.thresholds, small_files_min=2, vacuum_hours=self.vacuum_hours)
        self.on_point("ordered")
        receipt = maintain(self.spark, replace(order, thresholds=thresholds))
        self.on_point("run")
        with self.still:
            key = layout.maintenance_receipt_key(settings.pipeline, name)
            open_store(settings.store).put(key, msgspec.json.encode(receipt))
        return receipt

    def verify(self, plan: VerifyPlan) -> TableResult:
        """Compare, and keep the result."""
        from tideline_spark.verify import run_verification

        result = run_verification(self.spark, plan)
        self.on_point("compared")
        with self.still:
            store_verification(self.tables.history.settings, result)
        self.on_point("stored")
        (table,) = result.tables
        return table


def verify_plan(tables: EveryMode, name: str) -> VerifyPlan:
    """Compares `NOW`, which must be merged, with what its source holds, read as one chunk."""
    history = tables.history
    settings, schema = history.settings, history.schemas[NOW]
    entry = history.chain.tail()
    assert entry is not None
    tail, state = entry.manifest, history.chain.open_state(entry).tables[NOW]
    target = target_of(settings, tail, NOW, state)
    assert target.applied is not None
    columns = [one.name for one in schema.columns]
    rows = sorted(source_rows(tables, columns), key=lambda row: int(row["id"]))
    marked = [{"_tl_low": tail.last_seq, "_tl_op": "r", **row} for row in rows]
    fields = verification_part_schema(schema)
    data = write_part(pa.Table.from_pylist(marked, schema=fields))
    key = layout.verification_part_key(
        settings.pipeline, tail.manifest_number, parse_table(NOW), schema.fingerprint, name
    )
    open_store(settings.store).put(key, data)
    chunk = VerificationChunk(
        name, NOW, schema.fingerprint, 0, tail.last_seq, tail.last_seq, key, len(rows), len(data),
        digest(data), None, (str(rows[-1]["id"]),), complete=True,
    )  # fmt: skip
    comparison = TableComparison(
        table=NOW,
        target=target.url,
        target_version=target.version,
        app_id=app_id(settings.pipeline, history.incarnation, NOW, state.generation, target.build),
        number=target.applied,
        schema=schema,
        chunks=(chunk,),
        low_seq=tail.last_seq,
        applied=max(target.applied, tail.manifest_number),
        applied_seq=tail.last_seq,
    )
    url = settings.store.url
    return VerifyPlan(f"{name}.1", settings.pipeline, history.incarnation, url, name, (comparison,))


def source_rows(tables: EveryMode, columns: list[str]) -> list[dict[str, Any]]:
    """What the source holds of `NOW`: by name, without sequences."""
    names = ["id", "_tl_seq", *(name for name in columns if name != "id")]
    found = tables.expected(NOW)
    return [
        {n: v for n, v in zip(names, row, strict=True) if n in columns} for row in found.elements()
    ]


def unique(name: str) -> str:
    return f"{name}-{time.monotonic_ns()}"
