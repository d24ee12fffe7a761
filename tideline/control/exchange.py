"""Decides how a client waits for the end of a request or command. Sans I/O.

Redis may lose everything at any moment. A message without an answer is looked up in the chain, and
where the chain does not know it either, sent again under its id, which joins the one that exists.
So a Redis that is flushed, unreachable or stale, or a worker that is killed, costs only time.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer


class Waits(msgspec.Struct, frozen=True):
    """Limits of a wait, in seconds; None: no limit. The waits of every client are declared here.

    ``started_s`` is its start by the caller's clock, ``timeout_s`` bounds all of it,
    ``unanswered_timeout_s`` the time without any answer, ``away_timeout_s`` that without an answer
    while the queue cannot be reached. After ``repeat_after_s`` without news the chain is asked, and
    the message sent again where the chain does not know it.
    """

    started_s: float = 0.0
    timeout_s: float | None = None
    unanswered_timeout_s: float | None = None
    repeat_after_s: float = 5.0
    poll_interval_s: float = 0.25
    away_timeout_s: float | None = None


COMMAND_WAITS = Waits(timeout_s=60.0)
"""A command, at a terminal and in Airflow."""
DUMP_WAITS = Waits(away_timeout_s=60.0)
"""A dump at a terminal: the time that it survives an unavailable Redis without news from the chain
either."""
TASK_WAITS = Waits(timeout_s=10.0, poll_interval_s=0.2)
"""A dump in an Airflow task, before a trigger takes over."""
TRIGGER_WAITS = Waits(unanswered_timeout_s=900.0, repeat_after_s=15.0, poll_interval_s=1.0)
"""A dump in Airflow's triggerer. ``started_s`` is of the wall clock: a trigger that is restarted
moves between processes and machines."""


class Want(Enum):
    """An action that an exchange wants done; it is then given the outcome."""

    LOOK = auto()
    """Read the queue's newest answer; an end counts only where the chain has it."""
    RECORD = auto()
    """Read what the chain has of the message."""
    SEND = auto()
    SHOW = auto()
    """Show the step's answer, which is new."""
    PAUSE = auto()


class ExchangeStep(NamedTuple):
    """A wanted action; ``answer`` is for `Want.SHOW`."""

    want: Want
    answer: Answer | None = None


class Seen(NamedTuple):
    """The outcome of a step that began at ``now_s``; ``away`` where the queue did not answer."""

    now_s: float
    answer: Answer | None = None
    away: Unavailable | None = None


class End(Enum):
    """Reasons for which an exchange ends."""

    FINAL = auto()
    TIMED_OUT = auto()
    UNANSWERED = auto()
    AWAY = auto()


class ExchangeResult(NamedTuple):
    """The end of an exchange; ``answer`` is the newest one, ``away`` set if the queue was away."""

    end: End
    answer: Answer | None = None
    away: Unavailable | None = None

    @property
    def final(self) -> Answer | None:
        """The answer, if the request or command has ended."""
        return self.answer if self.end is End.FINAL else None

    def unanswered(self, waited_s: float | None) -> Unavailable:
        """Make the error of a wait of ``waited_s`` without an end. A queue that was away may have
        lost the message, so only of one that answered is it said that the message waits."""
        if self.away is not None:
            words = f"the control queue cannot be reached: {self.away.message}"
            return Unavailable(words, hint=self.away.hint)
        within = "" if waited_s is None else f" within {waited_s:g} s"
        return Unavailable(
            f"no worker answered{within}; the message waits for one",
            hint="is `tideline capture` running, with the same control.url and pipeline?"
            " `tideline status` shows whether one runs",
        )


class Exchange:
    """The exchange of one message, from its sending to its end. ``sent``: it has been sent at
    ``now_s``, or before; else it is sent unless an answer shows that it is known."""

    def __init__(self, waits: Waits, now_s: float, *, sent: bool) -> None:
        self._waits = waits
        self._sent_s = now_s if sent else None
        self._news_s = self._recorded_s = self._answered_s = self._reached_s = now_s
        self._newest: Answer | None = None

    def steps(self) -> Generator[ExchangeStep, Seen, ExchangeResult]:
        """Yield the actions to take; the outcome of each is sent back, with times of a monotonic
        clock."""
        while True:
            now_s, answer, away = yield ExchangeStep(Want.LOOK)
            silent = self._silent(answer, now_s)
            if silent:
                self._recorded_s = now_s
                answer = (yield ExchangeStep(Want.RECORD)).answer or answer
            self._note(answer, now_s, away)
            if answer is not None and answer != self._newest:
                self._newest, self._news_s = answer, now_s
                yield ExchangeStep(Want.SHOW, answer)
            if answer is not None and _is_end(answer):
                return ExchangeResult(End.FINAL, answer)
            if self._sent_s is None and answer is None and away is None:
                yield from self._send(now_s)
            end = self._end(now_s, away)
            if end is not None:
                return ExchangeResult(end, self._newest, away)
            unknown = silent if answer is None else self._refused_for_now(answer, now_s)
            if unknown and away is None:
                yield from self._send(now_s)
            yield ExchangeStep(Want.PAUSE)

    def _silent(self, answer: Answer | None, now_s: float) -> bool:
        """Return whether the chain is to be asked: there is no answer, or an old one."""
        repeat_s = self._waits.repeat_after_s
        old = answer == self._newest and now_s - self._news_s >= repeat_s
        return (answer is None or old) and now_s - self._recorded_s >= repeat_s

    def _note(self, answer: Answer | None, now_s: float, away: Unavailable | None) -> None:
        if answer is not None:
            self._answered_s = now_s
        if answer is not None or away is None:
            self._reached_s = now_s

    def _send(self, now_s: float) -> Generator[ExchangeStep, Seen, None]:
        sent = yield ExchangeStep(Want.SEND)
        if sent.away is None:
            self._sent_s = now_s

    def _refused_for_now(self, answer: Answer, now_s: float) -> bool:
        """Return whether the message was refused for want of room, some time after it was last
        sent."""
        sent_s = self._sent_s
        return answer.again and (sent_s is None or now_s - sent_s >= self._waits.repeat_after_s)

    def _end(self, now_s: float, away: Unavailable | None) -> End | None:
        waits = self._waits
        if _passed(waits.timeout_s, now_s - waits.started_s):
            return End.TIMED_OUT
        if _passed(waits.unanswered_timeout_s, now_s - self._answered_s):
            return End.UNANSWERED
        if away is not None and _passed(waits.away_timeout_s, now_s - self._reached_s):
            return End.AWAY
        return None


def _is_end(answer: Answer) -> bool:
    """Return whether a request has ended; one refused for want of room may be accepted yet."""
    return answer.state.final and not answer.again


def _passed(limit_s: float | None, elapsed_s: float) -> bool:
    return limit_s is not None and elapsed_s >= limit_s
