"""Outputs that send batches of events by requests over HTTP, each repeated until it is taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from tideline.contract.errors import Unavailable
from tideline.contract.publishing import ChainPosition
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.dead_letters import DeadLetters

PAUSE_MIN_S = 0.5
_RETRY_AFTER_MAX_S = 3_600.0

log = structlog.get_logger("tideline.publisher")


class BatchSettings(Protocol):
    """The settings that these outputs share."""

    @property
    def batch_events_max(self) -> int: ...
    @property
    def batch_bytes_max(self) -> int: ...
    @property
    def pause_max_s(self) -> float: ...
    @property
    def on_refused(self) -> str: ...
    @property
    def dead_letter_folder(self) -> Path | None: ...


class OutputClient(Protocol):
    """The client of a server."""

    def close(self) -> None: ...


class RetriedAnswer(Protocol):
    """An answer of the server; for ``retry_after_s`` no request is to be repeated."""

    @property
    def retry_after_s(self) -> float: ...


_Client = TypeVar("_Client", bound=OutputClient)
_Sent = TypeVar("_Sent")
_Answer = TypeVar("_Answer", bound=RetriedAnswer)


class Tries:
    """The pauses between tries of one thing, which grow up to ``pause_max_s``. ``taking``: who has
    not taken what yet, as the log, and the error of a publisher that stops, have it. From the
    second failure on status shows it, too."""

    def __init__(self, context: OutputContext, pause_max_s: float, taking: str) -> None:
        self._pause = context.pause
        self._waits = context.waits
        self._failed_before = False
        self._pause_max_s = pause_max_s
        self._pause_s = PAUSE_MIN_S
        self._taking = taking

    def begin(self) -> None:
        """Go on if the publisher does; Unavailable when it stops."""
        if not self._pause(0.0):
            raise self._stopped()

    def again(self, reason: str, retry_after_s: float = 0.0) -> None:
        """Wait before the next try, because of ``reason``; Unavailable when the publisher stops."""
        if self._failed_before:
            self._waits(f"until {self._taking}: {reason}")
        self._failed_before = True
        given_s = max(self._pause_s, min(retry_after_s, _RETRY_AFTER_MAX_S))
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)
        log.warning(
            "events were not taken; they are sent again",
            until=self._taking,
            reason=reason,
            pause_s=round(given_s, 1),
        )
        if not self._pause(given_s):
            raise self._stopped()

    def _stopped(self) -> Unavailable:
        return Unavailable(f"stopped before {self._taking}")


class RequestOutput(ABC, Generic[_Client, _Sent]):
    """See `Output`. What is sent is gathered up to the limits of a request. ``dead_letters``: the
    number of events that were refused and put aside."""

    def __init__(
        self, context: OutputContext, settings: BatchSettings, section: str, order: OrderScope
    ) -> None:
        self._context = context
        self._batches = settings
        self._section = section
        self._client: _Client | None = None
        self._letters: DeadLetters | None = None
        self._batch: list[_Sent] = []
        self._batch_bytes = 0
        self.order = order
        self.record_bytes_max: int | None = None
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = 0.0

    @property
    def dead_letters(self) -> int:
        return 0 if self._letters is None else self._letters.count

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        self._flush()

    def close(self) -> None:
        """See `Output`."""
        client, letters = self._client, self._letters
        self._client = self._letters = None
        self._batch, self._batch_bytes = [], 0
        if client is not None:
            client.close()
        if letters is not None:
            with suppress(OSError):
                letters.close()

    @abstractmethod
    def _send(self, sent: Sequence[_Sent]) -> None:
        """Send a batch until all of it is taken, or refused for good."""

    def _open_letters(self, after_seq: int) -> None:
        """Open the file of dead letters, where the settings want it, without what is behind
        ``after_seq``."""
        folder = self._batches.dead_letter_folder
        if self._batches.on_refused == "dead_letter":
            assert folder is not None
            name = f"{self._context.pipeline}.{self._context.publisher}"
            setting = f"{self._section}.dead_letter_folder"
            self._letters = DeadLetters(folder, name, after_seq, setting=setting)

    def _gather(self, one: _Sent, size: int) -> None:
        full = len(self._batch) >= self._batches.batch_events_max
        if full or self._batch_bytes + size > self._batches.batch_bytes_max:
            self._flush()
        self._batch.append(one)
        self._batch_bytes += size

    def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            self._send(batch)

    def _halved(self, sent: Sequence[_Sent]) -> None:
        """Send each half for itself."""
        half = len(sent) // 2
        self._send(sent[:half])
        self._send(sent[half:])

    def _put_aside(
        self, letters: DeadLetters, event: ChangeEvent, status: int, reason: str
    ) -> None:
        letters.add(event, status, self._context.system.wall_us())
        log.warning(
            "a change is refused; it is in the dead letters",
            reason=reason,
            table=event.table,
            seq=event.seq,
            file=str(letters.path),
            dead_letters=letters.count,
        )

    def _tries(self, taking: str) -> Tries:
        return Tries(self._context, self._batches.pause_max_s, taking)

    def _repeated(self, taking: str, once: Callable[[], tuple[_Answer, str]]) -> _Answer:
        """Return the answer to a request, which ``once`` makes, and says why it has to be repeated;
        ``""`` where it has not."""
        tries = self._tries(taking)
        tries.begin()
        while True:
            answer, reason = once()
            if not reason:
                return answer
            tries.again(reason, answer.retry_after_s)
