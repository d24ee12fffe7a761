"""Retries a piece of work according to what went wrong.

A race lost to another writer is retried at once. A transient failure (an unavailable store, a full
disk) is retried with growing pauses until ``retry_s`` is over. Everything else would fail again and
is not retried. Every exception leaves this module as a `TidelineError`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.pauses import growing_pause_s
from tideline_spark.failures import SparkFailure, explain, is_conflict, is_mendable, unexpected

_WAIT_FIRST_S = 0.5
_WAIT_MAX_S = 30.0
_RACE_WAIT_MAX_S = 0.2

AGAIN_MAX = 5
"""Restarts after others changed the target since it was read."""

_T = TypeVar("_T")


class Overtaken(Exception):
    """The target changed since it was read: start again. Its cause, if any, is raised once the
    restarts are used up."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits: ``races_max`` retries of lost races, and ``retry_s`` for transient failures."""

    races_max: int = 8
    retry_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Tried(Generic[_T]):
    """The outcome: a ``result``, or the last ``error``; ``conflicts`` of the ``attempts`` were
    lost to another writer."""

    result: _T | None
    error: TidelineError | None
    attempts: int
    conflicts: int


def _until_settled(attempt: Callable[[], _T], doing: str) -> _T:
    """Call ``attempt`` until nothing overtakes it; Unavailable when something always does."""
    for _ in range(AGAIN_MAX + 1):
        try:
            return attempt()
        except Overtaken as error:
            cause = error.__cause__
    raise cause or Unavailable(f"others write all the time while {doing}", hint="try later")


def try_until(attempt: Callable[[], _T], patience: Patience, doing: str) -> Tried[_T]:
    """Call ``attempt`` until it returns or fails for good; retry at once when it is `Overtaken`.
    ``doing`` goes into the error message."""
    began = patience.clock()
    conflicts = waits = attempts = 0
    while True:
        attempts += 1
        try:
            return Tried(_until_settled(attempt, doing), None, attempts, conflicts)
        except TidelineError as error:
            failed, raced, mendable = error, False, isinstance(error, Unavailable)
        except SparkFailure as error:
            failed, raced = explain(error, doing), is_conflict(error)
            mendable = is_mendable(error)
        except Exception as error:  # noqa: BLE001  it fails this attempt, not the run
            failed, raced, mendable = unexpected(error, doing), False, False
        if raced:
            conflicts += 1
            wait = random.uniform(0, _RACE_WAIT_MAX_S)
            again = conflicts <= patience.races_max
        else:
            wait = growing_pause_s(waits, first_s=_WAIT_FIRST_S, most_s=_WAIT_MAX_S)
            wait *= random.uniform(0.5, 1)
            waits += 1
            left = patience.retry_s - (patience.clock() - began)
            again = mendable and wait <= left
        if not again:
            return Tried(None, failed, attempts, conflicts)
        patience.sleep(wait)
