"""Plans what is due, and has the plans run side by side.

One thread looks at the chain, plans and starts plans. A table is free for the next plan as soon as
its own merge has ended, so a slow one holds up no other. So a plan that was asked for waits until
each of its tables is free, or was merged to the plan's end meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

import structlog

from tideline.contract import layout
from tideline.contract.errors import CorruptData, Misconfigured, TidelineError
from tideline.contract.pauses import growing_pause_s
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.planner.runs import record_delayed
from tideline.settings import Settings
from tideline_console.follow.backlog import Backlog, parts_of, tables_of
from tideline_console.follow.entries import CatalogEntries
from tideline_console.follow.messages import Beat
from tideline_console.follow.plan_runs import PlanEnded, PlanRuns, TableEnded
from tideline_console.follow.round_plans import RoundPlans

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
"""Pauses after an error that is no single table's: the store is away, or its chain is damaged."""
DELAYED_AGAIN_S = 600.0
_UNMENDABLE = (CorruptData.__name__, Misconfigured.__name__)

log = structlog.get_logger("tideline.merger")


class Rounds:
    """The rounds of one session. `run` is called by one thread; `ask`, `reserve` and `beat` by
    any."""

    def __init__(
        self,
        settings: Settings,
        runs: PlanRuns,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._runs = runs
        self._clock = clock
        self._planner = RoundPlans(settings)
        self._backlog = Backlog()
        self._entries = CatalogEntries(settings, clock)
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
            for event in self._runs.events(max(0.0, looked_s + wait_s - self._clock())):
                self._note(event)
        for event in self._runs.rest():
            self._note(event)

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
        self._runs.wake()

    def ask(self, plan_id: str) -> None:
        """Have the stored plan of that id run as soon as its tables are free."""
        self._asked.setdefault(plan_id, None)
        self._runs.wake()

    def reserve(self, tables: Iterable[str]) -> None:
        """Leave these tables to rebuilds, and no others: no plan of our own merges them."""
        self._reserved = frozenset(tables)
        self._runs.wake()

    def beat(self) -> Beat:
        """Return the state."""
        tail = self._planner.tail
        left = (name for name in self._reserved if self._backlog.holder(name) is None)
        ended = [self._over.popleft() for _ in range(len(self._over))]
        return Beat(
            manifest_number=0 if tail is None else tail.manifest_number,
            tables_merged=self._merged,
            merged_at_us=self._merged_at_us,
            waiting=self._backlog.unmerged(self._planner.state),
            plans=tuple({*self._runs.plan_ids, *self._asked}),
            ended=tuple(ended),
            failing=self._backlog.failing,
            failures_in_a_row=self._streak,
            reserved=tuple(sorted(left)),
        )

    def _note(self, event: TableEnded | PlanEnded) -> None:
        if isinstance(event, TableEnded):
            self._note_table(event.receipt, event.plan_id)
        else:
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

    def _note_plan(self, ended: PlanEnded) -> None:
        plan_id = ended.plan.plan_id
        self._over.append(plan_id)
        mine = [n for n in tables_of(ended.plan) if self._backlog.holder(n) == plan_id]
        if ended.error is not None:
            self._streak += 1
            log.warning("a plan was broken off", plan=plan_id, error=ended.error)
            self._backlog.broken_off(mine, ended.error, self._clock())
        else:
            self._backlog.release(mine)

    def _dispatch(self) -> None:
        """Start plans while threads would run out of tables."""
        if self._stopping or self._backlog.held >= self._runs.tables_at_once:
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
                again = layout.is_mergers(layout.plan_key(plan.pipeline, plan_id))
                what = (
                    "runs a plan of a merger again" if again else "runs a plan of another program"
                )
                log.info(what, plan=plan_id, tables=len(tables_of(plan)))
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
        self._runs.start(plan, lambda: self._entries.after(plan))
