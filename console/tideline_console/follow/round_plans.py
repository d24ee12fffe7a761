"""Makes the plans of a merger's rounds from a chain that it follows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import structlog

from tideline.contract import layout
from tideline.contract.errors import TidelineError
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.plan import Plan, decode_plan, encode_plan
from tideline.contract.receipt import Outcome
from tideline.planner import read_receipt
from tideline.planner.chain_end import FollowedChain, RecentChain
from tideline.planner.consumers import register_warehouse
from tideline.planner.merges import Planning
from tideline.planner.stored import read_stored, store_once
from tideline.settings import Settings
from tideline.store.objects import open_store

ALL_FAIL = 3
"""Tables that cannot be planned, one by one, after which it is not for their own sake."""

log = structlog.get_logger("tideline.merger")


class RoundPlans:
    """The chain's end, and plans up to it; used by one thread. Raises like the chain and the
    planner."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = open_store(settings.store)
        self._name = layout.merger_id(datetime.now(UTC), uuid.uuid4().hex[:8])
        self._numbers = 0
        self.forget()

    @property
    def tail(self) -> Manifest | None:
        """The newest manifest that was read; None for an empty chain."""
        entry = self._end.entry
        return None if entry is None else entry.manifest

    @property
    def state(self) -> OpenState:
        """The open state after it."""
        return self._end.state

    def look(self) -> None:
        """Read what is new in the chain."""
        self._end.advance()

    def forget(self) -> None:
        """Forget what is known of the chain."""
        self._chain = RecentChain(self._store, self._settings.pipeline)
        self._end = FollowedChain(self._chain)
        self._planning = Planning(self._settings, self._store, chain=self._chain)
        self._registered: dict[str, int] | None = None

    def of(
        self, due: list[str], tail: Manifest, not_planned: Callable[[str, str], None]
    ) -> Iterator[tuple[list[str], Plan]]:
        """Yield the plan of the tables that are due; where they cannot be planned together, each
        one's own, so that one whose target cannot be read stops no other. Where the first few all
        fail, the rest is not tried: each waits, and is planned with others then. ``not_planned``
        is called with a table and the reason."""
        try:
            plan = self._plan(due, tail)
        except TidelineError as error:
            together = error
        else:
            self._register()
            yield due, plan
            return
        failed = 0
        for number, name in enumerate(due, 1):
            hopeless = len(due) == 1 or failed == number - 1 >= ALL_FAIL
            try:
                if hopeless:
                    raise together
                plan = self._plan([name], tail)
            except TidelineError as error:
                failed += 1
                log.warning("not planned", table=name, reason=error.message, hint=error.hint)
                not_planned(name, error.message)
            else:
                self._register()
                yield [name], plan

    def _plan(self, due: list[str], tail: Manifest) -> Plan:
        self._numbers += 1
        state = self._end.state
        wanted = {table: state.tables[table] for table in due}
        return self._planning.plan_at(f"{self._name}-{self._numbers}", tail, state, wanted)

    def found(self, plan_id: str) -> Plan | None:
        """Return the stored plan; None where there is none of this pipeline, or it is done."""
        settings = self._settings
        try:
            key = layout.plan_key(settings.pipeline, plan_id)
            plan = read_stored(self._store, key, decode_plan)
            receipt = None if plan is None else read_receipt(settings, plan_id)
        except TidelineError as error:
            log.warning("a plan cannot be run", plan=plan_id, error=error.message)
            return None
        if plan is None or plan.store_url != settings.store.url:
            log.warning("a plan that was asked for is not in the store", plan=plan_id)
            return None
        done = receipt is not None and all(
            one.outcome is not Outcome.FAILED for one in receipt.tables
        )
        return None if done else plan

    def stored(self, plan: Plan) -> Plan:
        """Store ``plan``, before it is run."""
        key = layout.plan_key(self._settings.pipeline, plan.plan_id)
        return store_once(self._store, key, plan, encode_plan, decode_plan)

    def _register(self) -> None:
        """Register the warehouse as a consumer, where what is registered would change."""
        if self._registered != self._planning.ended:
            register_warehouse(self._settings, self._store, self._planning.ended)
            self._registered = dict(self._planning.ended)
