"""What the chain says of requests: there when Redis, which only carries answers, has lost them."""

from __future__ import annotations

import time as clock
from functools import cached_property

from tideline.contract.errors import Unavailable
from tideline.contract.manifest import OpenState
from tideline.contract.request import Answer
from tideline.settings import Settings
from tideline.store.chain import Chain, Link
from tideline.store.ended import confirmed
from tideline.store.objects import open_store
from tideline_capture.core.answers import Circumstances, answer_of

DOUBT_S = 2.0


def open_answers(state: OpenState) -> tuple[Answer, ...]:
    """The requests that have not ended, oldest first, as far as they are durable."""
    return tuple(
        answer_of(item, Circumstances(paused=item.paused or state.paused))
        for item in state.requests
    )


def ended_answers(state: OpenState) -> tuple[Answer, ...]:
    """The requests that ended lately, newest last; commands, which have no tables, are left out."""
    return tuple(answer for answer in state.recent if answer.tables)


def recorded_answer(state: OpenState, request_id: str) -> Answer | None:
    """What is durable of a request or command; None when it never was accepted, or long ago."""
    known = (*open_answers(state), *state.recent)
    return next((answer for answer in known if answer.request_id == request_id), None)


class Record:
    """The chain, looked at again and again; nothing is read before the first look."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tail: Link | None = None
        self._doubted: Answer | None = None
        self._doubted_at = 0.0

    def answer(self, request_id: str) -> Answer | None:
        """See `recorded_answer`; None, too, when the store does not answer."""
        try:
            number = 0 if self._tail is None else self._tail.manifest.manifest_number
            self._tail = self._chain.tail(number)
            if self._tail is None:
                return None
            return recorded_answer(self._chain.open_state(self._tail), request_id)
        except Unavailable:
            return None

    def confirmed(self, answer: Answer | None) -> Answer | None:
        """``answer``, if it is not final; else the chain's own word on that end, None where the
        chain has no such end or does not answer. An answer that it had nothing of is asked for
        again after `DOUBT_S` only."""
        if answer is None or not answer.state.final:
            return answer
        if answer == self._doubted and clock.monotonic() - self._doubted_at < DOUBT_S:
            return None
        try:
            found = confirmed(self._chain, answer)
        except Unavailable:
            found = None
        if found is None:
            self._doubted, self._doubted_at = answer, clock.monotonic()
        return found

    @cached_property
    def _chain(self) -> Chain:
        return Chain(open_store(self._settings.store), self._settings.pipeline)
