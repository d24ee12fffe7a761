"""``python -m devtools.benchmarks.start_steps CONFIG``: the steps of ``tideline merge``.

It runs as a separate process, so that nothing is imported yet and no Java is warm. After each step
it prints a JSON line: the step, the wall time since the process started, and the CPU of it and of
its child processes. Steps that the command does not have separately (a look at the Delta table, a
job) run before the merge, which is the shorter for it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec


class Step(msgspec.Struct, frozen=True):
    """The time used from the process's start to the end of a step."""

    name: str
    wall_s: float
    cpu_s: float


def note(name: str) -> None:
    print(msgspec.json.encode(Step(name, _wall_s(), _cpu_s())).decode(), flush=True)


def _wall_s() -> float:
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _cpu_s() -> float:
    """Return the CPU of this process and its descendants; an ended one counts in its parent."""
    import psutil  # not before the first step, which it is no part of

    me = psutil.Process()
    used = [one.cpu_times() for one in (me, *me.children(recursive=True))]
    return float(sum(sum(one[:4]) for one in used))


def main(config: Path) -> None:
    """Run the steps, in order; imports are some of them."""
    from tideline_console import app  # noqa: F401  what there is before the command's name is looked at
    from tideline_console.commands.options import settings_at

    note("imports of the program")
    settings = settings_at(config)
    from tideline.planner import plan_merge
    from tideline_console import merge  # noqa: F401  what else the command imports

    note("settings, imports of the command")
    plan = plan_merge(settings, plan_id="steps")
    note("plan")
    from tideline_console.spark import spark_session
    from tideline_spark.formats.registry import open_target
    from tideline_spark.merge import run_plan

    note("imports of Spark")
    _note_java()
    with spark_session(settings, "merge") as spark:
        note("session")
        open_target(spark, plan.tables[0].target).snapshot()
        note("first look at a table")
        spark.range(1).collect()
        note("first job")
        run_plan(spark, plan)
        note("merge")
    note("end")


def _note_java() -> None:
    """Note when Java answers; making the session continues from there."""
    context: Any = sys.modules["pyspark.core.context"]
    launch = context.launch_gateway

    def launched(*arguments: Any) -> Any:
        gateway = launch(*arguments)
        note("start of Java")
        return gateway

    context.launch_gateway = launched


if __name__ == "__main__":
    main(Path(sys.argv[1]))
