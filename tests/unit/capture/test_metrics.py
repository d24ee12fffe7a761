"""The metrics: what is in them, that what ended leaves them, and that the page lists them all."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from tests.fixtures.core import LIMITS, limits_with
from tests.fixtures.systems import REAL
from tideline.contract.request import Answer, RequestState, TableProgress
from tideline_capture.core.facts import SourceLoad
from tideline_capture.core.snapshots.governor import Governor
from tideline_capture.core.worker import Worker
from tideline_capture.metrics import TABLES_MAX, Metrics
from tideline_capture.uploader import Uploader

PAGE = Path(__file__).parents[3] / "docs" / "METRICS.md"
RUNNING = Answer(
    "r1",
    RequestState.RUNNING,
    tables=(
        TableProgress(
            "public.a",
            RequestState.RUNNING,
            chunks=3,
            rows=30,
            rows_estimate=110,
            rows_per_s=12.5,
            remaining_s=6.4,
        ),
        TableProgress("public.b", RequestState.ACCEPTED),
    ),
)

NOW = 1_000.0


def core(governor: Governor | None = None) -> Worker:
    scheduler = SimpleNamespace(governor=governor or Governor(LIMITS))
    made = SimpleNamespace(
        state=SimpleNamespace(last_seq=900, requests=[1]),
        dumps=SimpleNamespace(redone=2, scheduler=scheduler),
        unknown_watermarks=3,
    )
    return cast(Worker, made)


def uploader(since: float | None = None) -> Uploader:
    return cast(Uploader, SimpleNamespace(pending_bytes=77, unavailable_since=since))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tideline_{name}", labels)


def test_progress_of_each_table() -> None:
    metrics = Metrics("p", REAL)
    metrics.observe(core(), uploader(), [RUNNING], now=NOW)
    table = {"request": "r1", "table": "public.a"}
    assert value(metrics, "request_state", request="r1", state="running") == 1
    assert value(metrics, "dump_state", **table, state="running") == 1
    found = {
        name: value(metrics, f"dump_{name}", **table)
        for name in ("chunks", "rows", "rows_estimate", "rows_per_second", "remaining_seconds")
    }
    assert list(found.values()) == [3, 30, 110, 12.5, 6.4]
    other = {"request": "r1", "table": "public.b"}
    assert value(metrics, "dump_rows", **other) == 0
    assert value(metrics, "dump_rows_estimate", **other) is None
    metrics.observe(core(), uploader(), [], now=NOW)
    assert value(metrics, "dump_rows", **table) is None
    assert value(metrics, "request_state", request="r1", state="running") is None


def test_a_request_of_very_many_tables_is_bounded() -> None:
    done = [TableProgress(f"a.t{n}", RequestState.DONE) for n in range(TABLES_MAX)]
    tables = (*done, TableProgress("a.last", RequestState.RUNNING))
    metrics = Metrics("p", REAL)
    metrics.observe(
        core(), uploader(), [Answer("all", RequestState.RUNNING, tables=tables)], now=NOW
    )
    text = generate_latest(metrics.registry).decode()
    assert text.count("tideline_dump_rows{") == TABLES_MAX
    assert 'tideline_dump_rows{request="all",table="a.last"}' in text


@pytest.mark.parametrize(
    ("by", "load", "limits"),
    [
        ("replica_lag", SourceLoad(replica_lag_s=9.0), {"replica_lag_max_s": 5.0}),
        ("running_queries", SourceLoad(running_queries=9), {"running_queries_max": 5}),
        ("log_backlog", SourceLoad(log_backlog_bytes=9), {"log_backlog_max_bytes": 5}),
    ],
)
def test_what_dumps_are_throttled_by(by: str, load: SourceLoad, limits: dict[str, Any]) -> None:
    governor = Governor(limits_with(**limits))
    metrics = Metrics("p", REAL)
    metrics.observe(core(governor), uploader(), now=NOW)
    assert value(metrics, "throttled", by=by) == 0
    governor.saw_load(load, now=NOW)
    metrics.observe(core(governor), uploader(), now=NOW)
    kinds = ("replica_lag", "running_queries", "log_backlog")
    found = {kind: value(metrics, "throttled", by=kind) for kind in kinds}
    assert found == {kind: float(kind == by) for kind in kinds}


def test_the_store_and_the_source() -> None:
    metrics = Metrics("p", REAL)
    metrics.observe(core(), uploader(NOW - 60), now=NOW)
    assert value(metrics, "store_unavailable_seconds") == 60
    metrics.observe(core(), uploader(), now=NOW)
    assert value(metrics, "store_unavailable_seconds") == 0
    assert value(metrics, "pending_bytes") == 77
    metrics.loaded(SourceLoad(2.5, 7, 1_000, "soon"))
    names = ("replica_lag_seconds", "running_queries", "log_backlog_bytes", "log_expiring")
    assert [value(metrics, name) for name in names] == [2.5, 7, 1_000, 1]
    metrics.loaded(SourceLoad())
    assert [value(metrics, name) for name in names] == [2.5, 7, 1_000, 0]


def test_the_page_lists_them_all() -> None:
    page = PAGE.read_text().partition("# Metrics of the warehouse's tables")[0]
    listed = set(re.findall(r"^\| `(tideline_\w+)`", page, re.MULTILINE))
    metrics = Metrics("p", REAL)
    metrics.observe(core(), uploader(), [RUNNING], now=NOW)
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in metrics.registry.collect()
    }
    assert served == listed
