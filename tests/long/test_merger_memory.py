"""A merger's session over thousands of rounds: its memory stays as it was after the first tenth.

``FOLLOW_ROUNDS=300 pytest tests/long/test_merger_memory.py`` plays fewer: 10,000 take hours.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.fixtures.capture import poll
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline_console.follow.plan_runs import PlanRuns
from tideline_console.follow.rounds import Rounds
from tideline_console.spark import spark_session

KEYS = 100
"""The table's rows, which are written again and again: what it takes to read the log of a table of
ten thousand files is that table's, not the merger's."""
ROUNDS = int(os.environ.get("FOLLOW_ROUNDS", "10000"))
T = "public.t"
TOLERATED = 0.15
"""Of what each took after the first tenth: Java's heap has a fixed end, but is not used up to it by
then."""


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def has_merged(rounds: Rounds, count: int) -> bool:
    return rounds.beat().tables_merged >= count


@pytest.mark.timeout(12 * 3600)
def test_memory_is_flat(tmp_path: Path) -> None:
    """In a process of its own Spark: run alone, where no other test has one."""
    history = History(tmp_path, merge={"follow_interval_s": 0.05, "driver_memory": "1g"})
    history.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    with spark_session(history.settings, "merge", long_lived=True) as session:
        java = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        rounds = Rounds(history.settings, PlanRuns(history.settings, session))
        thread = threading.Thread(target=rounds.run)
        thread.start()
        taken: list[tuple[float, float]] = []
        for number in range(1, ROUNDS + 1):
            history.commit(Row(T, "u" if number > KEYS else "c", {"id": number % KEYS}))
            poll("it is merged", partial(has_merged, rounds, number), timeout_s=600)
            if number % max(1, ROUNDS // 10) == 0:
                taken.append((resident_mib(os.getpid()), resident_mib(java)))
                print(f"{number} rounds: Python {taken[-1][0]:.0f} MiB, Java {taken[-1][1]:.0f}")
        rounds.stop()
        thread.join()
    for what, first, last in zip(("Python", "Java"), taken[0], taken[-1], strict=True):
        assert last <= first * (1 + TOLERATED), f"{what} grew from {first:.0f} to {last:.0f} MiB"
