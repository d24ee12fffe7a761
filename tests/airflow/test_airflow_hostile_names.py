"""Names of tables, whatever is in them, through operators, their logs and errors, XComs, assets and
pages: as data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from tests.airflow.stub_worker import StubWorker, done
from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.airflow.test_airflow_merge import Submit
from tests.airflow.test_airflow_merge import plan as planned
from tests.airflow.test_airflow_merge import submit as submit
from tests.fixtures.hostile_names import NAMES
from tideline import planner
from tideline.contract.printable import printable
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress
from tideline.contract.schema import TableId
from tideline_airflow import progress
from tideline_airflow.assets import MERGED, table_asset
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.dag_set import tideline_dags
from tideline_airflow.dump import DumpOperator
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.log_lines import log_line
from tideline_airflow.merge import MergeOperator
from tideline_airflow.running import SHOWN_MAX, described, running

TABLES = [str(TableId(name, name)) for name in (one.name for one in NAMES)]


FOLDS = re.compile("::(end)?group::")
"""What Airflow's page looks for in each line of a log: it leaves that line out."""


def hides(line: str) -> bool:
    """Whether something of ``line`` is not seen, or it is not itself; that spark-submit's lines are
    folded is ours to say."""
    ours = line.startswith(("::group::what spark-submit", "::endgroup::"))
    return printable(line) != line or (FOLDS.search(line) is not None and not ours)


def test_a_dump_of_all(
    config: Path, worker: StubWorker, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TABLES_SHOWN", len(TABLES))  # A line has the first ones alone.
    ask = DumpOperator(task_id="ask", tables=TABLES, config=str(config))
    found = ask.execute(TaskContext(ask).values)
    assert list(json.loads(json.dumps(found))["tables"]) == TABLES
    (request,) = worker.requests.values()
    assert list(request.tables) == TABLES
    shown = task_log.lines()
    assert [line for line in shown if hides(line)] == []
    assert all(any(log_line(table) in line for line in shown) for table in TABLES)


def test_a_dump_that_fails(config: Path, worker: StubWorker) -> None:
    def failed(request: DumpRequest) -> Answer:
        error = "; ".join(f"{table} is gone" for table in request.tables)
        state = RequestState.FAILED
        return replace(done(request), state=state, error=error, hint=request.tables[0])

    worker.replace_dump(failed)
    ask = DumpOperator(task_id="ask", tables=TABLES, config=str(config))
    with pytest.raises(AirflowFailException) as caught:
        ask.execute(TaskContext(ask).values)
    assert not hides(str(caught.value))
    assert all(f"{log_line(table)} is gone" in str(caught.value) for table in TABLES)


def test_a_merge(
    config: Path,
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
    task_log: TaskLog,
) -> None:
    def plan(_: object, *, plan_id: str, tables: Any = None) -> Any:
        return replace(planned(plan_id, tables), delayed={n: f"{n} is delayed" for n in TABLES})

    monkeypatch.setattr(planner, "plan_merge", plan)
    merge = MergeOperator(task_id="merge", tables=TABLES, config=str(config))
    submit.shall(dict.fromkeys(TABLES, "applied"), dict.fromkeys(TABLES, "failed"))
    context = TaskContext(merge).values
    found = merge.execute(context)
    assert json.loads(json.dumps(found)) == found and set(found["tables"]) == set(TABLES)
    events = context["outlet_events"][MERGED].asset_alias_events
    assert len({one.dest_asset_key.uri for one in events}) == len(TABLES)
    again = MergeOperator(task_id="again", tables=TABLES, config=str(config))
    with pytest.raises(AirflowException) as caught:
        again.execute(TaskContext(again).values)
    assert not hides(str(caught.value))
    shown = task_log.lines()
    assert [line for line in shown if hides(line)] == []
    assert all(any(f"{log_line(table)} is delayed" in line for line in shown) for table in TABLES)


def test_assets_are_plain_and_told_apart() -> None:
    assets = [table_asset("shop", table) for table in TABLES]
    assert len({one.uri for one in assets}) == len({one.name for one in assets}) == len(TABLES)
    for one in assets:
        assert re.fullmatch(r"tideline://shop/[\w~-]+/[\w~-]+", one.uri, re.ASCII)


def test_the_control_form_shows_names_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = [
        Answer(f"r{at:03d}", RequestState.RUNNING, tables=(TableProgress(t, RequestState.RUNNING),))
        for at, t in enumerate(TABLES)
    ]
    control_client = SimpleNamespace(
        workers=lambda: [SimpleNamespace(dumps=dumps)], close=lambda: None
    )
    monkeypatch.setattr(TidelineHook, "__init__", lambda self, config: None)
    monkeypatch.setattr(TidelineHook, "control_client", lambda self, timeout_s: control_client)
    lines = running("nowhere")
    assert lines is not None and len(lines) == len(TABLES)
    for at in range(0, len(TABLES), SHOWN_MAX):
        text = described(lines[at : at + SHOWN_MAX])
        page = MarkdownIt("js-default", {"linkify": False}).parse(text)
        items = [one.children for one in page if one.type == "inline"][1:]
        assert len(items) == len(TABLES[at : at + SHOWN_MAX])
        for item, table in zip(items, TABLES[at:], strict=False):
            assert item is not None
            assert [one.type for one in item] == ["code_inline", "text", "code_inline"]
            assert (item[1].content, item[2].content) == (" running: ", printable(table))


@pytest.mark.parametrize(("dag", "task", "field"), [
    ("repair", "ask", "tables"), ("verify", "read", "tables"), ("maintain", "maintain", "tables"),
    ("rebuild", "rebuild", "table"), ("aggregate", "aggregate", "names"),
])  # fmt: skip
def test_a_name_in_a_form_is_no_template(config: Path, dag: str, task: str, field: str) -> None:
    made = tideline_dags(str(config))[f"tideline_{dag}"]
    operator: Any = made.get_task(task)
    given = None if field == "table" else TABLES
    for table in TABLES[:: 1 if given is None else len(TABLES)]:
        value = given or table
        params = dict.fromkeys(made.params) | {field: value}
        shown = operator.render_template(
            getattr(operator, field), {"params": params}, made.get_template_env()
        )
        assert shown == value


def test_what_a_task_returns_is_no_template_for_the_next(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of a dump's result become a merge's by an XCom, whose value Airflow asks for."""
    made = tideline_dags(str(config))["tideline_repair"]
    merge: Any = made.get_task("merge")
    found = {"tables": dict.fromkeys(TABLES, 1)}
    monkeypatch.setattr(type(merge.tables), "resolve", lambda self, context: found)
    shown = merge.render_template(merge.tables, {}, made.get_template_env())
    assert shown == {"tables": dict.fromkeys(TABLES, 1)}
