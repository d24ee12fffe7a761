"""Measures a pipeline's recent traffic in its chain: tables, rates and parts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing, suppress

import msgspec

from tideline.contract.errors import TidelineError
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.part import DUMPED
from tideline.control import ControlClient
from tideline.cost import DAY_S, RequestRates, Traffic, empty_part_bytes
from tideline.planner.runs import recent_runs
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

MANIFESTS_MAX = 1_000
"""The number of newest manifests to read: more than an hour of a busy pipeline."""
_SCHEMAS_MAX = 50
_RUNS_MAX = 50


class Measured(msgspec.Struct, frozen=True):
    """The traffic from ``first`` to ``last`` manifest, written within ``span_s`` seconds: the log's
    ``changes`` and ``parts``, and ``dumped`` rows, which no model includes. ``passive`` and
    ``merge_every_s`` are None where unknown."""

    first: int
    last: int
    span_s: float
    tables: int
    busy: int
    changes: int
    dumped: int
    parts: int
    part_bytes: int
    columns: int
    passive: int | None = None
    merge_every_s: float | None = None

    @property
    def parts_per_day(self) -> float:
        return self.parts * DAY_S / self.span_s

    def traffic(self) -> Traffic:
        """Return the traffic as a model's input."""
        rows = self.changes + self.dumped
        plain = Traffic(columns=self.columns)
        net = self.part_bytes - self.parts * empty_part_bytes(plain)
        return Traffic(
            tables=max(self.tables, 1),
            busy=min(self.busy, max(self.tables, 1)),
            changes_per_s=self.changes / self.span_s,
            row_bytes=max(net / rows, 1.0) if rows else plain.row_bytes,
            columns=self.columns,
        )

    def rates(self, rates: RequestRates) -> RequestRates:
        """Return ``rates`` with the measured merge interval and number of waiting workers."""
        seen = {"passive": self.passive, "merge_every_s": self.merge_every_s}
        known = {name: value for name, value in seen.items() if value is not None}
        return msgspec.structs.replace(rates, **known)


def measure(settings: Settings) -> Measured | None:
    """Measure the pipeline of ``settings``; None while its chain is too short for a rate.

    Raises Unavailable and Misconfigured as the store does. With an unavailable queue only the
    number of waiting workers is missing.
    """
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return None
    last = tail.manifest.manifest_number
    found = [entry.manifest for entry in chain.entries(max(1, last - MANIFESTS_MAX + 1), last)]
    state = chain.open_state(tail)
    measured = measured_in(found, state, _columns(chain, state))
    if measured is None:
        return None
    return msgspec.structs.replace(
        measured, passive=_passive(settings), merge_every_s=_merge_every_s(settings)
    )


def measured_in(manifests: Sequence[Manifest], state: OpenState, columns: int) -> Measured | None:
    """Measure ``manifests``, in their order; None when no time lies between them."""
    times = [one.written_at_us for one in manifests if one.written_at_us is not None]
    span_s = (times[-1] - times[0]) / 1e6 if times else 0.0
    if span_s <= 0:
        return None
    # The first one's rows came before the measured time.
    parts = [part for manifest in manifests[1:] for part in manifest.parts]
    dumped = sum(part.operations.get(DUMPED, 0) for part in parts)
    rows = sum(sum(part.operations.values()) for part in parts)
    live = [one for one in state.tables.values() if one.condition is not TableCondition.QUARANTINED]
    return Measured(
        first=manifests[0].manifest_number,
        last=manifests[-1].manifest_number,
        span_s=span_s,
        tables=len(live),
        busy=len({one.table for one in parts if set(one.operations) - {DUMPED}}),
        changes=rows - dumped,
        dumped=dumped,
        parts=len(parts),
        part_bytes=sum(part.bytes for part in parts),
        columns=columns,
    )


def _columns(chain: Chain, state: OpenState) -> int:
    """Return the mean number of a table's columns."""
    known = sorted({one.schema for one in state.tables.values() if one.schema is not None})
    counts = [len(chain.read_schema(one).columns) for one in known[:_SCHEMAS_MAX]]
    return round(statistics.mean(counts)) if counts else Traffic().columns


def _passive(settings: Settings) -> int | None:
    with (
        suppress(TidelineError),
        closing(ControlClient(settings.control, settings.pipeline)) as control_client,
    ):
        workers = control_client.workers()
        return sum(one.state == "passive" for one in workers) if workers else None
    return None


def _merge_every_s(settings: Settings) -> float | None:
    """Return the mean time between merges of the last day."""
    since_us = int((time.time() - DAY_S) * 1e6)
    runs, _ = recent_runs(settings, since_us, _RUNS_MAX)
    if len(runs) < 2:
        return None
    return max((runs[-1].ended_us - runs[0].ended_us) / 1e6 / (len(runs) - 1), 1.0)
