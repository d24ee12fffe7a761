"""One small table, its changes, and what merges made of them: for tests that merge by hand."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.fixtures.parts import History, Row, schema_of
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
SCHEMA = schema_of(ORDERS, {"id": "int64", "status": "string", "note": "string"}, ["id"])


def order(
    op: str, key: int, status: str | None = None, note: str | None = None, **more: Any
) -> Row:
    return Row(ORDERS, op, {"id": key, "status": status, "note": note}, **more)


def touched(key: int, status: str) -> Row:
    """An update whose ``note`` the log does not carry."""
    return order("u", key, status, unchanged=("note",))


def moved(before: int, key: int, status: str) -> Row:
    """An update that changes the key and does not carry ``note``."""
    return order("u", key, status, before={"id": before}, unchanged=("note",))


def only(receipt: Receipt) -> TableReceipt:
    assert len(receipt.tables) == 1, receipt
    return receipt.tables[0]


def run(spark: SparkSession, plan: Plan) -> TableReceipt:
    from tideline_spark.merge import run_plan

    return only(run_plan(spark, plan))


def merged_at_once(history: History, spark: SparkSession) -> list[TableReceipt]:
    """Run two plans of what waits, each of which has read the target when neither has committed."""
    from tideline_spark.merge import run_plan

    plans = [history.plan(), history.plan()]
    both_ready = threading.Barrier(2, timeout=300)
    waited = threading.local()

    def meet(point: str) -> None:
        if point == "before-commit" and not hasattr(waited, "once"):
            waited.once = True
            both_ready.wait()

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run_plan, spark, plan, on_point=meet) for plan in plans]
        return [only(future.result()) for future in runs]


def applied(history: History, spark: SparkSession) -> TableReceipt:
    receipt = only(history.merge(spark))
    assert receipt.outcome is Outcome.APPLIED, receipt
    return receipt


def table(history: History) -> str:
    return f"delta.`{history.target(ORDERS)}`"


def content(history: History, spark: SparkSession) -> dict[int, tuple[str | None, str | None]]:
    rows = history.rows(spark, ORDERS)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["status"], row["note"]) for row in rows}


def pending(history: History, spark: SparkSession) -> dict[int, list[str]]:
    found = {row["id"]: row["_tl_pending"] for row in history.rows(spark, ORDERS)}
    return {key: names for key, names in found.items() if names is not None}
