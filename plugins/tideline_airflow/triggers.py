"""The trigger that waits for a dump: it looks at the answer, and decides nothing.

Redis may lose everything at any moment. So a request without an answer is repeated under its id,
which is harmless: whoever holds it answers, whoever does not begins it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer, encode_answer, parse_request
from tideline.control import Asker
from tideline_airflow import progress
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.progress import describe

FINAL = "final"
TIMEOUT = "timeout"
PROGRESS_S = 20.0
"""Between two lines of progress in a log."""


class Watch(msgspec.Struct, frozen=True):
    """How patient a wait is, in seconds; ``started_s`` is its begin by the wall clock.

    The wall clock, because a trigger moves between processes and machines when one is restarted.
    """

    started_s: float
    timeout_s: float
    unanswered_timeout_s: float = 900.0
    repeat_after_s: float = 15.0
    poll_interval_s: float = 1.0


class Step(Enum):
    WAIT = auto()
    ASK = auto()
    FINAL = auto()
    TIMED_OUT = auto()
    UNANSWERED = auto()


@dataclass(slots=True)
class Patience:
    """What to do after each look; ``asked_s`` and ``answered_s`` are when that was last so."""

    watch: Watch
    asked_s: float
    answered_s: float

    def step(self, answer: Answer | None, now_s: float) -> Step:
        """The next step, given what was just seen at ``now_s``. What was refused for want of room
        is asked for again."""
        refused_for_now = answer is not None and answer.again
        if answer is not None and answer.state.final and not refused_for_now:
            return Step.FINAL
        if answer is not None:
            self.answered_s = now_s
        if now_s - self.watch.started_s >= self.watch.timeout_s:
            return Step.TIMED_OUT
        if now_s - self.answered_s >= self.watch.unanswered_timeout_s:
            return Step.UNANSWERED
        unheard = answer is None or refused_for_now
        if unheard and now_s - self.asked_s >= self.watch.repeat_after_s:
            return Step.ASK
        return Step.WAIT


class News:
    """What is worth a line in the log: another state at once, progress every `PROGRESS_S`."""

    def __init__(self) -> None:
        self.last = ""
        """The newest answer in words."""
        self._told = ""
        self._standing: object = None
        self._told_s = float("-inf")

    def line(self, answer: Answer, now_s: float) -> str | None:
        self.last, standing = describe(answer), progress.standing(answer)
        due = now_s - self._told_s >= PROGRESS_S and self.last != self._told
        if standing == self._standing and not due:
            return None
        self._told, self._told_s, self._standing = self.last, now_s, standing
        return self.last


class DumpTrigger(BaseTrigger):
    """Fires once with ``{"status": "final", "answer": JSON}`` or ``{"status": "timeout", …}``.

    ``request`` is the request's JSON, ``watch`` a `Watch` as a mapping, ``config`` the settings
    file (None: ``$TIDELINE_CONFIG`` of the triggerer). ``cancel_with_task``: tell the worker to
    cancel the request when somebody clears or marks the task; a triggerer that stops, or a
    time-out, cancels nothing.
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
        """For logs: the request holds keys."""
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
            await asyncio.to_thread(TidelineHook(self.config).cancel, request_id)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        asker = await asyncio.to_thread(TidelineHook(self.config).asker)
        try:
            yield TriggerEvent(await self._wait(asker))  # type: ignore[no-untyped-call]
        finally:
            await asyncio.to_thread(asker.close)

    async def _wait(self, asker: Asker) -> dict[str, str]:
        request = parse_request(self.request.encode())
        watch = msgspec.convert(self.watch, Watch)
        now_s = time.time()
        patience = Patience(watch, asked_s=now_s, answered_s=now_s)
        news = News()
        while True:
            try:
                answer = await asyncio.to_thread(asker.answer, request.request_id)
                step = patience.step(answer, time.time())
                if step is Step.ASK:
                    self.log.info("no answer to %s yet, asking again", request.request_id)
                    await asyncio.to_thread(asker.ask, request)
                    patience.asked_s = time.time()
            except Unavailable as error:
                self.log.warning("%s", error)
                answer, step = None, patience.step(None, time.time())
            if answer is not None and (line := news.line(answer, time.time())) is not None:
                self.log.info("%s", line)
            if step is Step.FINAL and answer is not None:
                return {"status": FINAL, "answer": encode_answer(answer).decode()}
            if step in (Step.TIMED_OUT, Step.UNANSWERED):
                return {"status": TIMEOUT, "reason": _reason(step, watch, news.last)}
            await asyncio.sleep(watch.poll_interval_s)


def _reason(step: Step, watch: Watch, seen: str) -> str:
    if step is Step.UNANSWERED:
        return (
            f"no answer for {watch.unanswered_timeout_s:g} s;"
            " is `tideline capture` running, and do both use the same control.url and pipeline?"
        )
    return f"not done within {watch.timeout_s:g} s; last seen: {seen or 'no answer'}"
