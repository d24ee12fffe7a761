"""The trigger that waits for a dump: it looks at the answer, and decides nothing.

Its container has no key of the store, so it repeats a request without an answer, and leaves it to
the operator to look up an end in the chain.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tideline.contract.errors import TidelineError
from tideline.contract.request import Answer, encode_answer, parse_request
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import End, ExchangeResult, ExchangeStep, Seen, Waits, Want
from tideline_airflow import progress
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.progress import describe

FINAL = "final"
TIMEOUT = "timeout"
PROGRESS_S = 20.0
"""The time between two lines of progress in a log."""


class News:
    """The lines that are due in the log: another state at once, progress every `PROGRESS_S`."""

    def __init__(self) -> None:
        self.last = ""
        """The newest answer in words."""
        self._logged = ""
        self._standing: object = None
        self._newest: object = None
        self._logged_s = float("-inf")

    def line(self, answer: Answer | None, now_s: float) -> str | None:
        """Return the line that is due at ``now_s``; ``answer`` is None where none is new."""
        if answer is not None:
            self.last, self._newest = describe(answer), progress.standing(answer)
        due = now_s - self._logged_s >= PROGRESS_S and self.last != self._logged
        if self._newest == self._standing and not due:
            return None
        self._logged, self._logged_s, self._standing = self.last, now_s, self._newest
        return self.last


class DumpTrigger(BaseTrigger):
    """Fires once with ``{"status": "final", "answer": JSON}`` or ``{"status": "timeout", …}``.

    ``request`` is the request's JSON, ``watch`` a `Waits` as a mapping, ``config`` the settings
    file (None: ``$TIDELINE_CONFIG`` of the triggerer). ``cancel_with_task``: have the worker cancel
    the request when a user clears or marks the task; a triggerer that stops, or a time-out, cancels
    nothing.
    """

    def __init__(
        self,
        request: str,
        watch: dict[str, float],
        config: str | None = None,
        *,
        cancel_with_task: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request = request
        self.watch = watch
        self.config = config
        self.cancel_with_task = cancel_with_task

    def __repr__(self) -> str:
        """Return a text for logs, without the request, which holds keys."""
        return f"<DumpTrigger {parse_request(self.request.encode()).request_id}>"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        values = {
            "request": self.request,
            "watch": self.watch,
            "config": self.config,
            "cancel_with_task": self.cancel_with_task,
        }
        return "tideline_airflow.triggers.DumpTrigger", values

    async def on_kill(self) -> None:
        if self.cancel_with_task:
            request_id = parse_request(self.request.encode()).request_id
            hook = TidelineHook(self.config)
            with suppress(TidelineError):  # `cancel` logs it
                await hook.load()
            await asyncio.to_thread(hook.cancel, request_id)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        hook = TidelineHook(self.config)
        await hook.load()
        control_client = await asyncio.to_thread(hook.control_client)
        try:
            yield TriggerEvent(await self._wait(control_client))  # type: ignore[no-untyped-call]
        finally:
            await asyncio.to_thread(control_client.close)

    async def _wait(self, control_client: ControlClient) -> dict[str, str]:
        waits = msgspec.convert(self.watch, Waits)
        client = RequestClient(
            control_client, parse_request(self.request.encode()), None, clock=time.time
        )
        steps, news = client.exchange(waits, sent=True).steps(), News()
        step = next(steps)
        while True:
            if step.want is Want.PAUSE:
                await asyncio.sleep(waits.poll_interval_s)
            seen = await self._perform(client, step)
            if (line := news.line(step.answer, time.time())) is not None:
                self.log.info("%s", line)
            try:
                step = steps.send(seen)
            except StopIteration as stopped:
                return event_of(stopped.value, waits, news.last)

    async def _perform(self, client: RequestClient, step: ExchangeStep) -> Seen:
        if step.want is Want.SEND:
            self.log.info("no answer to %s yet, asking again", client.message_id)
        seen = await asyncio.to_thread(client.perform, step)
        if seen.away is not None:
            self.log.warning("%s", seen.away)
        return seen


def event_of(ended: ExchangeResult, waits: Waits, seen: str) -> dict[str, str]:
    """Make the payload of the trigger's event; ``seen`` is the newest answer in words."""
    if ended.final is not None:
        return {"status": FINAL, "answer": encode_answer(ended.final).decode()}
    if ended.end is End.UNANSWERED:
        reason = f"{ended.unanswered(waits.unanswered_timeout_s)}"
    else:
        reason = f"not done within {waits.timeout_s:g} s; last seen: {seen or 'no answer'}"
        if ended.away is not None:
            reason += f"; {ended.unanswered(waits.timeout_s)}"
    return {"status": TIMEOUT, "reason": reason}
