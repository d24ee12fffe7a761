"""The operator that asks the worker for a dump and waits for its end.

It may be killed anywhere and tried again: the request is named after the task (`identity`), so a
new try joins what the killed one began.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, NoReturn

import msgspec
from airflow.sdk import BaseOperator
from msgspec.structs import replace

from tideline.contract.options import Purpose, options_of
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    encode_request,
    parse_answer,
)
from tideline.control.client import RequestClient
from tideline.control.exchange import TASK_WAITS, TRIGGER_WAITS, Waits
from tideline_airflow import forms
from tideline_airflow.compat import (
    TRIGGERS_HEAR,
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.progress import describe, reasons
from tideline_airflow.request_options import takes, templates, value_of
from tideline_airflow.scope import checked, flag_of, is_typed
from tideline_airflow.triggers import FINAL, DumpTrigger, News, event_of

_TIMEOUT = timedelta(days=30)
"""A dump may be slow on purpose, and paused over a weekend."""
DEFER_AFTER_S = TASK_WAITS.timeout_s if TRIGGERS_HEAR else None
_DEFER_GRACE = timedelta(minutes=2)
"""The trigger names the reason for its time-out; Airflow's own comes later, and has none."""
_SLOT_GRACE_S = 30.0
"""The same where a task waits in its slot: Airflow stops it at ``execution_timeout``, so its own
wait ends that much earlier, of a short time-out a tenth."""

DUMP_OPTIONS = options_of(DumpRequest, "dump")


