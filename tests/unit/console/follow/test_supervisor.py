"""What a merger's supervisor takes for recorded, with a queue that fails at one call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tideline.contract.errors import Unavailable
from tideline_console.follow import supervisor
from tideline_console.follow.messages import Beat
from tideline_console.follow.open_plans import OpenPlans
from tideline_console.follow.supervisor import Supervisor


class Queue:
    """Redis that is away for one call, and has the others."""

    def __init__(self) -> None:
        self.away = ""
        self.plans: set[str] = set()

    def reserved(self) -> dict[str, float]:
        return {}

    def asked(self) -> list[str]:
        return sorted(self.plans)

    def began(self, plans: set[str]) -> None:
        self._at("began")
        self.plans |= plans

    def ended(self, plans: set[str]) -> None:
        self._at("ended")
        self.plans -= plans

    def _at(self, name: str) -> None:
        if self.away == name:
            raise Unavailable("redis did not answer in time")


def test_what_redis_did_not_take_is_given_to_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next session is not asked for what a dead one leaves."""
    monkeypatch.setattr(supervisor, "RENEW_S", 0.0)
    queue, plans = Queue(), OpenPlans()
    made = Supervisor(cast(Any, None), cast(Any, queue), "m", cast(Any, None))
    process = cast(Any, SimpleNamespace(plans=plans, reserved=[], give=lambda order: None))
    plans.note(Beat(plans=("own",)))
    queue.away = "began"
    made._hand_on(process)
    assert queue.plans == set() and plans.unrecorded() == {"own"}
    queue.away = ""
    made._hand_on(process)
    assert queue.plans == {"own"} and plans.unrecorded() == set()
    plans.note(Beat(ended=("own",)))
    queue.away = "ended"
    made._hand_on(process)
    assert queue.plans == {"own"} and plans.over() == {"own"}
    queue.away = ""
    made._hand_on(process)
    assert queue.plans == set() and plans.over() == set()
