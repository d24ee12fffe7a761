"""What it costs to compare the binlog's events with their checksums: the same log with and without.

The code has no switch for it: the rounds without have the comparison replaced.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from unittest import mock

from benchmarks.mysql_rig import SERVERS, MysqlRig, mysql_rig
from benchmarks.result import Result, result
from benchmarks.rig import run_until_idle
from capture.sources.mysql import intact
from tideline.settings import Settings

NAME = "mysql_checksums"
FLUSH_S = 0.25
PAIRS = 5


def run(rows: int) -> Iterator[Result]:
    """Bulk: ``rows`` inserts in 1,000-row transactions; single: a fifth as many updates, each a
    transaction. Every round is a pipeline of its own, which begins before the workload's log."""
    for name in SERVERS:
        with mysql_rig(name) as server:
            server.create()
            rounds = _begun(server, "bulk")
            server.insert_in_bulk(rows)
            yield _compared(rounds, f"{name} bulk", rows)
            rounds = _begun(server, "single")
            server.update_one_by_one(rows, rows // 5)
            yield _compared(rounds, f"{name} single", rows // 5)


def _begun(server: MysqlRig, workload: str) -> list[Settings]:
    made = [
        server.settings(pipeline=f"{workload}{place}", flush_interval_s=FLUSH_S)
        for place in range(2 * PAIRS)
    ]
    for settings in made:
        run_until_idle(settings)
    return made


def _compared(rounds: list[Settings], workload: str, changes: int) -> Result:
    """In turn, so that what else the machine does meets both; the medians of each."""
    costs: dict[bool, list[float]] = {True: [], False: []}
    for place, settings in enumerate(rounds):
        checked = place % 2 == 0
        skipped = mock.patch.object(intact, "first_damaged", lambda *_: None)
        if checked:
            cost = run_until_idle(settings)
        else:
            with skipped:
                cost = run_until_idle(settings)
        if cost.rows != changes:
            raise RuntimeError(f"{changes} changes were made, {cost.rows} captured")
        costs[checked].append(cost.cpu_s / changes * 1e6)
    return result(
        NAME,
        workload,
        "client CPU per change",
        value=(statistics.median(costs[True]), "µs"),
        baseline=("the same without comparing checksums", statistics.median(costs[False])),
        goal="≤ 1.03 × without",
    )
