"""Real merges in a round: plan, Spark, Delta, and the tables as they are after every commit."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from devtools.demo.compare import read_warehouse
from devtools.simulation.history import MergeCommit, Row
from tests.faults.history_of import BANK, commit_of, key_of_texts, version_of
from tests.fixtures.capture import Pipeline
from tests.fixtures.source_text import column_texts
from tests.support.ledger import TABLES
from tideline.contract.plan import TablePlan
from tideline.contract.receipt import Outcome
from tideline.java import java_home
from tideline.planner import plan_merge
from tideline.warehouse.delta.log_store import jars_with_log_store
from tideline_spark.merge import run_plan
from tideline_spark.session import make_session


class RealMerges:
    """Called, it merges all that is captured by then; one Spark application while it is entered."""

    def __init__(self, pipeline: Pipeline[Any], prefix: str) -> None:
        self._pipeline = pipeline
        self._names = {f"{prefix}{name}": name for name in TABLES if name != "ledger"}
        self._session: Any = None

    def __enter__(self) -> Self:
        os.environ["JAVA_HOME"] = str(java_home())
        self._session = make_session(
            master="local[2]",
            driver_memory="1g",
            jars=jars_with_log_store(),
            app_name="tideline-faults",
            scratch=self._pipeline.config.parent / "spark",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.stop()

    def __call__(self) -> list[MergeCommit]:
        commits: list[MergeCommit] = []
        while found := list(self._merged()):
            commits += found
        return commits

    def _merged(self) -> Iterator[MergeCommit]:
        """The commits of one plan; none when nothing waits."""
        settings, state = self._pipeline.settings, self._pipeline.state()
        names = tuple(name for name in self._names if name in state.tables)
        plan = plan_merge(settings, plan_id=f"faults-{uuid.uuid4().hex[:10]}", tables=names)
        receipt = run_plan(self._session, plan)
        outcomes = {one.table: one.outcome for one in receipt.tables}
        for table in plan.tables:
            assert outcomes[table.table] is Outcome.APPLIED, receipt
            rows, balances = self._read(table)
            yield commit_of(table, state.tables[table.table], rows, balances=balances)

    def _read(self, plan: TablePlan) -> tuple[tuple[Row, ...], list[str | None]]:
        """The table's rows, and the balances if it is the bank's."""
        table = read_warehouse(plan.target, {})
        if not table.num_rows:
            return (), []
        batch = table.combine_chunks().to_batches()[0]
        schema, short = plan.schema, self._names[plan.table]
        texts = {c.name: column_texts(batch, c.name, c.logical) for c in schema.columns}
        pending = batch.column("_tl_pending").to_pylist()
        rows = []
        for at, missing in enumerate(pending):
            key = tuple(texts[name][at] for name in schema.key)
            lacks = {*schema.key, *(missing or ())}
            values = {name: found[at] for name, found in texts.items() if name not in lacks}
            rows.append(Row(key_of_texts(key), *version_of(short, key, values)))
        return tuple(rows), texts["balance"] if short == BANK else []
