"""Has a plan run by the pipeline's merger (`tideline merge --follow`), where one is there.

The answer is the plan's receipt in the store. Redis may lose the request, and the merger may die
with it: then, and where the merger does not take it, the task starts Spark itself. A plan that both
run is applied once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.receipt import Receipt

if TYPE_CHECKING:
    from tideline.control.merger import MergerClient
    from tideline_airflow.hooks import TidelineHook

TAKEN_WITHIN_S = 30.0
"""The time without news of the plan from a merger that is there, after which it is not waited
for: longer than a sick session takes to be replaced."""
POLL_S = 0.5


class MergerRun:
    """One plan that the merger is asked to run. ``log`` takes a line of the task's log."""

    def __init__(
        self,
        client: MergerClient,
        plan_id: str,
        read: Callable[[], Receipt | None],
        log: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._plan_id = plan_id
        self._read = read
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._news_s = clock()

    def receipt(self) -> Receipt | None:
        """Return the receipt of this run; None where the merger is not there, goes away, or does
        not take the plan."""
        status = self._client.status()
        if status is None:
            return None
        before = self._read()
        self._client.ask(self._plan_id)
        self._log(
            f"the merger on {status.host} (process {status.pid}) merges; this task starts no Spark,"
            " and waits for the receipt"
        )
        why = ""
        while not why:
            found = self._read()
            if found is not None and _of_run(found) != _of_run(before):
                return found
            why = self._gone()
            if not why:
                self._sleep(POLL_S)
        # What it wrote in between is its answer all the same.
        found = self._read()
        if found is not None and _of_run(found) != _of_run(before):
            return found
        self._log(f"{why}: this task starts Spark itself")
        self._withdraw()
        return None

    def _gone(self) -> str:
        """Return why the merger is not waited for any longer; "" where it is."""
        now_s = self._clock()
        try:
            status = self._client.status()
            if status is not None and self._plan_id not in status.plans:
                # Redis may have lost the request, or the end of an earlier run have removed it.
                self._client.ask(self._plan_id)
        except Unavailable as error:
            if now_s - self._news_s > TAKEN_WITHIN_S:
                return f"the queue has been away for {TAKEN_WITHIN_S:g} s ({error.message})"
            return ""
        if status is None:
            return "the merger is gone"
        if self._plan_id in status.plans:
            self._news_s = now_s
        elif now_s - self._news_s > TAKEN_WITHIN_S:
            return f"the merger has not taken the plan for {TAKEN_WITHIN_S:g} s"
        return ""

    def _withdraw(self) -> None:
        try:
            self._client.withdraw(self._plan_id)
        except TidelineError as error:
            self._log(f"the request stays in the queue, it cannot be reached: {error.message}")


def _of_run(receipt: Receipt | None) -> Receipt | None:
    """Return what the run itself has in its receipt: the same run adds the catalog's warnings
    later."""
    if receipt is None:
        return None
    tables = tuple(replace(one, warnings=()) for one in receipt.tables)
    return replace(receipt, tables=tables, warnings=())


def run_by_merger(hook: TidelineHook, plan_id: str, log: Callable[[str], None]) -> Receipt | None:
    """Return the receipt of a run of the stored plan by the merger; None where the task is to start
    Spark itself."""
    from tideline.control.merger import MergerClient
    from tideline.planner import read_receipt

    settings = hook.settings
    try:
        with closing(MergerClient(settings.control, settings.pipeline)) as client:
            return MergerRun(
                client, plan_id, lambda: read_receipt(settings, plan_id), log
            ).receipt()
    except TidelineError as error:
        log(f"whether a merger is there is not known ({error.message}): this task starts Spark")
        return None
