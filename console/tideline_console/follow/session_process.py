"""The process that holds a merger's Spark session: ``python -m … --config PATH --beats FD``.

It writes a `Beat` to the pipe ``FD`` each time its session has answered, takes
an `Order` from each line of standard input, and ends when that ends. Exit status: 0 after an order
to stop, `EXIT_SICK` when the session does not answer, else as commands have it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from tideline.contract.errors import TidelineError
from tideline.settings import load_settings
from tideline_console.errors import exit_code
from tideline_console.follow.log import set_up_log
from tideline_console.follow.messages import EXIT_SICK, LineBuffer, Order, line
from tideline_console.follow.plan_runs import PlanRuns
from tideline_console.follow.rounds import Rounds
from tideline_console.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEAT_S = 1.0
STATEMENT_EVERY = 10
"""Beats for each statement: one takes 0.02 CPU seconds. Before the others Java alone is asked."""
_READ_BYTES = 65_536

log = structlog.get_logger("tideline.merger")


def main(on_point: Callable[[str], None] = lambda point: None) -> int:
    """Run as the process's entry point; return its exit status. ``on_point``: see `run_plan`."""
    parser = argparse.ArgumentParser(description="hold a merger's Spark session")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--beats", type=int, required=True)
    options = parser.parse_args()
    set_up_log()
    try:
        settings = load_settings(options.config)
        with spark_session(settings, "merge", long_lived=True) as session:
            rounds = Rounds(settings, PlanRuns(settings, session, on_point=on_point))
            over = threading.Event()
            for work in (
                lambda: _beats(rounds, session, options.beats, over),
                lambda: _orders(rounds),
            ):
                threading.Thread(target=work, daemon=True).start()
            try:
                rounds.run()
            finally:
                over.set()  # Before the session ends, which is no sickness then.
    except TidelineError as error:
        log.error(error.message, hint=error.hint)
        return exit_code(error)
    return 0


def _orders(rounds: Rounds) -> None:
    """Carry out orders. Without a supervisor, no one keeps the lease: end at once, whatever is
    under way; merges may be cut off anywhere."""
    stopping = False
    lines = LineBuffer()
    # Not by sys.stdin: its lock would still be held when the interpreter ends.
    while data := os.read(0, _READ_BYTES):
        for raw in lines.feed(data):
            order = msgspec.json.decode(raw, type=Order)
            for plan_id in order.run:
                rounds.ask(plan_id)
            if order.reserved is not None:
                rounds.reserve(order.reserved)
            if order.stop:
                stopping = True
                rounds.stop()
    if not stopping:
        os._exit(EXIT_SICK)


def _beats(rounds: Rounds, session: SparkSession, pipe: int, over: threading.Event) -> None:
    """Write a beat each time the session has answered, until ``over``; end the process when it does
    not answer before."""
    java = _java_pid(session)
    for number in itertools.count():
        try:
            if session.sparkContext._jsc.sc().isStopped():
                raise ConnectionError
            if number % STATEMENT_EVERY == 0:
                # Needs no job, whose tasks would wait for those of merges.
                session.sql("VALUES (1)").collect()
        except Exception as error:  # noqa: BLE001  whatever it is, the session is sick
            if over.is_set():
                return
            log.error("the Spark session does not answer", reason=type(error).__name__)
            os._exit(EXIT_SICK)
        memory = _resident_bytes(os.getpid()) + _resident_bytes(java)
        beat = msgspec.structs.replace(rounds.beat(), memory_bytes=memory)
        try:
            os.write(pipe, line(beat))
        except OSError:
            os._exit(EXIT_SICK)
        if over.wait(BEAT_S):
            return


def _java_pid(session: SparkSession) -> int | None:
    gateway = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def _resident_bytes(pid: int | None) -> int:
    """Return the resident memory of a process; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    sys.exit(main())
