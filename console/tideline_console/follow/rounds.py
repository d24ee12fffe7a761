"""Plans what is due and runs the plans side by side, in the Spark session of this process.

One thread looks at the chain, plans and starts plans; each plan's tables are merged by threads that
all plans share. A table is free for the next plan as soon as its own merge has ended, so a slow one
holds up no other. So a plan that was asked for waits until each of its tables is free, or was
merged to the plan's end meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tideline.contract.errors import CorruptData, Misconfigured, TidelineError
from tideline.contract.pauses import growing_pause_s
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, reread_requests
from tideline.planner.pending import ask_for_pending
from tideline.planner.runs import record_delayed, run_merge
from tideline.settings import Settings
from tideline_console.follow.backlog import Backlog, parts_of, tables_of
from tideline_console.follow.entries import CatalogEntries
from tideline_console.follow.messages import Beat
from tideline_console.follow.round_plans import RoundPlans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE_MIN = 4
"""Tables merged side by side at least, so that two slow ones leave room on a small machine."""

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
"""Pauses after an error that is no single table's: the store is away, or its chain is damaged."""
DELAYED_AGAIN_S = 600.0
_UNMENDABLE = (CorruptData.__name__, Misconfigured.__name__)

log = structlog.get_logger("tideline.merger")


@dataclass(frozen=True, slots=True)
class _TableEnded:
    plan_id: str
    receipt: TableReceipt


@dataclass(frozen=True, slots=True)
class _PlanEnded:
    plan: Plan
    receipt: Receipt | None
    error: str | None = None


