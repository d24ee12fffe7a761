"""Decides which tables a merger plans next. Sans I/O.

A table is planned when the chain has changes behind what it was last planned up to, and no plan
holds it. One whose merge failed waits, longer each time. What keeps a table's changes from being
merged may end without a new manifest (a setting, a verification, a rebuild), so tables with changes
left are planned again after `RETRY_DELAYED_S`, and all after `RETRY_ALL_S`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tideline.contract.open_state import OpenState
from tideline.contract.pauses import growing_pause_s
from tideline.contract.plan import Plan
from tideline.contract.receipt import DONE, Outcome, TableReceipt

RETRY_FIRST_S = 1.0
RETRY_MAX_S = 60.0
RETRY_DELAYED_S = 60.0
RETRY_ALL_S = 600.0
SLOW_S = 5.0
"""A table whose merges take longer gets plans of its own: the others' receipts do not wait."""


@dataclass
class _Table:
    planned_to: int = 0
    applied: int = 0
    planned_s: float = float("-inf")
    left: bool = False
    failures: int = 0
    not_before_s: float = float("-inf")
    seconds: float | None = None
    error: str | None = None
    failed_plan: str | None = None


class Backlog:
    """The tables of a pipeline, and those that plans hold; used by one thread, but for `failing`
    and `unmerged`. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._held: dict[str, str] = {}
        self._wanted: set[str] = set()

    @property
    def failing(self) -> dict[str, str]:
        """The tables whose last merge failed, with the reason."""
        return {name: t.error for name, t in sorted(self._tables.items()) if t.error is not None}

    @property
    def held(self) -> int:
        """The number of tables that plans hold."""
        return len(self._held)

    def waiting(self, state: OpenState) -> list[str]:
        """Return the tables with changes behind what they were planned up to."""
        return [
            name
            for name, found in state.tables.items()
            if found.schema is not None and self._planned_to(name) < found.last_data_manifest
        ]

    def unmerged(self, state: OpenState) -> int:
        """Return the number of tables with changes to merge, those that plans hold among them."""
        held = list(self._held)  # At once: another thread may change it.
        return len({*self.waiting(state), *held})

    def _planned_to(self, name: str) -> int:
        # Makes no entry: `unmerged` may be called by another thread.
        table = self._tables.get(name)
        return 0 if table is None else table.planned_to

    def due(self, state: OpenState, now_s: float) -> list[str]:
        """Return the tables to plan now."""
        behind = set(self.waiting(state))
        return [
            name
            for name, found in state.tables.items()
            if found.schema is not None
            and name not in self._held
            and name not in self._wanted
            and (name in behind or self._old(name, now_s))
            and self._of(name).not_before_s <= now_s
        ]

    def _old(self, name: str, now_s: float) -> bool:
        table = self._of(name)
        limit_s = RETRY_DELAYED_S if table.left else RETRY_ALL_S
        return now_s - table.planned_s >= limit_s

    def planned(self, names: Iterable[str], plan: Plan, now_s: float) -> list[str]:
        """Record that ``names`` were planned together in ``plan``. Return the plans that failed and
        have left nothing to do: behind their commits, so that their receipts are to be made."""
        reached = {one.table: one.to_manifest for one in plan.tables}
        behind: list[str] = []
        for name in names:
            table = self._of(name)
            table.left = name in plan.delayed
            # Of a delayed table nothing more can be merged before something else changes.
            end = plan.tail if table.left else plan.to_manifest
            table.planned_to = max(end if table.left else 0, reached.get(name, end))
            table.planned_s = now_s
            done = not table.left and name not in reached and plan.to_manifest >= plan.tail
            if done and table.error is not None:
                behind += [] if table.failed_plan is None else [table.failed_plan]
                table.failures, table.error, table.failed_plan = 0, None, None
        return list(dict.fromkeys(behind))

    def split(self, plan: Plan) -> list[Collection[str]]:
        """Return the plan's tables in groups that are run apart: slow ones alone."""
        alone = [one.table for one in plan.tables if one.create or self._slow(one.table)]
        rest = [one.table for one in plan.tables if one.table not in alone]
        return [*([rest] if rest else []), *([name] for name in alone)]

    def _slow(self, name: str) -> bool:
        seconds = self._of(name).seconds
        return seconds is not None and seconds > SLOW_S

    def hold(self, names: Iterable[str], plan_id: str) -> None:
        """Record that the plan is run on these tables, which no other plan may until then."""
        for name in names:
            assert name not in self._held, f"{name} is in two plans"
            self._held[name] = plan_id

    def unreached(self, plan: Plan) -> list[str]:
        """Return the tables that running the plan may write: all but those that are known to be
        merged to its end, where a run of it only looks."""
        reached = {
            one.table for one in plan.tables if self._of(one.table).applied >= one.to_manifest
        }
        return [name for name in tables_of(plan) if name not in reached]

    def ready(self, plan: Plan, due: Collection[str]) -> bool:
        """Return whether a plan that was asked for is to be run now; ``due`` are planned next.

        It would be refused for a table that was merged past its beginning and not to its end: where
        that is due, a plan of our own brings it there first.
        """
        overtaken = {
            one.table
            for one in plan.tables
            if one.from_manifest < self._of(one.table).applied < one.to_manifest
        }
        return not any(
            name in self._held or name in self._wanted or (name in overtaken and name in due)
            for name in self.unreached(plan)
        )

    def holder(self, name: str) -> str | None:
        """Return the plan that holds a table."""
        return self._held.get(name)

    def release(self, names: Iterable[str]) -> None:
        """Record that a plan ended which merged nothing into these tables."""
        for name in names:
            self._held.pop(name, None)

    def want(self, names: Iterable[str]) -> None:
        """Keep these tables for plans that were asked for: no plan of our own does what those do to
        them. ``names`` replaces the earlier ones."""
        self._wanted = set(names)

    def ended(self, receipt: TableReceipt, plan_id: str, now_s: float) -> bool:
        """Record a table's end: another plan may hold it. Return False for a plan that did not hold
        it, only looked, and says nothing new."""
        if self._held.get(receipt.table) != plan_id:
            return False
        del self._held[receipt.table]
        table = self._of(receipt.table)
        table.seconds = receipt.seconds
        if receipt.outcome in DONE:
            table.failures, table.error, table.failed_plan = 0, None, None
            table.applied = receipt.applied_manifest
        elif receipt.outcome is Outcome.REFUSED:
            # Another run was faster, or the chain was replaced: planned again from what is there.
            self._again(table, now_s, None)
        else:
            table.failed_plan = plan_id
            self._again(table, now_s, receipt.error or receipt.outcome.value)
        return True

    def broken_off(self, names: Iterable[str], why: str, now_s: float) -> None:
        """Record that a plan ended without receipts of these tables."""
        for name in names:
            if (plan_id := self._held.pop(name, None)) is not None:
                self._of(name).failed_plan = plan_id
                self._again(self._of(name), now_s, why)

    def not_planned(self, name: str, why: str, now_s: float) -> None:
        """Record that a table cannot be planned for now."""
        table = self._of(name)
        table.planned_s = now_s
        self._again(table, now_s, why)

    def forget(self) -> None:
        """Record that of no table it is known any more what was planned and applied."""
        for table in self._tables.values():
            table.planned_to = table.applied = 0

    def _again(self, table: _Table, now_s: float, error: str | None) -> None:
        table.planned_to = 0
        table.error = error
        wait_s = growing_pause_s(table.failures, first_s=RETRY_FIRST_S, most_s=RETRY_MAX_S)
        table.failures += 1
        table.not_before_s = now_s + wait_s

    def _of(self, name: str) -> _Table:
        return self._tables.setdefault(name, _Table())


def parts_of(plan: Plan, groups: Sequence[Collection[str]]) -> list[Plan]:
    """Return ``plan`` as plans of these groups of its tables, under ids of their own. Descriptions
    go with the tables that are merged; the first plan has the others, and what is delayed."""
    merged = {one.table for one in plan.tables}
    idle = {one.table for one in plan.descriptions} - merged
    made = []
    for number, names in enumerate(groups or ([()] if idle else []), 1):
        own = {*names, *(idle if number == 1 else ())}
        made.append(
            replace(
                plan,
                plan_id=f"{plan.plan_id}/{number}",
                tables=tuple(one for one in plan.tables if one.table in names),
                descriptions=tuple(one for one in plan.descriptions if one.table in own),
                delayed=plan.delayed if number == 1 else {},
                strayed=(),
            )
        )
    return made


def tables_of(plan: Plan) -> list[str]:
    """Return the names of the tables that running the plan writes, each once."""
    names = (*(t.table for t in plan.tables), *(d.table for d in plan.descriptions))
    return list(dict.fromkeys((*names, *(s.table for s in plan.swaps))))
