"""What every test run shares: fixtures as plugins, a clean environment, and no silent skip."""

from __future__ import annotations

import os
from collections import Counter

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = [
    "tests.fixtures.services",
    "tests.fixtures.mysql_servers",
    "tests.fixtures.sources",
    "tests.fixtures.settings",
    "tests.fixtures.capture",
    "tests.fixtures.spark",
]

# Reasons that a test may be skipped for in CI. Every entry needs a sentence that says why.
ALLOWED_SKIPS: frozenset[str] = frozenset(
    {
        # It comes from Debian's unstable suite, which drifts; 8.0 runs the same tests.
        "MySQL 9 cannot be had on this machine",
        # It comes through Maven, for one architecture; MariaDB runs most of the same tests, and
        # docker-compose.yml has a MySQL.
        "MySQL 8.0 cannot be had on this machine",
    }
)

hypothesis.settings.register_profile("tideline", deadline=None, print_blob=True)
hypothesis.settings.load_profile("tideline")


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TIDELINE_ variable of the developer's shell would win over what a test sets."""
    for name in [name for name in os.environ if name.startswith("TIDELINE_")]:
        if name != "TIDELINE_CACHE":
            monkeypatch.delenv(name)


SPARK = ("tests/spark/", "tests/faults/test_merge_killed.py", "tests/integration/test_pending.py")
"""Tests that share the one Spark application."""
LONGEST = (
    "spark",
    "tests/demo/test_demo.py",
    "tests/demo/test_demo_mariadb.py",
    "tests/airflow/test_airflow_scheduler.py",
    "tests/integration/test_by_hand.py",
)


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process: those of a file, and all that share Spark."""
    return "spark" if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(group_of(item.nodeid), len(ranks)))


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Spreads groups over the processes of a run with ``--numprocesses``."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    return Groups(config, log)


class SkipGuard:
    """Fails a run in CI that skipped a test for a reason that is not on the list."""

    def __init__(self) -> None:
        self.unexpected: list[str] = []
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in self.counts.items():
            terminalreporter.write_line(f"skipped {count}: {reason}")
        for line in self.unexpected:
            terminalreporter.write_line(f"unexpected skip: {line}", red=True)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        reason = text.removeprefix("Skipped: ")
        self.counts[reason] += 1
        if reason not in ALLOWED_SKIPS:
            self.unexpected.append(f"{report.nodeid}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI", "").lower() in ("1", "true"):
        config.pluginmanager.register(SkipGuard(), "tideline-skip-guard")
