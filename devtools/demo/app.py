"""``python -m devtools demo``: the main job, shown on its own servers, and proved at the end.

It prints Airflow's address and login. In a terminal, or with ``--stay``, it stays up afterwards
until Ctrl-C or SIGTERM. With ``DEMO_EXIT=1``, or without a terminal, it ends. ``DEMO_FOLDER`` is
where everything is kept while it runs (default: ``.run/demo`` of the clone).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from devtools.demo.databases.choose import of_kind
from devtools.demo.scenes import Scenes
from devtools.demo.screen import Screen
from devtools.demo.stage import DemoStage, Storage
from devtools.services.airflow import USER
from devtools.signals import ignore_interrupts, interrupt_on_sigterm
from tideline.contract.errors import Misconfigured, TidelineError
from tideline.contract.target_url import TableFormatName
from tideline.java import java_home
from tideline.warehouse.job_jars import every_jar, job_jars

_Word = TypeVar("_Word", bound=str)

EXIT_EQUAL = 0
EXIT_DIFFERENT = 1
KEEP = "make demo STAY=1, or python -m devtools demo --stay"
PROJECT = Path(__file__).resolve().parents[2]
STORAGES: Mapping[Storage, str] = {"s3": "an S3 server, ", "files": ""}
"""Where store and warehouse may lie, and what runs for it."""
TARGETS: Mapping[TableFormatName, str] = {
    "delta": "Delta",
    "iceberg": "Iceberg",
    "bigquery": "an emulator of BigQuery",
}
"""The formats that the warehouse's tables may have."""


def run(
    source: str = "postgres", storage: str = "s3", target: str = "delta", *, stay: bool = False
) -> int:
    """Play the demo on a ``source`` of that kind; 0: equal to the warehouse, 1: different.
    ``storage``: where store and warehouse lie, a key of `STORAGES`; ``target``: the tables' format,
    of `TARGETS`. ``stay``: it stays up afterwards, whether or not there is a terminal.

    TidelineErrors pass through; whatever happens, no process is left behind.
    """
    interrupt_on_sigterm()
    screen = Screen()
    folder = Path(os.environ.get("DEMO_FOLDER") or PROJECT / ".run" / "demo")
    database = of_kind(source)
    place = _chosen(storage, STORAGES, "storage")
    table_format = _chosen(target, TARGETS, "target")
    others = f"PostgreSQL for Airflow, Valkey, {STORAGES[place]}Airflow"
    others += f", Spark with {TARGETS[table_format]}" if table_format != "bigquery" else ", Spark"
    screen.scene(f"the stage: {database.title} for the shop, {others}")
    java_home()
    plain = place == "files" and table_format == "delta"
    (job_jars if plain else every_jar)()  # Fetched before anything runs.
    stage = DemoStage(folder, database, place, table_format)
    ended = stage.clear()  # Where another run is in the folder, all there is that one's.
    try:
        if ended:
            screen.say(f"ended what an earlier run had left behind: {', '.join(ended)}")
        code = _perform(stage, screen)
        screen.plain(f"demo: took {screen.elapsed_s:.0f} s; everything lies in {folder}")
        _show_login(stage, screen)
        if stay or stays_up():
            _stay_up(screen)
        else:
            screen.plain(f"It ends now, and its servers with it. To keep it running: {KEEP}")
    finally:
        ignore_interrupts()
        stage.stop()
    return code


def _chosen(name: str, choices: Iterable[_Word], what: str) -> _Word:
    """Return the choice that ``name`` is; Misconfigured when it is none."""
    found = [one for one in choices if one == name]
    if not found:
        raise Misconfigured(
            f"the demo has no {what} {name!r}",
            hint=f"{what.upper()} is one of {', '.join(choices)}",
        )
    return found[0]


def stays_up() -> bool:
    """Return whether the demo stays up for a user afterwards."""
    wanted = os.environ.get("DEMO_EXIT", "") in ("", "0")
    return wanted and sys.stdin.isatty() and sys.stdout.isatty()


def _perform(stage: DemoStage, screen: Screen) -> int:
    stage.start_servers()
    stage.begin_airflow()
    screen.say(f"servers answer after {screen.elapsed_s:.1f} s; Airflow starts in the background")
    try:
        result = Scenes(stage, screen).play()
    except TidelineError:
        screen.plain(f"demo: FAILED after {screen.elapsed_s:.0f} s; logs are in {stage.folder}")
        raise
    screen.plain("")
    for line in result.lines():
        screen.plain(line)
    return EXIT_EQUAL if result.equal else EXIT_DIFFERENT


def _show_login(stage: DemoStage, screen: Screen) -> None:
    airflow = stage.airflow()
    screen.plain(f"\nAirflow: {airflow.url}  user {USER}  password {airflow.password}")
    screen.plain(f"settings: tideline status --config {stage.config}")


def _stay_up(screen: Screen) -> None:
    screen.plain(f"Ctrl-C ends it all; without a terminal: kill {os.getpid()}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        screen.plain("\nending …")
