"""``tideline verify``: compares tables with their source, and names what differs."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import cached_property
from typing import TYPE_CHECKING

from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt, reread_requests
from tideline.contract.request import Answer, DumpRequest
from tideline.contract.verification import (
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
)
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.record import Record
from tideline.planner.pending import ask_for_pending
from tideline.planner.runs import run_merge
from tideline.planner.verification import VerificationRun
from tideline.planner.verified import store_verification
from tideline.settings import Settings
from tideline_console.dump import warn_if_none_runs, watch
from tideline_console.merge import run_in
from tideline_console.output import say, write_document
from tideline_console.spark import spark_session
from tideline_console.tables import print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_EQUAL, EXIT_DIFFERS, EXIT_ERROR = 0, 1, 2
KEYS_SHOWN = 20
"""The number of a table's differing keys to print; the document has more."""


def run(settings: Settings, request: DumpRequest, *, repair: bool, as_json: bool) -> int:
    """Verify and print the result; return the exit code."""
    with ExitStack() as stack:
        work = ConsoleWork(settings, stack, quiet=as_json)
        result = VerificationRun(settings, work, request).run(repair=repair)
    if as_json:
        write_document(result)
    else:
        _print(result)
    outcomes = {table.outcome for table in result.tables}
    if VerificationOutcome.DIFFERS in outcomes:
        return EXIT_DIFFERS
    return EXIT_EQUAL if outcomes == {VerificationOutcome.EQUAL} else EXIT_ERROR


class ConsoleWork:
    """`VerifyWork` in this process; the Spark application ends with ``stack``."""

    def __init__(self, settings: Settings, stack: ExitStack, *, quiet: bool) -> None:
        self._settings = settings
        self._stack = stack
        self._quiet = quiet

    @cached_property
    def _session(self) -> SparkSession:
        return self._stack.enter_context(spark_session(self._settings, "verify"))

    def read(self, request: DumpRequest) -> Answer:
        """Have the worker serve ``request``."""
        with closing(
            ControlClient(self._settings.control, self._settings.pipeline)
        ) as control_client:
            client = RequestClient(control_client, request, Record(self._settings))
            client.send()
            warn_if_none_runs(control_client, self.report)
            return watch(client, quiet=self._quiet)

    def run_plan(self, plan: Plan) -> Receipt:
        """Merge, and report failures."""

        def run() -> Receipt:
            return run_in(self._session, self._settings, plan)

        receipt = run_merge(self._settings, plan, run, self.report)
        for one in receipt.tables:
            if one.error is not None:
                self.report(f"{one.table}: {one.outcome.value}: {one.error}")
        ask_for_pending(self._settings, reread_requests(receipt), self.report)
        return receipt

    def compare(self, plan: VerifyPlan) -> Verification:
        """Compare, and store the result."""
        from tideline_spark.verify import run_verification

        result = run_verification(
            self._session, plan, tables_at_once=self._settings.merge.tables_at_once
        )
        store_verification(self._settings, result)
        return result

    def report(self, text: str) -> None:
        """Print ``text``, unless only a document is printed."""
        if not self._quiet:
            say(text)


def _print(result: Verification) -> None:
    print_table(
        ("table", "result", "rows", "missing", "extra", "different", "sequence", "duplicate",
         "changing", "pending", "repaired"),
        (
            (
                one.table,
                verdict(one),
                one.rows,
                one.missing,
                one.extra,
                one.different,
                one.sequence,
                one.duplicates,
                one.changing,
                one.pending,
                one.repaired,
            )
            for one in result.tables
        ),
    )  # fmt: skip
    for one in result.tables:
        _print_table(one)


def _print_table(table: TableResult) -> None:
    for different in table.keys[:KEYS_SHOWN]:
        columns = f": {', '.join(different.columns)}" if different.columns else ""
        say(f"{table.table} {different.kind} {','.join(different.key)}{columns}")
    if table.differences > min(len(table.keys), KEYS_SHOWN):
        say(f"{table.table}: {table.differences:,} keys differ; --json lists more of them")
    if not table.extra_sought:
        say(
            f"{table.table}: rows that the source does not have were not looked for, because the"
            " order of its keys is the database's own"
        )
    if table.uncompared:
        say(f"{table.table}: not in the warehouse, by settings: {', '.join(table.uncompared)}")
    if table.reason is not None:
        hint = "" if table.hint is None else f"; {table.hint}"
        say(f"{table.table}: {table.reason}{hint}")


def verdict(table: TableResult) -> str:
    """Return a table's result in words."""
    if table.outcome is VerificationOutcome.EQUAL:
        return f"equal {table.stand}"
    if table.outcome is VerificationOutcome.CHANGING:
        return f"changed: {table.changing:,} keys, the others equal {table.stand}"
    if table.outcome is VerificationOutcome.DIFFERS:
        return f"{table.differences:,} keys differ {table.stand}"
    return "not compared"
