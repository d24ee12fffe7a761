"""The operators: ask for a dump, plan a merge, run it on Spark, report.

All may be killed anywhere and tried again. Requests and plans are named after the task
(`identity`), so a new try joins what the killed one began; a merge that is run twice changes
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, NoReturn

import msgspec
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    encode_request,
    parse_answer,
)
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.progress import describe, reasons
from tideline_airflow.scope import (
    checked,
    flag_of,
    key_range_of,
    keys_of,
    number_of,
    time_range_of,
)
from tideline_airflow.triggers import FINAL, DumpTrigger, Watch

_TIMEOUT = timedelta(days=30)
"""A dump may be slow on purpose, and paused over a weekend."""
_DEFER_GRACE = timedelta(minutes=2)
"""The trigger names the reason for its time-out; Airflow's own comes later, and has none."""


class DumpOperator(BaseOperator):
    """Ask the worker to dump ``tables`` and wait, without holding a worker slot, until it has.

    ``keys`` (of one table; a text, or a list of texts for a key of several columns), ``key_range``
    (of one table; ``{"from": key, "to": key}`` or one of them) or ``time`` (``{"column", "from",
    "to"}``) narrow the request; ``keys`` beside a range are read after it. Keys are row values, so
    ``keys``, ``key_range`` and ``time`` are no templates, which Airflow keeps and shows, but values
    or functions of the task's context (`forms.FromRun`).

    Returns ``{"request_id", "manifest_number", "tables": {table: rows}}``. Without ``tables``, a
    scheduled run is skipped and any other fails. A dump that is paused or throttled goes on later,
    and is waited for. One that is refused, fails or is cancelled fails the task for good, with the
    worker's words. ``execution_timeout`` bounds the wait (default: 30 days),
    ``unanswered_timeout_s`` the wait for any answer at all.

    The request is the worker's: it goes on whatever becomes of the task. With ``cancel_with_task``
    it is cancelled when somebody clears the task, or marks it as failed or done.
    """

    template_fields: Sequence[str] = (
        "tables",
        "priority",
        "chunk_rows",
        "delay_ms",
        "cancel_with_task",
        "config",
    )

    def __init__(  # noqa: PLR0913 - what a request may say
        self,
        *,
        tables: Any,
        keys: Any = None,
        key_range: Any = None,
        time: Any = None,
        priority: Any = None,
        chunk_rows: Any = None,
        delay_ms: Any = None,
        cancel_with_task: Any = False,
        config: str | None = None,
        unanswered_timeout_s: float = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.keys = keys
        self.key_range = key_range
        self.time = time
        self.priority = priority
        self.chunk_rows = chunk_rows
        self.delay_ms = delay_ms
        self.cancel_with_task = cancel_with_task
        self.config = config
        self.unanswered_timeout_s = unanswered_timeout_s
        self._asked: str | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Send the request unless an answer shows that it is known, then wait for its end."""
        request = self._request(context)
        hook = TidelineHook(self.config)
        with closing(hook.asker()) as asker:
            answer = asker.answer(request.request_id)
            if answer is None:
                asker.ask(request)
                self.log.info("asked for request %s", request.request_id)
            else:
                self.log.info("joining what is known already: %s", describe(answer))
        self._asked = request.request_id
        if answer is None or not answer.state.final:
            self._wait(request, hook)
        return self._result(answer)

    def collect(self, context: Any, event: dict[str, str]) -> dict[str, Any]:
        """Called with the trigger's event; a time-out may be tried again and joins the request."""
        if event["status"] != FINAL:
            raise AirflowException(f"the dump has not ended: {event['reason']}")
        return self._result(parse_answer(event["answer"].encode()))

    def on_kill(self) -> None:
        """Of a task that runs; while it waits, the trigger does this."""
        if self._asked is not None and flag_of(self.cancel_with_task):
            TidelineHook(self.config).cancel(self._asked)

    def _wait(self, request: DumpRequest, hook: TidelineHook) -> NoReturn:
        timeout = self.execution_timeout or _TIMEOUT
        watch = Watch(time.time(), timeout.total_seconds(), self.unanswered_timeout_s)
        text = encode_request(request).decode()
        self.defer(
            trigger=DumpTrigger(
                text,
                msgspec.to_builtins(watch),
                hook.config,
                cancel_with_task=flag_of(self.cancel_with_task),
            ),
            method_name="collect",
            timeout=timeout + _DEFER_GRACE,
        )

    def _request(self, context: Any) -> DumpRequest:
        if not self.tables:
            if context["dag_run"].run_type == "scheduled":
                raise AirflowSkipException("no tables are named, so a scheduled run has no work")
            raise AirflowFailException("name at least one table in the param `tables`")
        if isinstance(self.tables, str):
            raise AirflowFailException('tables must be a list, such as ["public.orders"]')
        identity = identity_of(context)
        keys, key_range, span = (
            given(context) if callable(given) else given
            for given in (self.keys, self.key_range, self.time)
        )
        return checked(
            DumpRequest(
                request_id=identity.name,
                tables=tuple(self.tables),
                keys=keys_of(keys),
                key_range=key_range_of(key_range),
                time=time_range_of(span),
                priority=number_of("priority", self.priority) or 0,
                chunk_rows=number_of("chunk_rows", self.chunk_rows),
                delay_ms=number_of("delay_ms", self.delay_ms),
                requested_by=f"airflow {identity.dag_id}",
            )
        )

    def _result(self, answer: Answer) -> dict[str, Any]:
        self.log.info("%s", describe(answer))
        if answer.state is not RequestState.DONE:
            raise AirflowFailException(
                f"the worker says {answer.state.value}: {reasons(answer) or 'without a reason'};"
                " clear the task to ask anew"
            )
        return {
            "request_id": answer.request_id,
            "manifest_number": answer.manifest_number,
            "tables": {table.table: table.rows for table in answer.tables},
        }


class PlanOperator(BaseOperator):
    """Plan the merge of what is new, of all tables or of ``tables``; skip when nothing is.

    ``tables`` is a list of names, or what a `DumpOperator` returned: then of the tables it dumped.

    Returns ``{"plan_id", "tables", "held", "b", "scope", "behind"}``: ``scope`` is what was asked
    for, ``behind`` whether the plan's cap kept it from the chain's end. A retry finds the plan
    that it made before.
    """

    template_fields = ("tables", "config")

    def __init__(self, *, tables: Any = None, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.config = config

    def execute(self, context: Any) -> dict[str, Any]:
        hook = TidelineHook(self.config)
        given = self.tables["tables"] if isinstance(self.tables, dict) else self.tables
        tables = None if given is None else list(given)
        if tables == []:
            raise AirflowSkipException("nothing to merge: no table was dumped")
        plan = hook.plan(identity_of(context).name, tables)
        for table, reason in plan.held.items():
            self.log.warning("%s is held back: %s", table, reason)
        if plan.nothing_to_do:
            hook.record_held(plan)
            hook.reread(hook.pending(tables))
            raise AirflowSkipException("nothing to merge: every table is up to date or held back")
        names = [table.table for table in plan.tables]
        self.log.info("plan %s: %s up to manifest %d", plan.plan_id, ", ".join(names), plan.b)
        return {
            "plan_id": plan.plan_id,
            "tables": names,
            "held": dict(plan.held),
            "b": plan.b,
            "scope": tables,
            "behind": plan.b < plan.tail,
        }


class ReportOperator(BaseOperator):
    """Say what a merge did, from its receipts; fail with the names of tables that it could not do.

    ``plan_ids`` in the order they were run: of a table in several receipts the last one counts.
    Returns ``{table: {"outcome", "applied_seq", "complete_through_us", "rows_read"}}``.
    """

    template_fields = ("plan_ids", "config")

    def __init__(self, *, plan_ids: Any, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_ids = plan_ids
        self.config = config

    def execute(self, context: Any) -> dict[str, Any]:
        receipts = newest_receipts(TidelineHook(self.config), self.plan_ids)
        self.log.info("%s", format_receipts(receipts))
        failed = [one for one in receipts if one.outcome in (Outcome.FAILED, Outcome.REFUSED)]
        if failed:
            raise AirflowFailException(
                f"{len(failed)} of {len(receipts)} tables are not merged: "
                + "; ".join(f"{one.table} ({one.error or one.outcome.value})" for one in failed)
            )
        return {
            one.table: {
                "outcome": one.outcome.value,
                "applied_seq": one.applied_seq,
                "complete_through_us": one.complete_through_us,
                "rows_read": one.rows_read,
            }
            for one in receipts
        }


def newest_receipts(hook: TidelineHook, plan_ids: Sequence[str]) -> list[TableReceipt]:
    """What became of each table over the runs of ``plan_ids``, by name."""
    newest: dict[str, TableReceipt] = {}
    for plan_id in plan_ids:
        receipt = hook.receipt(plan_id)
        if receipt is None:
            raise AirflowException(f"there is no receipt of plan {plan_id}")
        newest.update({one.table: one for one in receipt.tables})
    return [newest[table] for table in sorted(newest)]


def format_receipts(receipts: Sequence[TableReceipt]) -> str:
    """A table for the log: one line per table, columns aligned."""
    rows = [("table", "outcome", "read", "inserted", "updated", "deleted", "seq", "seconds")]
    rows += [
        (
            one.table,
            one.outcome.value,
            str(one.rows_read),
            str(one.inserted),
            str(one.updated),
            str(one.deleted),
            str(one.applied_seq),
            f"{one.seconds:.1f}",
        )
        for one in receipts
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(["merged:", *lines])
