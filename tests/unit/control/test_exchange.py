"""The rules of an exchange: what is wanted next, given what was seen and when."""

from __future__ import annotations

import pytest

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer, RequestState, TableProgress
from tideline.control.exchange import End, Exchange, ExchangeResult, ExchangeStep, Seen, Waits, Want

RUNNING = Answer("run/1", RequestState.RUNNING)
FULL = Answer("run/1", RequestState.REFUSED, again=True)
DONE = Answer("run/1", RequestState.DONE)
AWAY = Unavailable("redis did not answer in time")
WAITS = Waits(timeout_s=100.0, unanswered_timeout_s=20.0, repeat_after_s=5.0)
WAIT = Want.PAUSE


class Talk:
    """An exchange that began at 0, and is looked at as time passes."""

    def __init__(self, waits: Waits = WAITS, *, sent: bool = True) -> None:
        self._steps = Exchange(waits, 0.0, sent=sent).steps()
        self._step: ExchangeStep | None = None
        self.wants: list[Want] = []

    def look(
        self,
        now_s: float,
        answer: Answer | None = None,
        *,
        away: Unavailable | None = None,
        recorded: Answer | None = None,
    ) -> Want | End:
        """Go on to the next pause or the end: what is wanted in between, or else `WAIT`."""
        self.wants = []
        step = next(self._steps) if self._step is None else self._steps.send(Seen(now_s))
        try:
            while step.want is not Want.PAUSE:
                self.wants.append(step.want)
                seen = Seen(now_s)
                if step.want is Want.LOOK:
                    seen = Seen(now_s, answer, away)
                elif step.want is Want.RECORD:
                    seen = Seen(now_s, recorded)
                step = self._steps.send(seen)
        except StopIteration as stopped:
            ended: ExchangeResult = stopped.value
            return ended.end
        self._step = step
        return Want.SEND if Want.SEND in self.wants else WAIT


@pytest.mark.parametrize(
    ("answer", "now_s", "next_one"),
    [
        (None, 4.9, WAIT),
        (None, 5.0, Want.SEND),
        (None, 20.0, End.UNANSWERED),
        (RUNNING, 20.0, WAIT),
        (RUNNING, 100.0, End.TIMED_OUT),
        (DONE, 1000.0, End.FINAL),
        (Answer("run/1", RequestState.FAILED), 1.0, End.FINAL),
        (Answer("run/1", RequestState.REFUSED), 1.0, End.FINAL),
        (FULL, 1.0, WAIT),
        (FULL, 6.0, Want.SEND),
        (FULL, 30.0, Want.SEND),
        (FULL, 100.0, End.TIMED_OUT),
    ],
)
def test_steps(answer: Answer | None, now_s: float, next_one: Want | End) -> None:
    assert Talk().look(now_s, answer) is next_one


def test_an_answer_that_vanishes_is_asked_for_again() -> None:
    one = Talk()
    assert one.look(30.0, RUNNING) is WAIT
    assert one.look(31.0) is Want.SEND
    assert one.look(49.9) is Want.SEND
    assert one.look(50.0) is End.UNANSWERED


@pytest.mark.parametrize("state", [RequestState.PAUSED, RequestState.THROTTLED])
def test_paused_and_throttled_go_on(state: RequestState) -> None:
    held_up = Answer("run/1", state, tables=(TableProgress("public.orders", state),))
    assert Talk().look(60.0, held_up) is WAIT


def test_what_was_never_sent_is_sent_at_once_unless_it_is_known() -> None:
    one = Talk(sent=False)
    assert one.look(0.0) is Want.SEND
    assert one.look(1.0) is WAIT
    known = Talk(sent=False)
    assert known.look(0.0, RUNNING) is WAIT
    assert Talk(Waits(timeout_s=0.0), sent=False).look(0.0) is End.TIMED_OUT


def test_without_time_to_wait_it_is_sent_all_the_same() -> None:
    one = Talk(Waits(timeout_s=0.0), sent=False)
    assert one.look(0.0) is End.TIMED_OUT
    assert one.wants == [Want.LOOK, Want.SEND]


def test_what_was_never_sent_is_sent_when_the_queue_is_back() -> None:
    one = Talk(sent=False)
    assert one.look(0.0, away=AWAY) is WAIT
    assert one.look(19.0, away=AWAY) is WAIT
    assert one.look(19.5) is Want.SEND


def test_the_chain_is_asked_before_anything_is_sent_again() -> None:
    one = Talk()
    assert one.look(5.0, recorded=RUNNING) is WAIT
    assert one.wants == [Want.LOOK, Want.RECORD, Want.SHOW]
    assert one.look(6.0) is WAIT
    assert one.look(10.0, recorded=DONE) is End.FINAL


def test_a_queue_that_is_away_is_waited_for_as_long_as_the_chain_tells() -> None:
    one = Talk(Waits(away_timeout_s=60.0))
    assert one.look(50.0, away=AWAY, recorded=RUNNING) is WAIT
    assert one.look(109.0, away=AWAY) is WAIT
    assert one.look(110.0, away=AWAY) is End.AWAY


def test_an_answer_that_stays_the_same_may_be_stale() -> None:
    one = Talk()
    assert one.look(1.0, RUNNING) is WAIT
    assert one.look(5.0, RUNNING) is WAIT
    assert Want.RECORD not in one.wants
    assert one.look(6.0, RUNNING, recorded=DONE) is End.FINAL
