"""What every test run shares: fixtures as plugins, a clean environment, the order of a run."""

from __future__ import annotations

import gc
import os

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = [
    "tests.skips",
    "tests.lengths",
    "tests.fixtures.settings",
    "tests.fixtures.services",
    "tests.fixtures.mysql_servers",
    "tests.fixtures.sources",
    "tests.fixtures.capture",
    "tests.fixtures.spark",
    "tests.fixtures.object_storage",
    "tests.fixtures.bigquery",
    "tests.fixtures.blocks",
    "tests.fixtures.catalogs",
    "tests.fixtures.iceberg_catalogs",
]


# With Python's own threshold, looking for circles took a tenth of the quick tests' CPU.
gc.set_threshold(50_000, 10, 10)


def pytest_collection_finish() -> None:
    """Leave what thousands of tests are made of out of every collection of garbage."""
    gc.collect()
    gc.freeze()


hypothesis.settings.register_profile("tideline", deadline=None, print_blob=True)
hypothesis.settings.load_profile("tideline")


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TIDELINE_ variable of the developer's shell would win over what a test sets."""
    for name in [name for name in os.environ if name.startswith("TIDELINE_")]:
        if name != "TIDELINE_CACHE":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_loss_of_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that this process writes need not outlive one, and waiting for disks took a third of
    the unit tests' time. Other processes wait as they do in earnest."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


SPARK = (
    (
        "spark and sources",
        (
            "tests/spark/test_changes_merged.py",
            "tests/spark/test_keyless_warehouse.py",
            "tests/spark/test_modes.py",
            "tests/spark/test_mysql_warehouse.py",
            "tests/spark/test_parity.py",
            "tests/spark/test_rebuild.py",
            "tests/spark/test_restored.py",
            "tests/spark/test_verify.py",
            "tests/faults/test_jobs_",
            "tests/integration/test_pending.py",
            "tests/release_before/",
        ),
    ),
    ("spark", ("tests/spark/", "tests/conformance/test_target.py")),
)
"""Tests that share one Spark application, in two groups that take as long, one for each core."""
REPOSITORY = "tests/unit/repository/"
"""Its tests look at all of the code, which one process reads once (`tests/support/code.py`)."""
FIRST = (
    "spark",
    "spark and sources",
    "tests/demo/test_demo.py",
    "tests/conformance/test_source.py",
    "tests/conformance/test_keyless.py",
    "tests/airflow/test_airflow_scheduler.py",
    "tests/simulation/test_simulator.py",
    "tests/integration/test_by_hand.py",
)
"""What takes longest, and beside it what waits for servers more than it computes."""


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process: those of a file, those that share
    Spark, and those that look at all of the code."""
    for group, files in SPARK:
        if nodeid.startswith(files):
            return group
    if nodeid.startswith(REPOSITORY):
        return REPOSITORY
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(group_of(item.nodeid), len(ranks)))


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Spreads groups over the processes of a run with ``--numprocesses``."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    return Groups(config, log)
