"""The operators of the `tideline_verify` DAG: have rows read, compare them, report what differs.

Like the others they may be killed anywhere and tried again: requests, plans and results are named
after the tasks, and comparing twice changes nothing. Keys are row values: they are in the results,
in the store, and never in an XCom, a log or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.options import options_of
from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt
from tideline.contract.request import DumpRequest
from tideline.contract.verification import (
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
)
from tideline.contract.verification_results import keys_to_read, with_passes
from tideline_airflow.assets import MERGED
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.dump import DumpOperator
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.merge import PlanJobOperator
from tideline_airflow.renamed import look_up
from tideline_airflow.request_options import takes, templates
from tideline_airflow.scope import checked
from tideline_airflow.spark_job import application, at_once

APPLICATION_VARIABLE = "TIDELINE_VERIFY_APPLICATION"
_OWN_OPTIONS = tuple(
    one for one in options_of(DumpRequest, "verify") if one not in DumpOperator.options
)


class ReadOperator(DumpOperator):
    """A `DumpOperator` whose rows are only to be compared: nothing is dumped, nothing merged.

    It takes the options of a verification, such as ``sample_percent``, besides those of a dump.
    ``first`` is the return value of a `CompareOperator`: the task then reads for another pass, at
    the rate that its options say, the keys which that set aside; of a mapped task the list of its
    number.
    """

    purpose = "verify"
    options = (*DumpOperator.options, *_OWN_OPTIONS)
    template_fields: Sequence[str] = (
        *DumpOperator.template_fields,
        *templates(_OWN_OPTIONS),
        "first",
    )

    @takes(_OWN_OPTIONS)
    def __init__(self, *, first: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first = first

    def _request(self, context: Any) -> DumpRequest:
        request = super()._request(context)
        if self.first is None:
            return request
        from tideline.planner.verification import next_pass

        # Of the first pass alone: the second one replaces the result of both.
        result = _result(TidelineHook(self.config), f"{self.first['verify_id']}.1")
        table, keys = keys_to_read(result.tables)[max(0, context["ti"].map_index)]
        return checked(next_pass(request, request.request_id, table, keys=keys))


class CompareOperator(PlanJobOperator):
    """Compare the rows that a `ReadOperator` had read with the warehouse, merged that far first.

    ``reads`` is its return value, or a list of them. ``first`` is the return value of an earlier
    `CompareOperator`: ``reads`` are then of the keys that it set aside, and its result becomes that
    of both.

    Returns ``{"verify_id", "tables": {table: {"proof", "seq", "differences", "moving"}}, "again":
    [[table]]}``: ``again`` has an entry for each list of keys that is to be read again.
    """

    template_fields = (*PlanJobOperator.template_fields, "reads", "first")

    def __init__(self, *, reads: Any, first: Any = None, **kwargs: Any) -> None:
        kwargs.setdefault("name", "tideline_verify")
        kwargs.setdefault("outlets", [MERGED])
        super().__init__(**kwargs)
        self.reads = reads
        self.first = first

    @clear_errors
    def execute(self, context: Any) -> Any:
        from tideline.planner.verified import store_verification

        hook = TidelineHook(self.config)
        name = identity_of(context).name
        reads = [self.reads] if isinstance(self.reads, dict) else list(self.reads)
        results = [
            self._compared(hook, f"{name}.{number}", read, context)
            for number, read in enumerate(reads, start=1)
        ]
        tables = [table for result in results for table in result.tables]
        verify_id, before = name, results[0]
        if self.first is not None:
            verify_id = self.first["verify_id"]
            before = _result(hook, f"{verify_id}.1")
            tables = with_passes(before.tables, tables)
        whole = replace(before, verify_id=verify_id, tables=tuple(tables))
        store_verification(hook.settings, whole)
        return _summary(whole)

    def _compared(
        self, hook: TidelineHook, verify_id: str, read: Any, context: Any
    ) -> Verification:
        from tideline.planner.verification import RowsRead, compare_rows

        rows = RowsRead(read["request_id"], read["manifest_number"], list(read["tables"]))
        # Another run may have merged in the meantime: another try does not join the merges of this
        # one.
        merge_id = f"{verify_id}.{context['ti'].try_number}"
        work = _TaskWork(self, hook, context)
        return compare_rows(hook.settings, work, rows, verify_id=verify_id, merge_id=merge_id)

    def compare(self, hook: TidelineHook, plan: VerifyPlan, context: Any) -> Verification:
        """Return the result of ``plan``, which a Spark job writes, unless an earlier try's has."""
        from tideline.planner.verified import read_verification

        if read_verification(hook.settings, plan.verify_id) is None:
            self._launch(hook, plan, context)
        return _result(hook, plan.verify_id)

    def _launch(self, hook: TidelineHook, plan: VerifyPlan, context: Any) -> None:
        from tideline.planner.verified import read_verification

        places = [
            hook.url(key(hook.settings.pipeline, plan.verify_id))
            for key in (layout.verification_plan_key, layout.verification_key)
        ]
        program = application(APPLICATION_VARIABLE, "verify.py")
        arguments = [*at_once(hook.settings.merge), "--plan", places[0], "--result", places[1]]
        self.left_by(
            lambda: read_verification(hook.settings, plan.verify_id),
            program,
            arguments,
            hook.settings,
            context,
        )


