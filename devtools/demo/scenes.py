"""The demo's scenes, in order, each with what was measured while it played.

The traffic runs from the first scene to the last but two: dumps, merges and repairs all happen
under it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from devtools.demo.bigquery_tables import damage_bigquery
from devtools.demo.compare import Comparison, compare
from devtools.demo.damage import NAMES as DAMAGED
from devtools.demo.damage import Damage, damage_delta
from devtools.demo.damage_iceberg import damage_iceberg
from devtools.demo.databases.choose import tables
from devtools.demo.runs import DagRuns
from devtools.demo.screen import Screen
from devtools.demo.stage import PIPELINE, DemoStage
from devtools.demo.traffic import TRANSACTIONS_PER_S, Report
from tideline.contract import layout
from tideline.contract.errors import Unavailable
from tideline.contract.open_state import OpenState
from tideline.contract.position import SourcePosition
from tideline.contract.receipt import Receipt, TableReceipt, decode_receipt
from tideline.contract.request import TableProgress
from tideline.contract.target_url import TableFormatName
from tideline.control import ControlClient
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore, open_store

DUMP_TIMEOUT_S = 600.0
DRAIN_TIMEOUT_S = 300.0
CATCH_UP_S = 60.0
CAUGHT_UP = 0.97
"""The share of the transactions that should have been tried by now."""
REPAIR_CHUNK_ROWS = 5_000
_DAMAGES: Mapping[TableFormatName, Callable[[Settings, str], Damage]] = {
    "delta": damage_delta,
    "iceberg": damage_iceberg,
    "bigquery": damage_bigquery,
}


class Scenes:
    """Plays on ``stage``; ``play`` returns the comparison that ends it."""

    def __init__(self, stage: DemoStage, screen: Screen) -> None:
        self._stage = stage
        self._screen = screen
        self._runs = DagRuns(stage, screen)
        self._hint = 0
        self._tables = tables(stage.database)

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._stage.settings.store)

    @cached_property
    def _control_client(self) -> ControlClient:
        return ControlClient(self._stage.settings.control, PIPELINE)

    @cached_property
    def _chain(self) -> Chain:
        return Chain(self._store, PIPELINE)

    def play(self) -> Comparison:
        self.open_shop()
        self.dump()
        self.merge("the merge DAG brings the tables into the warehouse")
        self.damage_and_repair()
        self.drain()
        self.merge("the merge DAG brings in the rest")
        result = self.compare()
        self._runs.confirm()
        return result

    def open_shop(self) -> None:
        screen, stage = self._screen, self._stage
        screen.scene("a shop opens: sample database, live traffic")
        began = time.monotonic()
        rows = stage.open_source()
        screen.say(f"{len(rows)} tables, {_n(sum(rows.values()))} rows {_took(began)}")
        largest = sorted(rows.items(), key=lambda item: -item[1])
        screen.say(", ".join(f"{name.partition('.')[2]} {_n(count)}" for name, count in largest))
        stage.start_traffic()
        stage.traffic_report()

    def dump(self) -> None:
        """Wait for the worker's own first dumps, while the traffic continues."""
        screen, stage = self._screen, self._stage
        screen.scene("`tideline capture` starts: all tables are dumped while the traffic runs")
        began, before = time.monotonic(), stage.traffic_report()
        stage.start_worker()
        stage.wait(self._initial_dump_is_done, what="the initial dump", timeout_s=DUMP_TIMEOUT_S)
        seconds = time.monotonic() - began
        rows = sum(
            table.rows
            for answer in self._state()[1].recent
            for table in answer.tables
            if answer.state.value == "done"
        )
        during = _since(before, stage.traffic_report())
        screen.say(
            f"{_n(rows)} rows dumped in {seconds:.1f} s; meanwhile {_n(during.transactions)}"
            f" transactions changed {_n(during.changes)} rows, no table was locked"
        )
        self._say_captured()

    def merge(self, title: str) -> None:
        """Run the merge DAG once, started through Airflow's REST API."""
        self._screen.scene(title)
        self._wait_for_airflow()
        self._run_dag("tideline_merge", {})

    def damage_and_repair(self) -> None:
        screen, stage = self._screen, self._stage
        screen.scene("rows of the warehouse are damaged on purpose")
        schema = stage.database.schema
        damage = _DAMAGES[stage.target](stage.settings, schema)
        screen.say(
            f"{damage.changed} rows overwritten, {damage.deleted} deleted,"
            f" {damage.invented} invented, in {', '.join(DAMAGED)}"
        )
        damaged = [f"{stage.database.schema}.{name}" for name in DAMAGED]
        screen.scene("the repair DAG, asked through Airflow's REST API, heals them")
        conf = {"tables": damaged, "chunk_rows": REPAIR_CHUNK_ROWS}
        self._run_dag("tideline_repair", conf)

    def drain(self) -> None:
        """Stop the traffic, and wait until its commits are durable in the chain."""
        screen, stage = self._screen, self._stage
        self._catch_up()
        screen.scene("the traffic stops, the pipeline drains")
        report = stage.stop_traffic()
        for line in _traffic_lines(report):
            screen.say(line)
        began = time.monotonic()
        end = stage.database.log_end(stage.source_dsn)
        stage.wait(lambda: self._captured(end), what="the drain", timeout_s=DRAIN_TIMEOUT_S)
        screen.say(f"the last commit is durable in the chain {_took(began)}")
        self._say_captured()

    def _catch_up(self) -> None:
        """Let the traffic's workers catch up with work that Spark on a small machine delayed. That
        takes little time once Spark is done, and ends after `CATCH_UP_S`."""
        end = time.monotonic() + CATCH_UP_S

        def caught_up() -> bool:
            report = self._stage.traffic_report()
            tried = report.transactions + report.rolled_back
            due = TRANSACTIONS_PER_S * report.seconds
            if tried >= CAUGHT_UP * due or time.monotonic() >= end:
                return True
            self._screen.progress(f"the traffic is {_n(int(due) - tried)} transactions behind")
            return False

        self._stage.wait(caught_up, what="the traffic catches up", timeout_s=2 * CATCH_UP_S)

    def compare(self) -> Comparison:
        screen, stage = self._screen, self._stage
        screen.scene("every table is compared, row by row and column by column")
        began = time.monotonic()
        result = compare(stage.source_dsn, stage.settings.warehouse_storage, self._tables)
        for table in result.tables:
            screen.say(f"{table.table:<24} {_n(table.rows_equal):>9} rows equal")
        screen.say(f"compared by plain SQL, every value as text {_took(began)}")
        return result

    def _state(self) -> tuple[ManifestEntry | None, OpenState]:
        entry = self._chain.tail(self._hint)
        if entry is None:
            return None, OpenState()
        self._hint = entry.manifest.manifest_number
        return entry, self._chain.open_state(entry)

    def _initial_dump_is_done(self) -> bool:
        _, state = self._state()
        report = self._stage.traffic_report()
        progress = self._dump_progress()
        done = sum(table.state.final for table in progress)
        airflow = "Airflow is up" if self._stage.airflow_is_up else "Airflow starts"
        rows = sum(table.rows for table in progress)
        self._screen.progress(
            f"{done} of {len(self._tables)} tables, {_n(rows)} rows;"
            f" traffic {report.rate:.0f} transactions/s; {airflow}"
        )
        known = set(self._tables) <= set(state.tables)
        return known and not state.requests and bool(state.recent)

    def _dump_progress(self) -> list[TableProgress]:
        """Return the worker's report on its dumps, empty while Valkey is too busy to answer. The
        chain records their ends."""
        try:
            workers = self._control_client.workers()
        except Unavailable:
            return []
        return [table for one in workers for answer in one.dumps for table in answer.tables]

    def _captured(self, end: SourcePosition) -> bool:
        entry, state = self._state()
        if entry is None or state.requests:
            return False
        return self._stage.database.reached(entry.manifest.position, end)

    def _say_captured(self) -> None:
        entry, _ = self._state()
        if entry is None:
            raise Unavailable("the chain is empty")
        manifest = entry.manifest
        self._screen.say(
            f"the chain holds {_n(manifest.manifest_number)} manifests and"
            f" {_n(manifest.last_seq)} sequences"
        )

    def _wait_for_airflow(self) -> None:
        stage = self._stage
        if stage.airflow_is_up:
            stage.airflow()
            return
        began = time.monotonic()
        self._screen.progress("Airflow is still starting")
        stage.airflow()
        self._screen.say(f"waited for Airflow {_took(began)}")

    def _run_dag(self, dag: str, conf: Mapping[str, Any]) -> None:
        """Run a DAG until it has merged, and print its receipts."""
        stage = self._stage
        began, before = time.monotonic(), stage.traffic_report()
        plans = self._runs.merge(dag, conf)
        seconds = time.monotonic() - began
        during = _since(before, stage.traffic_report())
        self._say_receipts([self._receipt(plan) for plan in plans])
        text = f"{dag} merged after {seconds:.1f} s"
        if during.transactions:
            text += f"; meanwhile the traffic changed {_n(during.changes)} rows"
        self._screen.say(text)

    def _receipt(self, plan_id: str) -> Receipt:
        raw = self._store.get(layout.receipt_key(PIPELINE, plan_id))
        if raw is None:
            raise Unavailable(f"plan {plan_id} has no receipt")
        return decode_receipt(raw)

    def _say_receipts(self, receipts: list[Receipt]) -> None:
        tables: list[TableReceipt] = [table for receipt in receipts for table in receipt.tables]
        for receipt in receipts:
            for table, reason in receipt.delayed.items():
                self._screen.say(f"{table} is delayed: {reason}")
        strangers = sum(len(one.external_changes) for one in tables)
        if strangers:
            self._screen.say(f"the receipts name {strangers} commits that were not ours")
        self._screen.say(
            f"{len(tables)} tables: {_n(sum(one.rows_read for one in tables))} rows read,"
            f" {_n(sum(one.inserted for one in tables))} inserted,"
            f" {_n(sum(one.updated for one in tables))} updated,"
            f" {_n(sum(one.deleted for one in tables))} deleted,"
            f" {sum(one.seconds for one in tables):.1f} s of Spark"
        )


