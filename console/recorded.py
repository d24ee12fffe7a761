"""What the chain says of requests: there when Redis, which only carries answers, has lost them."""

from __future__ import annotations

from functools import cached_property

from capture.core.requests import Circumstances, answer_of
from tideline.contract.errors import Unavailable
from tideline.contract.manifest import OpenState
from tideline.contract.request import Answer
from tideline.settings import Settings
from tideline.store.chain import Chain, Link
from tideline.store.objects import open_store


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

    @cached_property
    def _chain(self) -> Chain:
        return Chain(open_store(self._settings.store), self._settings.pipeline)
