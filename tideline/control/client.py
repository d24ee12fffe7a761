"""Carries out exchanges over the control queue, with the chain's record where that can be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer, Command, DumpRequest
from tideline.control.exchange import Exchange, ExchangeResult, ExchangeStep, Seen, Waits, Want
from tideline.control.queue import ControlClient

if TYPE_CHECKING:
    from tideline.control.record import Record  # heavy: the store


def _ignore(answer: Answer) -> None:
    """Show nothing."""


class RequestClient:
    """A request or command that is sent to the worker.

    Without a ``record`` an end is taken from the queue, to be confirmed by the caller.
    """

    def __init__(
        self,
        queue: ControlClient,
        message: DumpRequest | Command,
        record: Record | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.message = message
        self._queue = queue
        self._record = record
        self._clock = clock
        self._sleep = sleep

    @property
    def message_id(self) -> str:
        """The id under which the message is answered."""
        message = self.message
        return message.command_id if isinstance(message, Command) else message.request_id

    def send(self) -> None:
        """Send the message; sent again under the same id, it joins the one that exists. Raises
        Unavailable."""
        if isinstance(self.message, Command):
            self._queue.command(self.message)
        else:
            self._queue.ask(self.message)

    def exchange(self, waits: Waits, *, sent: bool) -> Exchange:
        """Begin an exchange now, for another driver, which passes its steps to `perform`."""
        return Exchange(waits, self._clock(), sent=sent)

    def perform(self, step: ExchangeStep) -> Seen:
        """Do what ``step`` wants of the queue and the chain; the time is that of its start."""
        now_s, answer = self._clock(), None
        try:
            if step.want is Want.LOOK:
                answer = self._queue.answer(self.message_id)
                if self._record is not None:
                    answer = self._record.confirmed(answer)
            elif step.want is Want.RECORD and self._record is not None:
                answer = self._record.answer(self.message_id)
            elif step.want is Want.SEND:
                self.send()
        except Unavailable as error:
            return Seen(now_s, away=error)
        return Seen(now_s, answer)

    def follow(
        self, waits: Waits, show: Callable[[Answer], None] = _ignore, *, sent: bool = True
    ) -> ExchangeResult:
        """Wait for the end, in this thread, from now on; ``show`` is given each new answer."""
        started = replace(waits, started_s=self._clock())
        steps = self.exchange(started, sent=sent).steps()
        step = next(steps)
        while True:
            if step.want is Want.PAUSE:
                self._sleep(waits.poll_interval_s)
            elif step.want is Want.SHOW and step.answer is not None:
                show(step.answer)
            try:
                step = steps.send(self.perform(step))
            except StopIteration as stopped:
                ended: ExchangeResult = stopped.value
                return ended
