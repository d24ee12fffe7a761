"""A merge in a process of its own that is killed between two of its tables' commits.

``python -m tests.faults.merger CONFIG PLAN POINTS``: the first table to come before its commit is
held there; when another one is past its commit, the process kills itself and its JVM. So one death
leaves a table just before and a table just after. Every point is written to the file ``POINTS``
before anything is done about it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from tideline.java import java_home
from tideline.local_spark import short_lived
from tideline.planner import plan_merge
from tideline.settings import load_settings
from tideline.warehouse.delta.log_store import jars_with_log_store
from tideline_spark.merge import run_plan
from tideline_spark.session import make_session
from tideline_spark.table_run import AFTER_COMMIT

_HELD_S = 120.0


class Death:
    """What `run_plan` calls at its points, from any of its threads."""

    def __init__(self, points: Path) -> None:
        self._file = os.open(points, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._first = threading.Lock()
        self._never = threading.Event()

    def __call__(self, point: str) -> None:
        os.write(self._file, f"{point}\n".encode())
        if point == AFTER_COMMIT:
            os.killpg(0, signal.SIGKILL)
        if self._first.acquire(blocking=False):
            self._never.wait(_HELD_S)


def main() -> None:
    config, plan_id, points = sys.argv[1:]
    settings = load_settings(config)
    os.environ["JAVA_HOME"] = str(java_home())
    session = make_session(
        master="local[2]",
        driver_memory="1g",
        jars=jars_with_log_store(),
        app_name="tideline-doomed",
        scratch=Path(points).parent / "doomed",
        java_options=short_lived(),
    )
    run_plan(session, plan_merge(settings, plan_id=plan_id), on_point=Death(Path(points)))


if __name__ == "__main__":
    main()
