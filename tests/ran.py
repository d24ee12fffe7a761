"""A plugin of pytest that writes down what ran, for ``tests/suite.py`` to judge the run by."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.suite import Record, read

WHY_LINES = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--suite-record", type=Path, help="where to write down what ran")
    group.addoption("--suite-again", type=Path, help="record of the run whose failures run again")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("suite_record")
    if path is None or hasattr(config, "workerinput"):
        return
    again = config.getoption("suite_again")
    wanted = None if again is None else set(read(again).failed)
    config.pluginmanager.register(Recorder(path, wanted), "suite-recorder")


class Recorder:
    """Writes down what ran, in the process that xdist's workers report to if there are any."""

    def __init__(self, path: Path, wanted: set[str] | None) -> None:
        self.path = path
        self.wanted = wanted
        self.record = Record()
        self.collected: set[str] = set()
        self.ended: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected.update(item.nodeid for item in session.items)
        # --last-failed selects every test where it finds none of those that failed.
        if self.wanted is not None and self.collected != self.wanted:
            self.record.troubles.append("pytest selected other tests than those that failed")
            pytest.exit(self.record.troubles[-1])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.collected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error is not None:
            self.record.troubles.append(f"worker {node.gateway.id} died: {error}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.record.troubles.append(f"cannot be collected: {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.record.failed.setdefault(report.nodeid, why(report))
            self.record.reports.append(whole(report))
        elif report.passed and report.when == "call":
            self.record.passed.append(report.nodeid)
        if report.when == "teardown":
            self.ended.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        guard = session.config.pluginmanager.get_plugin("tideline-skip-guard")
        skips = getattr(guard, "unexpected", ())
        self.record.troubles.extend(f"unexpected skip: {skip}" for skip in skips)
        if lost := self.collected - self.ended:
            self.record.troubles.append(f"{len(lost)} did not run or end, such as {min(lost)}")
        self.path.write_text(json.dumps(dataclasses.asdict(self.record), sort_keys=True))


def why(report: pytest.TestReport) -> str:
    """Say in a few lines why a test failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else str(crash.message)
    return "\n".join(text.splitlines()[:WHY_LINES])


def whole(report: pytest.TestReport) -> str:
    """Give all of a report, with what was captured."""
    captured = (f"--- {title} ---\n{text}" for title, text in report.sections)
    return "\n".join([f"=== {report.nodeid} ({report.when})", report.longreprtext, *captured, ""])
