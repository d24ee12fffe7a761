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
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    encode_request,
    parse_answer,
)
from tideline.control import Asker
from tideline_airflow import forms
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.plainly import plainly
from tideline_airflow.progress import describe, reasons
from tideline_airflow.scope import (
    checked,
    flag_of,
    is_typed,
    key_range_of,
    keys_of,
    number_of,
    time_range_of,
)
from tideline_airflow.triggers import FINAL, DumpTrigger, Watch

_TIMEOUT = timedelta(days=30)
"""A dump may be slow on purpose, and paused over a weekend."""
POLL_INTERVAL_S = 0.2
_DEFER_GRACE = timedelta(minutes=2)
"""The trigger names the reason for its time-out; Airflow's own comes later, and has none."""


class DumpOperator(BaseOperator):
    """Ask the worker to dump ``tables`` and wait until it has; what takes longer than
    ``defer_after_s`` is waited for without holding a worker slot.

    ``keys`` (of one table; lines of a form, or a list of texts for each key), ``key_range`` (of one
    table; ``{"from": key, "to": key}`` or one of them) or ``time`` (``{"column", "from",
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
        defer_after_s: float = 10.0,
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
        self.defer_after_s = defer_after_s
        self._asked: str | None = None

    @plainly
    def execute(self, context: Any) -> dict[str, Any]:
        """Send the request unless an answer shows that it is known, then wait for its end."""
        request = self._request(context)
        hook = TidelineHook(self.config)
        with closing(hook.asker()) as asker:
            answer = self._heard(asker, hook, request.request_id)
            if answer is None:
                asker.ask(request)
                self.log.info("asked for request %s", request.request_id)
            else:
                self.log.info("joining what is known already: %s", describe(answer))
            self._asked = request.request_id
            answer = self._soon(asker, hook, request.request_id, answer)
        if answer is None or not answer.state.final:
            self._wait(request, hook)
        return self._result(answer)

    @plainly
    def collect(self, context: Any, event: dict[str, str]) -> dict[str, Any]:
        """Called with the trigger's event; a time-out may be tried again and joins the request."""
        if event["status"] != FINAL:
            raise AirflowException(f"the dump has not ended: {event['reason']}")
        heard = parse_answer(event["answer"].encode())
        answer = TidelineHook(self.config).confirmed(heard)
        if answer is None:
            raise AirflowException(
                f"the queue says {heard.state.value}, and the chain has no such end of the request:"
                " somebody else wrote that answer, or the store is another"
            )
        return self._result(answer)

    def on_kill(self) -> None:
        """Of a task that runs; while it waits, the trigger does this."""
        if self._asked is not None and flag_of(self.cancel_with_task):
            TidelineHook(self.config).cancel(self._asked)

    def _heard(self, asker: Asker, hook: TidelineHook, request_id: str) -> Answer | None:
        """The newest answer; None for an end that the chain does not have."""
        answer = asker.answer(request_id)
        return hook.confirmed(answer) if answer is not None and answer.state.final else answer

    def _soon(
        self, asker: Asker, hook: TidelineHook, request_id: str, answer: Answer | None
    ) -> Answer | None:
        """The newest answer, final if it comes to that within ``defer_after_s``: most repairs of a
        few keys do, and to wait elsewhere costs the start of another process of Airflow's."""
        end = time.monotonic() + self.defer_after_s
        while (answer is None or not answer.state.final) and time.monotonic() < end:
            time.sleep(POLL_INTERVAL_S)
            answer = self._heard(asker, hook, request_id)
        return answer

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
        if isinstance(self.tables, str):
            raise AirflowFailException('tables must be a list, such as ["public.orders"]')
        tables = tuple(name for table in self.tables or () if (name := str(table).strip()))
        if not tables:
            if context["dag_run"].run_type == "scheduled":
                raise AirflowSkipException("no tables are named, so a scheduled run has no work")
            words = "name at least one table in the param `tables`"
            raise AirflowFailException(words + forms.not_ticked(context))
        identity = identity_of(context)
        keys, key_range, span = (
            given(context) if callable(given) else given
            for given in (self.keys, self.key_range, self.time)
        )
        columns = self._columns(tables, keys, key_range)
        return checked(
            DumpRequest(
                request_id=identity.name,
                tables=tables,
                keys=keys_of(keys, columns),
                key_range=key_range_of(key_range, columns),
                time=time_range_of(span),
                priority=number_of("priority", self.priority) or 0,
                chunk_rows=number_of("chunk_rows", self.chunk_rows),
                delay_ms=number_of("delay_ms", self.delay_ms),
                requested_by=f"airflow {identity.dag_id}",
            )
        )

    def _columns(self, tables: Sequence[str], keys: Any, key_range: Any) -> int | None:
        """How many columns the key has that somebody typed; None where that is not known."""
        ends = dict(key_range or {}).values() if isinstance(key_range, Mapping | None) else ()
        if len(tables) != 1 or not is_typed(keys, *ends):
            return None
        found = TidelineHook(self.config).key_columns(tables[0])
        return None if found is None else len(found)

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
