"""The limits and the dump policy that the core is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tideline.contract.steps import StepKind

Applies = Callable[[str, StepKind], bool]
"""Returns whether the worker is to follow a step of a table that no target can take, by a dump."""


def never(table: str, kind: StepKind) -> bool:
    """Return False: no step is followed."""
    return False


class CoreLimits(Protocol):
    """The limits that the core reads of the settings' section ``capture``, which declares them."""

    flush_interval_s: float
    heartbeat_s: float
    segment_bytes_max: int
    chunk_rows: int
    chunk_bytes_max: int
    delay_ms: int
    chunk_redo_max: int
    chunk_target_ms: int
    replica_lag_max_s: float | None
    running_queries_max: int | None
    log_backlog_max_bytes: int | None
    unseen_transactions_max: int
    open_requests_max: int
    parallel_dumps_max: int
    chunks_ahead_max: int


@dataclass(frozen=True, slots=True)
class DumpPolicy:
    """The dumps that the worker begins by itself.

    ``initial``: of each table that it sees first. ``doubted``: of tables whose rows are in doubt.
    ``applies``: of those whose target must restart, by the kind of step.
    ``whole_rows``: the statement that a table may need at the source before its dump; "" for none.
    """

    initial: bool
    doubted: bool
    applies: Applies = never
    whole_rows: str = ""