class Rounds:
    """The rounds of one session. `run` is called by one thread; `ask`, `reserve` and `beat` by
    any."""

    def __init__(
        self,
        settings: Settings,
        session: SparkSession,
        *,
        on_point: Callable[[str], None] = lambda point: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._session = session
        self._on_point = on_point
        self._clock = clock
        self._planner = RoundPlans(settings)
        self._backlog = Backlog()
        self._entries = CatalogEntries(settings, clock)
        self._events: queue.SimpleQueue[_TableEnded | _PlanEnded | None] = queue.SimpleQueue()
        self._threads = _at_once(settings, session)
        self._tables = ThreadPoolExecutor(
            self._threads, "merge", initializer=_take_share, initargs=(session,)
        )
        self._plans = ThreadPoolExecutor(thread_name_prefix="plan", max_workers=64)
        self._open: dict[str, Plan] = {}
        self._asked: dict[str, Plan | None] = {}
        self._reserved: frozenset[str] = frozenset()
        self._over: deque[str] = deque()
        self._stopping = False
        self._delayed: dict[str, tuple[str, float]] = {}
        self._merged = 0
        self._merged_at_us: int | None = None
        self._streak = 0
        self._failed_looks = 0
        self._refused = False

    def run(self) -> None:
        """Merge what comes until `stop`; then end the plans that have begun."""
        looked_s = float("-inf")
        while not self._stopping:
            wait_s = self._settings.merge.follow_interval_s
            try:
                if self._clock() - looked_s >= wait_s:
                    looked_s = self._clock()
                    self._look()
                self._dispatch()
                self._failed_looks = 0
            except TidelineError as error:
                wait_s = self._give_up(error)
            self._take(max(0.0, looked_s + wait_s - self._clock()))
        while self._open:
            self._take(1.0)
        self._plans.shutdown()
        self._tables.shutdown()

    def _give_up(self, error: TidelineError) -> float:
        """Forget what is known of the chain; return how long to wait before it is looked at again,
        in seconds. What runs goes on."""
        pause_s = growing_pause_s(self._failed_looks, first_s=PAUSE_FIRST_S, most_s=PAUSE_MAX_S)
        self._failed_looks += 1
        reason = error.message
        log.warning("nothing can be planned", reason=reason, hint=error.hint, pause_s=pause_s)
        self._planner.forget()
        self._backlog.forget()
        return pause_s

    def _look(self) -> None:
        """Read what is new in the chain."""
        if self._refused:
            # Other runs are normal, a chain that was replaced is not: nothing kept is trusted.
            self._refused = False
            self._planner.forget()
        self._planner.look()

    def stop(self) -> None:
        """Have `run` return once the plans that have begun are at their ends."""
        self._stopping = True
        self._events.put(None)

    def ask(self, plan_id: str) -> None:
        """Have the stored plan of that id run as soon as its tables are free."""
        self._asked.setdefault(plan_id, None)
        self._events.put(None)

    def reserve(self, tables: Iterable[str]) -> None:
        """Leave these tables to rebuilds, and no others: no plan of our own merges them."""
        self._reserved = frozenset(tables)
        self._events.put(None)

    def beat(self) -> Beat:
        """Return the state."""
        tail = self._planner.tail
        left = (name for name in self._reserved if self._backlog.holder(name) is None)
        ended = [self._over.popleft() for _ in range(len(self._over))]
        return Beat(
            manifest_number=0 if tail is None else tail.manifest_number,
            tables_merged=self._merged,
            merged_at_us=self._merged_at_us,
            waiting=len(self._backlog.waiting(self._planner.state)),
            plans=tuple({*self._open, *self._asked}),
            ended=tuple(ended),
            failing=self._backlog.failing,
            failures_in_a_row=self._streak,
            reserved=tuple(sorted(left)),
        )

    def _take(self, timeout_s: float) -> None:
        """Take the events that are there, or the first one that comes within ``timeout_s``."""
        try:
            event = self._events.get(timeout=timeout_s)
            while True:
                self._note(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _note(self, event: _TableEnded | _PlanEnded | None) -> None:
        if isinstance(event, _TableEnded):
            self._note_table(event.receipt, event.plan_id)
        elif isinstance(event, _PlanEnded):
            self._note_plan(event)

    def _note_table(self, receipt: TableReceipt, plan_id: str) -> None:
        if not self._backlog.ended(receipt, plan_id, self._clock()):
            return
        figures = {"table": receipt.table, "seconds": round(receipt.seconds, 1)}
        if receipt.outcome is Outcome.FAILED:
            # Another session mends no part, and no setting.
            self._streak += receipt.error_kind not in _UNMENDABLE
            log.warning("not merged", **figures, error=receipt.error, hint=receipt.hint)
            return
        self._streak = 0
        if receipt.outcome is Outcome.REFUSED:
            log.info("planned again, another run was faster", **figures, reason=receipt.error)
            self._refused = True
            return
        self._merged += 1
        self._merged_at_us = time.time_ns() // 1_000
        ours = receipt.outcome is Outcome.APPLIED
        what = "merged" if ours else "was merged by another run"
        log.info(what, **figures, rows=receipt.rows_read, manifest=receipt.applied_manifest)

    def _note_plan(self, ended: _PlanEnded) -> None:
        self._open.pop(ended.plan.plan_id, None)
        self._over.append(ended.plan.plan_id)
        plan_id = ended.plan.plan_id
        mine = [n for n in tables_of(ended.plan) if self._backlog.holder(n) == plan_id]
        if ended.error is not None:
            self._streak += 1
            log.warning("a plan was broken off", plan=ended.plan.plan_id, error=ended.error)
            self._backlog.broken_off(mine, ended.error, self._clock())
        else:
            self._backlog.release(mine)

    def _dispatch(self) -> None:
        """Start plans while threads would run out of tables."""
        if self._stopping or self._backlog.held >= self._threads:
            return
        self._dispatch_asked(self._due())
        tail, due = self._planner.tail, self._due()
        if tail is None or not due:
            return
        for names, plan in self._planner.of(due, tail, self._not_planned):
            for behind in self._backlog.planned(names, plan, self._clock()):
                self.ask(behind)
            self._note_delayed(plan, names)
            for part in parts_of(plan, self._backlog.split(plan)):
                self._start(self._planner.stored(part), tables_of(part))

    def _due(self) -> list[str]:
        due = self._backlog.due(self._planner.state, self._clock())
        return [name for name in due if name not in self._reserved]

    def _not_planned(self, table: str, why: str) -> None:
        self._backlog.not_planned(table, why, self._clock())

    def _dispatch_asked(self, due: Collection[str]) -> None:
        """Start the plans that were asked for and are ready, where ``due`` are planned next. The
        others' tables are merged meanwhile, but those that they only describe, which are kept."""
        wanted: list[str] = []
        self._backlog.want(())
        for plan_id in list(self._asked):
            plan = self._asked[plan_id] or self._planner.found(plan_id)
            if plan is None:
                self._forget(plan_id)
                continue
            self._asked[plan_id] = plan
            if self._backlog.ready(plan, due):
                log.info("a plan that was asked for", plan=plan_id, tables=len(tables_of(plan)))
                self._start(plan, self._backlog.unreached(plan))
                del self._asked[plan_id]
            else:
                merged = {one.table for one in plan.tables}
                wanted += (name for name in tables_of(plan) if name not in merged)
                self._backlog.want(wanted)

    def _forget(self, plan_id: str) -> None:
        del self._asked[plan_id]
        self._over.append(plan_id)

    def _note_delayed(self, plan: Plan, due: list[str]) -> None:
        """Log tables that are delayed from now on, and put them on record where no run does: at
        times again, because `status` has the reason from the newest records."""
        now_s = self._clock()
        known = {name: self._delayed.pop(name) for name in due if name in self._delayed}
        stale = False
        for table, why in sorted(plan.delayed.items()):
            before, recorded_s = known.get(table, ("", float("-inf")))
            if before != why:
                log.warning("delayed", table=table, reason=why)
            stale |= before != why or now_s - recorded_s >= DELAYED_AGAIN_S
            self._delayed[table] = (why, recorded_s)
        if stale or plan.tables:
            self._delayed |= {table: (why, now_s) for table, why in plan.delayed.items()}
        if stale and not plan.tables:
            record_delayed(self._settings, plan)

    def _start(self, plan: Plan, held: Iterable[str]) -> None:
        self._backlog.hold(held, plan.plan_id)
        self._open[plan.plan_id] = plan
        self._plans.submit(self._run_plan, plan)

    def _run_plan(self, plan: Plan) -> None:
        """Run ``plan`` to its receipt, in a thread of its own."""
        try:
            receipt = run_merge(
                self._settings,
                plan,
                lambda: self._merge(plan),
                _report,
                see_to_entries=lambda: self._entries.after(plan),
            )
            ask_for_pending(self._settings, reread_requests(receipt), _report)
            ended = _PlanEnded(plan, receipt)
        except TidelineError as error:
            ended = _PlanEnded(plan, None, error.message)
        except Exception as error:  # noqa: BLE001  its text may hold a row's values
            ended = _PlanEnded(plan, None, f"an error of ours, {type(error).__name__}")
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
            on_ended=lambda one: self._events.put(_TableEnded(plan.plan_id, one)),
        )


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


def _report(text: str) -> None:
    log.warning(text)
