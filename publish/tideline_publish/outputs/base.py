"""The protocol of outputs: what they do with events, and what they promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import System
from tideline_publish.events import ChangeEvent


class OrderScope(StrEnum):
    """The events among which an output keeps their order."""

    ALL = "all"
    TABLE = "table"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class OutputContext:
    """The surroundings that an output is made in.

    ``pause`` waits for so many seconds, or none, and returns False when the publisher is to stop.
    The worker stays the active one meanwhile: an output calls it between requests that may take
    seconds, and between tries. Raises Fenced where another worker took over. ``waits``
    takes the reason for which nothing is taken at present: status shows it until events are
    settled.
    """

    pipeline: str
    publisher: str
    settings: PublishSettings
    system: System
    pause: Callable[[float], bool]
    waits: Callable[[str], None] = lambda reason: None


class Output(Protocol):
    """One output of one publisher. It is used in one thread.

    ``order``: the scope of the order that it keeps. ``record_bytes_max``: the largest value of an
    event that it takes; None: no limit of its own. ``keeps_position``: it keeps the position
    itself, together with the events: each is there once, whatever is killed. ``whole_only``: it is
    settled at ends of transactions only. ``dead_letters``: how many events it has put aside, that
    the receiver refused, up to the position that it was opened at and since. ``gathers_s``: it is
    settled no sooner, unless ``batch_bytes_max`` came together, or the publisher stops.
    """

    order: OrderScope
    record_bytes_max: int | None
    keeps_position: bool
    whole_only: bool
    gathers_s: float

    @property
    def dead_letters(self) -> int: ...

    def open(self, logged: ChainPosition) -> ChainPosition:
        """Make ready to go on, and return behind which position: ``logged``, or that which the
        output keeps itself, if it is of the same epoch and incarnation. What it holds of events
        behind it is gone, or will be where they come again. No other worker can write from now on,
        as far as the output can see to that."""
        ...

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """Take ``events``, which follow those of the last call; they need not be durable yet.

        Raises Misconfigured for an event that it cannot hold, Unavailable where it does not answer,
        Fenced where another worker has it.
        """
        ...

    def settle(self, position: ChainPosition) -> None:
        """Return once all events that were written are durable; they reach to ``position``. Raises
        as `write` does; then nothing is known, and the output is opened again."""
        ...

    def close(self) -> None:
        """Let go of everything; what was not settled may be there or not. Raises nothing."""
        ...
