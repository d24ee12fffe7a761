"""Reads the state of requests from the chain, which has it when Redis, the mere carrier, has lost
it, and which alone confirms an end: any client of the queue can also write answers into it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

from msgspec.structs import replace

from tideline.contract.answers import recorded_answer
from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import open_store

DOUBT_S = 2.0


def confirmed(chain: Chain, answer: Answer) -> Answer | None:
    """Return the end that the chain has for the request of ``answer``, a final one, in the manifest
    that it names; None where that manifest has no such end.

    Raises Unavailable and Misconfigured like the store, CorruptData for a manifest that is none.
    """
    number = answer.manifest_number
    entry = None if number is None or number < 1 else chain.read(number)
    if entry is None:
        return None
    for found in (*entry.manifest.finished, *entry.manifest.refused):
        if (found.request_id, found.state) == (answer.request_id, answer.state):
            return replace(found, manifest_number=number)
    return None


class Record:
    """The chain, read repeatedly; nothing is read before the first query."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._tail: ManifestEntry | None = None
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
        """Return ``answer`` if it is not final; else the chain's own record of that end, None where
        the chain has no such end or does not answer. An answer that the chain did not have is
        looked up again after `DOUBT_S` only."""
        if answer is None or not answer.state.final:
            return answer
        if answer == self._doubted and self._clock() - self._doubted_at < DOUBT_S:
            return None
        try:
            found = self.end(answer)
        except Unavailable:
            found = None
        if found is None:
            self._doubted, self._doubted_at = answer, self._clock()
        return found

    def end(self, answer: Answer) -> Answer | None:
        """Read the end that the chain has for ``answer``, a final one: the function `confirmed`."""
        return confirmed(self._chain, answer)

    @cached_property
    def _chain(self) -> Chain:
        return Chain(open_store(self._settings.store), self._settings.pipeline)
