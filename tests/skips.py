"""No test is skipped in CI but for a reason on the list. Imports nothing of the project."""

from __future__ import annotations

import os
from collections import Counter

import pytest

NO_BIGQUERY = "no project of BigQuery is named for tests"

# Reasons that a test may be skipped for in CI. Every entry needs a sentence that says why.
ALLOWED_SKIPS: frozenset[str] = frozenset(
    {
        # It comes from Debian's unstable suite, which drifts; 8.0 runs the same tests.
        "MySQL 9 cannot be had on this machine",
        # It comes through Maven, for one architecture; MariaDB runs most of the same tests, and
        # docker-compose.yml has a MySQL.
        "MySQL 8.0 cannot be had on this machine",
        # Spark 4.0 alone, which `make matrix` runs: its Hadoop is older.
        "the Hadoop of this Spark has no create-only write to S3",
        # Root alone may mount; what it tests has a form without executors, too.
        "this user may not give a process mounts of its own",
        # Debian's is too old for secrets from variables; other tests of the files stand in for it.
        "Docker Compose cannot be had on this machine",
        # Root alone can install it; the other tests of Airflow ask its API.
        "Chromium cannot be had on this machine",
        # Google's own service takes an account and costs money; the emulator stands in for it.
        NO_BIGQUERY,
    }
)


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
