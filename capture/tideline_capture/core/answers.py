"""Remembers which requests and commands ended lately, and how."""

from __future__ import annotations

from collections.abc import Iterable

from tideline.contract.request import Answer, encode_answer

RECENT_BYTES_MAX = 1 << 20
"""Limit of the remembered answers; the newest is always kept."""


class RecentAnswers:
    """The last answers of requests and commands that ended, at most ``keep`` of them."""

    def __init__(self, answers: Iterable[Answer], keep: int) -> None:
        self._answers = {answer.request_id: answer for answer in answers}
        self._keep = keep

    @property
    def all(self) -> tuple[Answer, ...]:
        """Return all answers, oldest first."""
        return tuple(self._answers.values())

    def get(self, request_id: str) -> Answer | None:
        """Return the answer, if it is remembered.

        Without a manifest's number it is not durable yet, and may not be reported.
        """
        return self._answers.get(request_id)

    def durable(self, answers: Iterable[Answer]) -> None:
        """Note in which manifest these ended."""
        known = self._answers
        self._answers |= {one.request_id: one for one in answers if one.request_id in known}

    def remember(self, answer: Answer) -> None:
        known = self._answers
        known[answer.request_id] = answer
        size = sum(len(encode_answer(one)) for one in known.values())
        while len(known) > self._keep or (size > RECENT_BYTES_MAX and len(known) > 1):
            size -= len(encode_answer(known.pop(next(iter(known)))))
