"""When a session process is replaced, and what becomes of its plans."""

from __future__ import annotations

from tideline_console.follow.messages import Beat, LineBuffer, Order, line
from tideline_console.follow.open_plans import OpenPlans
from tideline_console.follow.replacing import (
    FAILURES_MAX,
    HEALTHY_S,
    PAUSE_MAX_S,
    SILENCE_MAX_S,
    START_MAX_S,
    STEP_MAX_S,
    UNMENDED_S,
    Pauses,
    SessionHealth,
)

WELL = Beat(memory_bytes=100)


def aged(health: SessionHealth, seconds: float) -> SessionHealth:
    for _ in range(round(seconds / STEP_MAX_S) + 1):
        health.step(STEP_MAX_S)
    return health


def test_a_session_that_answers_is_kept() -> None:
    health = SessionHealth(1000)
    for _ in range(1000):
        health.step(1.0)
        health.hear(WELL)
        assert health.sick() is None


def test_a_session_that_answers_nothing_is_replaced() -> None:
    health = SessionHealth(1000)
    health.hear(WELL)
    assert aged(health, SILENCE_MAX_S - 10).sick() is None
    assert "answered nothing" in str(aged(health, 10).sick())
    health.hear(WELL)
    assert health.sick() is None


def test_a_pause_of_the_whole_machine_is_no_silence() -> None:
    health = SessionHealth(1000)
    health.hear(WELL)
    health.step(10 * SILENCE_MAX_S)
    assert health.sick() is None


def test_a_session_that_does_not_start_is_replaced() -> None:
    health = SessionHealth(1000)
    assert aged(health, START_MAX_S - 10).sick() is None
    assert "did not start" in str(aged(health, 10).sick())


def test_a_session_that_grows_is_replaced() -> None:
    health = SessionHealth(1000)
    health.hear(Beat(memory_bytes=1001))
    assert "memory" in str(health.sick())


def test_failures_in_a_row_are_a_reason_once() -> None:
    """A table that no session mends has it replaced every ten minutes at most."""
    health = SessionHealth(1000)
    failing = Beat(failures_in_a_row=FAILURES_MAX)
    health.hear(failing)
    assert health.sick() is None
    aged(health, UNMENDED_S)
    health.hear(Beat(failures_in_a_row=FAILURES_MAX - 1))
    assert health.sick() is None
    health.hear(failing)
    assert "failed one after the other" in str(health.sick())


def test_pauses_grow_until_a_session_lives_long() -> None:
    pauses = Pauses()
    waits = [pauses.next_s(1.0) for _ in range(10)]
    assert waits[:3] == [1.0, 2.0, 4.0] and waits[-1] == PAUSE_MAX_S
    assert pauses.next_s(HEALTHY_S) == 1.0


def test_lines_are_put_together() -> None:
    lines, data = LineBuffer(), line(Order(run=("a",))) + line(Order(stop=True))
    found = [whole for at in range(len(data)) for whole in lines.feed(data[at : at + 1])]
    assert found == [b'{"run":["a"]}', b'{"stop":true}']


def test_plans_are_given_once_and_removed_when_they_have_ended() -> None:
    plans = OpenPlans()
    assert plans.new(["asked"]) == ["asked"]
    assert plans.new(["asked"]) == [], "given, and in no beat yet"
    plans.note(Beat(plans=("asked", "own")))
    assert plans.new(["asked", "own"]) == []
    assert plans.unrecorded() == {"own"}
    plans.recorded({"own"})
    assert plans.over() == set()
    plans.note(Beat(ended=("asked", "own")))
    assert plans.new(["asked", "own"]) == [], "ended, and still in Redis"
    assert plans.over() == {"asked", "own"}
    plans.removed({"asked", "own"})
    assert plans.new(["asked"]) == ["asked"], "asked for once more"


def test_the_next_process_is_given_what_the_first_one_leaves() -> None:
    first = OpenPlans()
    first.note(Beat(plans=("own",)))
    in_redis = [*first.unrecorded(), "asked"]
    assert OpenPlans().new(in_redis) == in_redis


def test_what_is_known_of_plans_does_not_grow() -> None:
    """Thousands a day begin and end between two looks at Redis."""
    plans = OpenPlans()
    for number in range(100):
        plans.note(Beat(plans=(f"p{number}",), ended=(f"p{number - 1}",)))
    plans.note(Beat(ended=("p99",)))
    assert not any(vars(plans).values())
    assert plans.new(["p7"]) == ["p7"], "asked for again"
