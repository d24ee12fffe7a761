"""Waits for Kafka in short intervals: the worker stays the active one meanwhile, however long the
brokers take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from tideline.contract.errors import Unavailable
from tideline_publish.outputs.base import OutputContext

_Found = TypeVar("_Found")
_INTERVAL_MAX_S = 2.0
_INTERVALS = 5
"""Of the time after which another worker takes over: so many intervals at least."""
_PAUSE_S = 0.05
_STOP_S = 5.0
"""The time that brokers have to answer once the publisher is to stop: what they have not confirmed
comes again with its next start."""
_NO_ANSWER = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})


class BrokerWait:
    """The time that requests to Kafka have. ``interval_s``: that of one call of the client."""

    def __init__(self, context: OutputContext) -> None:
        settings = context.settings
        self._pause = context.pause
        self._system = context.system
        self.timeout_s = settings.kafka.timeout_s
        self.interval_s = min(_INTERVAL_MAX_S, settings.takeover_after_s / _INTERVALS)
        self._stop_by: float | None = None

    def ask(self, request: Callable[[float], _Found]) -> _Found:
        """Return what ``request`` returns, which is called again while it raises that there was no
        answer within the seconds that it is given. Raises what it raises last, and Fenced."""
        until = self._until()
        while True:
            try:
                return request(self.interval_s)
            except KafkaException as error:
                if not _is_early(error.args[0]) or self._is_over(until):
                    raise
            self.pause(_PAUSE_S)

    def await_(self, is_done: Callable[[float], bool]) -> None:
        """Return once ``is_done``, which may take the seconds that it is given. Raises Unavailable
        where it is not in time, and Fenced."""
        until = self._until()
        while not is_done(self.interval_s):
            if self._is_over(until):
                raise Unavailable(
                    f"Kafka did not answer within {self.timeout_s:g} s"
                    if self._stop_by is None
                    else "Kafka did not answer before the publisher stopped"
                )
            self.pause(0)

    def brief(self, request: Callable[[float], object]) -> None:
        """Ask once: for what the brokers do by themselves, sooner or later."""
        request(self.interval_s)

    def pause(self, seconds: float) -> None:
        """Wait."""
        if not self._pause(seconds) and self._stop_by is None:
            self._stop_by = self._system.monotonic() + _STOP_S

    def _is_over(self, until: float) -> bool:
        """Return whether nothing is waited for any longer: it is ``until``, or time to stop."""
        now = self._system.monotonic()
        return now >= until or (self._stop_by is not None and now >= self._stop_by)

    def _until(self) -> float:
        return self._system.monotonic() + self.timeout_s


def _is_early(error: KafkaError) -> bool:
    return bool(error.retriable()) or error.code() in _NO_ANSWER
