"""`python -m devtools demo` from end to end, played in a terminal.

One run serves all assertions, because it takes minutes: the whole line ends in equality; one
damaged value is found; Ctrl-C leaves nothing. A killed one: `tests/long/test_demo_killed.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from devtools.demo.databases.base import NAMES
from devtools.demo.traffic import read_report
from tests.fixtures.terminal import DEMO, Terminal, ended_by_ctrl_c
from tideline.settings import load_settings
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table

PLAY_TIMEOUT_S = 2_400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def played(folder: Path) -> Iterator[Terminal]:
    """A demo that has played to its end and stays up."""
    terminal = Terminal(folder)
    try:
        terminal.read_until("Ctrl-C ends it all", timeout_s=PLAY_TIMEOUT_S)
        yield terminal
    finally:
        terminal.close()


@pytest.mark.timeout(3_000)
def test_source_and_warehouse_are_equal_at_the_end(played: Terminal) -> None:
    found = re.search(r"demo: ok, (\d+) tables, (\d+) rows equal", played.text)
    assert found, played.text
    assert int(found[1]) == len(NAMES) >= 6
    assert int(found[2]) > 300_000


@pytest.mark.timeout(3_000)
def test_the_traffic_was_what_is_promised(played: Terminal, folder: Path) -> None:
    report = read_report(folder / "traffic.json")
    assert report is not None and report.finished
    assert report.rate >= 200, report
    assert report.changes >= 20_000, report
    assert report.rolled_back and report.savepoints_undone and report.changed_keys
    assert f"{report.changes:,} changes" in played.text


@pytest.mark.timeout(3_000)
def test_damage_was_done_and_healed_through_airflow(played: Terminal) -> None:
    damage = re.search(r"(\d+) rows overwritten, (\d+) deleted, (\d+) invented", played.text)
    assert damage and all(int(number) > 0 for number in damage.groups())
    assert "tideline_repair merged after" in played.text


@pytest.mark.timeout(3_000)
def test_airflow_stays_up_with_the_login_that_is_printed(played: Terminal) -> None:
    found = re.search(r"Airflow: (http://\S+)  user (\S+)  password (\S+)", played.text)
    assert found, played.text
    login = f'{{"username": "{found[2]}", "password": "{found[3]}"}}'.encode()
    request = urllib.request.Request(
        f"{found[1]}/auth/token", data=login, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


@pytest.mark.timeout(3_000)
def test_one_damaged_value_is_found(played: Terminal, folder: Path) -> None:
    again = [sys.executable, "-m", "devtools.demo.compare"]
    equal = _compare(again, folder)
    assert equal.returncode == 0 and "demo: ok" in equal.stdout, equal.stdout + equal.stderr
    _damage_one_value(folder)
    damaged = _compare(again, folder)
    assert damaged.returncode == 1, damaged.stdout + damaged.stderr
    assert "demo: FAILED, 1 differences in 1 tables" in damaged.stdout
    assert "column total: has another value" in damaged.stdout


@pytest.mark.timeout(3_000)
def test_ctrl_c_ends_it_with_0_and_leaves_no_process(played: Terminal, folder: Path) -> None:
    assert ended_by_ctrl_c(played, folder) == 0, played.text


def _damage_one_value(folder: Path) -> None:
    """Change one value of one row: the least that the comparison must find."""
    place = load_settings(folder / "tideline.toml").warehouse_storage
    orders = delta_table(f"{place.url}/public/orders", storage_options(place))
    query = QueryBuilder().register("orders", orders).execute("SELECT max(id) AS id FROM orders")
    (row,) = pa.table(query.read_all()).to_pylist()
    orders.update(predicate=f"id = {int(row['id'])}", updates={"total": "total + 0.01"})


def _compare(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, str(folder / "tideline.toml")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_source_that_there_is_not_is_named() -> None:
    done = subprocess.run(
        [*DEMO, "--source", "oracle"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "postgres, mariadb" in done.stderr, done.stderr