class DumpOperator(BaseOperator):
    """Ask the worker to dump ``tables`` and wait until it has. After ``defer_after_s``, also while
    the queue is unreachable, the wait holds no worker slot; None: it holds one to the end. The
    default is 10 seconds, and None before Airflow 3.3, whose API would show the request with its
    keys, and whose triggers do not hear that a user ends the task.

    ``keys`` (of one table; lines of a form, or a list of texts for each key), ``key_range`` (of one
    table; ``{"from": key, "to": key}`` or one of them) or ``time`` (``{"column", "from",
    "to"}``) narrow the request; ``keys`` given along with a range are read after it. Keys are row
    values, so ``keys``, ``key_range`` and ``time`` are no templates, which Airflow keeps and shows,
    but values or functions of the task's context (`forms.FromRun`).

    Returns ``{"request_id", "manifest_number", "tables": {table: rows}}``. Without ``tables``, a
    scheduled run is skipped and any other fails. A dump that is paused or throttled continues
    later, and is waited for. One that is refused, fails or is cancelled fails the task for good,
    with the worker's error. ``execution_timeout`` bounds the wait (default: 30 days),
    ``unanswered_timeout_s`` the wait for any answer at all.

    The request is the worker's: it continues even if the task ends. With ``cancel_with_task`` it is
    cancelled when a user clears the task, or marks it as failed or done, but not by a time-out.
    """

    purpose: Purpose = "dump"
    options = DUMP_OPTIONS
    template_fields: Sequence[str] = (
        "tables",
        *templates(DUMP_OPTIONS),
        "cancel_with_task",
        "config",
    )

    @takes(DUMP_OPTIONS)
    def __init__(
        self,
        *,
        tables: Any,
        cancel_with_task: Any = False,
        config: str | None = None,
        unanswered_timeout_s: float | None = TRIGGER_WAITS.unanswered_timeout_s,
        defer_after_s: float | None = DEFER_AFTER_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.cancel_with_task = cancel_with_task
        self.config = config
        self.unanswered_timeout_s = unanswered_timeout_s
        self.defer_after_s = defer_after_s
        self._asked: str | None = None
        self._news = News()
        self._last_line: str | None = None

    @clear_errors
    def execute(self, context: Any) -> dict[str, Any]:
        """Send the request unless an answer shows that it is known, then wait for its end."""
        try:
            return self._dumped(context)
        except AirflowTaskTimeout:
            self._asked = None  # Airflow calls `on_kill` now; the next try joins the request.
            raise

    def _dumped(self, context: Any) -> dict[str, Any]:
        request = self._request(context)
        hook = TidelineHook(self.config)
        self._asked = request.request_id
        text = f"{request.purpose} {', '.join(request.tables)}: request {request.request_id}"
        self.log.info("the worker is asked to %s", log_line(text))
        if self.defer_after_s is None:
            waits = self._waits(ahead=True)
        else:
            # Most repairs of a few keys end soon; a wait elsewhere costs the start of a process.
            waits = replace(TASK_WAITS, timeout_s=self.defer_after_s)
        with closing(hook.control_client()) as control_client:
            client = RequestClient(control_client, request, hook.record())
            ended = client.follow(waits, self._show, sent=False)
        if ended.final is not None:
            return self._result(ended.final)
        if self.defer_after_s is not None:
            self._defer(request, hook)
        return self.collect(context, event_of(ended, waits, self._news.last))

    @clear_errors
    def collect(self, context: Any, event: dict[str, str]) -> dict[str, Any]:
        """Take the trigger's event; a time-out may be tried again and joins the request."""
        if event["status"] != FINAL:
            raise AirflowException(f"the dump has not ended: {event['reason']}")
        heard = parse_answer(event["answer"].encode())
        answer = TidelineHook(self.config).record().end(heard)
        if answer is None:
            raise AirflowException(
                f"the queue says {heard.state.value}, and the chain has no such end of the request:"
                " someone else wrote that answer, or the store is another"
            )
        return self._result(answer)

    def on_kill(self) -> None:
        """Cancel the request of a running task; while the task waits, the trigger does this."""
        if self._asked is not None and flag_of(self.cancel_with_task):
            TidelineHook(self.config).cancel(self._asked)

    def _show(self, answer: Answer) -> None:
        line: str | None = describe(answer)
        if self.defer_after_s is None:
            line = self._news.line(answer, time.time())
        if line is not None:
            self._say(line)

    def _say(self, line: str) -> None:
        if line != self._last_line:
            self.log.info("%s", line)
        self._last_line = line

    def _waits(self, *, ahead: bool = False) -> Waits:
        """Return how long to wait; ``ahead``: to an end before Airflow's own."""
        timeout_s = (self.execution_timeout or _TIMEOUT).total_seconds()
        return replace(
            TRIGGER_WAITS,
            started_s=time.time(),
            timeout_s=timeout_s - (min(_SLOT_GRACE_S, timeout_s / 10) if ahead else 0.0),
            unanswered_timeout_s=self.unanswered_timeout_s,
        )

    def _defer(self, request: DumpRequest, hook: TidelineHook) -> NoReturn:
        timeout = self.execution_timeout or _TIMEOUT
        text = encode_request(request).decode()
        self.defer(
            trigger=DumpTrigger(
                text,
                msgspec.to_builtins(self._waits()),
                hook.config,
                cancel_with_task=flag_of(self.cancel_with_task),
            ),
            method_name="collect",
            timeout=timeout + _DEFER_GRACE,
        )

    def _request(self, context: Any) -> DumpRequest:
        if isinstance(self.tables, str):
            raise AirflowFailException('tables must be a list, such as ["public.orders"]')
        tables = tuple(name for table in self.tables or () if (name := str(table).strip()))
        if not tables:
            if context["dag_run"].run_type == "scheduled":
                raise AirflowSkipException("no tables are named, so a scheduled run has no work")
            words = "name at least one table in the param `tables`"
            raise AirflowFailException(words + forms.not_ticked(context))
        identity = identity_of(context)
        given = {option.name: getattr(self, option.name) for option in self.options}
        given = {name: one(context) if callable(one) else one for name, one in given.items()}
        columns = self._columns(tables, given["keys"], given["key_range"])
        return checked(
            DumpRequest(
                request_id=identity.name,
                tables=tables,
                requested_by=f"airflow {identity.dag_id}",
                purpose=self.purpose,
                **{one.name: value_of(one, given[one.name], columns) for one in self.options},
            )
        )

    def _columns(self, tables: Sequence[str], keys: Any, key_range: Any) -> int | None:
        """Return how many columns the key has that a user typed; None where that is not known."""
        ends = dict(key_range or {}).values() if isinstance(key_range, Mapping | None) else ()
        if len(tables) != 1 or not is_typed(keys, *ends):
            return None
        from tideline.planner import key_columns

        found = key_columns(TidelineHook(self.config).settings, tables[0])
        return None if found is None else len(found)

    def _result(self, answer: Answer) -> dict[str, Any]:
        self._say(describe(answer))
        if answer.state is not RequestState.DONE:
            raise AirflowFailException(
                f"the worker says {answer.state.value}: {reasons(answer) or 'without a reason'};"
                " clear the task to ask again"
            )
        return {
            "request_id": answer.request_id,
            "manifest_number": answer.manifest_number,
            "tables": {table.table: table.rows for table in answer.tables},
        }