@dataclass(frozen=True, slots=True)
class _TaskWork:
    """`CompareWork` in a task: by its operator's Spark jobs."""

    operator: CompareOperator
    hook: TidelineHook
    context: Any

    def run_plan(self, plan: Plan) -> Receipt:
        return self.operator.run_plan(self.hook, plan, self.context)

    def compare(self, plan: VerifyPlan) -> Verification:
        return self.operator.compare(self.hook, plan, self.context)

    def report(self, text: str) -> None:
        self.operator.report(text)


def _result(hook: TidelineHook, verify_id: str) -> Verification:
    from tideline.planner.verified import read_verification

    found = read_verification(hook.settings, verify_id)
    if found is None:
        raise AirflowException(f"there is no result of verification {verify_id}")
    return found


class ChangedKeysOperator(BaseOperator):
    """Return the tables whose keys are to be read again, one for each list of keys, for a mapped
    `ReadOperator`. ``compared`` is the return value of a `CompareOperator`."""

    template_fields = ("compared",)

    def __init__(self, *, compared: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.compared = compared

    def execute(self, context: Any) -> list[list[str]]:
        return [list(tables) for tables in self.compared["again"]]


class ResultOperator(BaseOperator):
    """Report what a verification found; fail with the names of the tables that differ, or could not
    be compared. ``compared`` is what a `CompareOperator` returned."""

    template_fields = ("compared", "config")

    def __init__(self, *, compared: Any, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.compared = compared
        self.config = config

    @clear_errors
    def execute(self, context: Any) -> dict[str, Any]:
        result = _result(TidelineHook(self.config), self.compared["verify_id"])
        for table in result.tables:
            self.log.info("%s", describe_result(table))
        wrong = [
            one
            for one in result.tables
            if one.outcome in (VerificationOutcome.DIFFERS, VerificationOutcome.NOT_COMPARED)
        ]
        if wrong:
            raise AirflowFailException("; ".join(describe_result(one) for one in wrong))
        return dict(_summary(result)["tables"])


def describe_result(table: TableResult) -> str:
    """Return a table's result in one line of words, without keys."""
    return log_line(_result_in_words(table))


def _result_in_words(table: TableResult) -> str:
    if table.outcome is VerificationOutcome.NOT_COMPARED:
        hint = "" if table.hint is None else f" ({table.hint})"
        return f"{table.table} could not be compared: {table.reason}{hint}"
    if table.outcome is VerificationOutcome.EQUAL:
        return f"{table.table} is equal {table.stand}: {table.rows} rows"
    if table.outcome is VerificationOutcome.CHANGING:
        changing = f"{table.changing} keys changed meanwhile"
        return f"{table.table}: {changing}, the others are equal {table.stand}"
    counts = (
        f"{table.missing} missing, {table.extra} extra, {table.different} different,"
        f" {table.sequence} with a wrong sequence, {table.duplicates} twice"
    )
    columns = ", ".join(f"{name} {count}" for name, count in sorted(table.columns.items()))
    return f"{table.table} differs {table.stand}: {counts}" + (
        f"; columns: {columns}" if columns else ""
    )


def _summary(result: Verification) -> dict[str, Any]:
    return {
        "verify_id": result.verify_id,
        "tables": {
            one.table: {
                "proof": one.outcome.value,
                "seq": one.seq,
                "differences": one.differences,
                "moving": one.changing,
            }
            for one in result.tables
        },
        "again": [[table] for table, _ in keys_to_read(result.tables)],
    }


if not TYPE_CHECKING:  # Type checkers would take it for a module with every name.

    def __getattr__(name: str) -> type[Any]:
        renamed = {"MovingOperator": ChangedKeysOperator, "ProofOperator": ResultOperator}
        return look_up(__name__, name, renamed)
