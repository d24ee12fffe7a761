"""Runs a merger's plans side by side, in the Spark session of this process.

Each plan has a thread, and its tables are merged by threads that all plans share: a plan of many
tables keeps no other waiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tideline.contract.errors import TidelineError
from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt, TableReceipt, reread_requests
from tideline.planner.pending import ask_for_pending
from tideline.planner.registration import Registration
from tideline.planner.runs import run_merge
from tideline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE_MIN = 4
"""Tables merged side by side at least, so that two slow ones leave room on a small machine."""
_PLANS_AT_ONCE = 64
_SEEN_EVERY_S = 1.0

log = structlog.get_logger("tideline.merger")


@dataclass(frozen=True, slots=True)
class TableEnded:
    """One table of a plan came to its end."""

    plan_id: str
    receipt: TableReceipt


@dataclass(frozen=True, slots=True)
class PlanEnded:
    """A plan came to its end: all its tables have, and its receipt is in the store, unless there
    was an ``error``."""

    plan: Plan
    error: str | None = None


class PlanRuns:
    """The plans that run in one session. `start` and `events` are called by one thread, `wake` and
    `plan_ids` by any. ``on_point``: see `run_plan`."""

    def __init__(
        self,
        settings: Settings,
        session: SparkSession,
        *,
        on_point: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._on_point = on_point
        self._events: queue.SimpleQueue[TableEnded | PlanEnded | None] = queue.SimpleQueue()
        self.tables_at_once = _at_once(settings, session)
        self._tables = ThreadPoolExecutor(
            self.tables_at_once, "merge", initializer=_take_share, initargs=(session,)
        )
        self._plans = ThreadPoolExecutor(_PLANS_AT_ONCE, "plan")
        self._open: set[str] = set()

    @property
    def plan_ids(self) -> list[str]:
        """The plans that have begun, and whose ends `events` has not yielded."""
        return list(self._open)

    def start(self, plan: Plan, see_to_entries: Callable[[], Registration]) -> None:
        """Begin to run ``plan``; ``see_to_entries``: see `run_merge`."""
        self._open.add(plan.plan_id)
        self._plans.submit(self._run, plan, see_to_entries)

    def wake(self) -> None:
        """Have `events` return."""
        self._events.put(None)

    def events(self, timeout_s: float) -> Iterator[TableEnded | PlanEnded]:
        """Yield the events that are there, or the first one that comes within ``timeout_s``: each
        table's end once, then its plan's."""
        try:
            event = self._events.get(timeout=timeout_s)
            while True:
                if isinstance(event, PlanEnded):
                    self._open.remove(event.plan.plan_id)
                if event is not None:
                    yield event
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def rest(self) -> Iterator[TableEnded | PlanEnded]:
        """Yield the events of the plans that have begun until all are at their ends; nothing can be
        started after that."""
        while self._open:
            yield from self.events(_SEEN_EVERY_S)
        self._plans.shutdown()
        self._tables.shutdown()

    def _run(self, plan: Plan, see_to_entries: Callable[[], Registration]) -> None:
        """Run ``plan`` to its receipt, in a thread of its own."""
        try:
            receipt = run_merge(
                self._settings,
                plan,
                lambda: self._merge(plan),
                log.warning,
                see_to_entries=see_to_entries,
            )
            ask_for_pending(self._settings, reread_requests(receipt), log.warning)
            ended = PlanEnded(plan)
        except TidelineError as error:
            ended = PlanEnded(plan, error.message)
        except Exception as error:  # noqa: BLE001  its text may hold a row's values
            ended = PlanEnded(plan, f"an error of ours, {type(error).__name__}")
        self._events.put(ended)

    def _merge(self, plan: Plan) -> Receipt:
        from tideline_spark.attempts import Patience  # heavy
        from tideline_spark.merge import run_in_pool

        # What may pass is tried again by a later plan, and holds no thread until then.
        return run_in_pool(
            self._session,
            plan,
            Patience(races_max=self._settings.merge.retries_max),
            self._tables,
            on_point=self._on_point,
            on_ended=lambda one: self._table_ended(plan, one),
        )

    def _table_ended(self, plan: Plan, receipt: TableReceipt) -> None:
        self._events.put(TableEnded(plan.plan_id, receipt))


def _at_once(settings: Settings, session: SparkSession) -> int:
    # Now, not with the first merge: an upgrade of the package under a merger that runs would mix
    # old modules and new ones.
    import tideline_spark.merge  # noqa: F401
    from tideline_spark.session import side_by_side

    wanted = settings.merge.tables_at_once
    return wanted or max(AT_ONCE_MIN, side_by_side(session, None))


def _take_share(session: SparkSession) -> None:
    """Give the jobs of this thread a share of their own: the tasks of a large table leave room for
    those of small ones."""
    name = threading.current_thread().name
    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