def _traffic_lines(report: Report) -> list[str]:
    return [
        f"{_n(report.transactions)} transactions in {report.seconds:.0f} s: {report.rate:.0f} per"
        f" second; {_n(report.rolled_back)} more rolled back, and"
        f" {_n(report.savepoints_undone)} savepoints",
        f"{_n(report.changes)} changes: {_n(report.inserts)} inserts, {_n(report.updates)} updates,"
        f" {_n(report.deletes)} deletes; {_n(report.changed_keys)} changed keys;"
        f" {_n(report.undone)} changes undone",
    ]


def _since(before: Report, after: Report) -> Report:
    """Return the traffic's work between two reports, in the fields that scenes print."""
    return Report(
        seconds=after.seconds - before.seconds,
        transactions=after.transactions - before.transactions,
        rolled_back=after.rolled_back - before.rolled_back,
        savepoints_undone=after.savepoints_undone - before.savepoints_undone,
        undone=after.undone - before.undone,
        inserts=after.inserts - before.inserts,
        updates=after.updates - before.updates,
        deletes=after.deletes - before.deletes,
        changed_keys=after.changed_keys - before.changed_keys,
        tables={},
        finished=after.finished,
    )


def _n(number: int) -> str:
    return f"{number:,}"


def _took(began: float) -> str:
    return f"in {time.monotonic() - began:.1f} s"
