"""What `tideline rebuild` says, and when it ends; the steps themselves are tested with Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from tests.fixtures.parts import History, schema_of
from tideline.contract.modes import Mode
from tideline.contract.moves import PlannedMove
from tideline.contract.plan import Plan, PlannedSwap
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.control.reservation import Reservation
from tideline_console import rebuild
from tideline_console.app import app
from tideline_console.arguments import RebuildOptions
from tideline_console.rebuild import run

T = "public.t"
RECORD = RebuildRecord(T, 3, "one", 0, Mode.HISTORY)


def step(**given: Any) -> Plan:
    return Plan("p", "shop", "one", "file:///store", 5, (), **given)


def answer(outcome: Outcome, **given: Any) -> Receipt:
    return Receipt("p", "shop", "one", (TableReceipt(T, outcome, 5, 9, **given),))


class Script:
    """The planner's steps and the jobs' receipts, one after another; ``ran`` counts the jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Plan | Receipt | None) -> None:
        self.answers = list(answers)
        self.ran = 0
        self.asked: list[dict[str, Any]] = []

        @contextmanager
        def session(settings: Any, what: str) -> Iterator[None]:
            yield None

        def next_step(settings: Any, record: Any, **given: Any) -> Any:
            self.asked.append(given)
            return self.answers.pop(0)

        def run_plan(spark: Any, plan: Any, **given: Any) -> Any:
            self.ran += 1
            return self.answers.pop(0)

        monkeypatch.setattr(rebuild, "begin_rebuild", lambda settings, table, **given: RECORD)
        monkeypatch.setattr(rebuild, "next_step", next_step)
        monkeypatch.setattr(rebuild, "spark_session", session)
        monkeypatch.setattr(rebuild, "store_receipt", lambda settings, receipt: None)
        monkeypatch.setattr("tideline_spark.merge.run_plan", run_plan)


def test_steps_are_taken_until_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = answer(Outcome.REFUSED, error="the live table stands at manifest 6")
    script = Script(
        monkeypatch, step(), answer(Outcome.APPLIED), step(), refused, step(),
        answer(Outcome.APPLIED, external_changes=("version 4: DELETE (undone by the swap)",)), None,
    )  # fmt: skip
    assert run(History(tmp_path).settings, T, RebuildOptions(accept_differences=True)) == 0
    assert script.ran == 3
    assert script.asked == [{"accept_differences": True}] * 4
    reported = capsys.readouterr().out
    assert "stands at manifest 6" in reported
    assert "changed by someone else: version 4: DELETE" in reported
    assert reported.endswith("public.t is rebuilt, as history\n")


def test_a_difference_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = answer(Outcome.FAILED, error="2 keys missing", hint="see", differences={"missing": 2})
    Script(monkeypatch, step(), failed)
    assert run(History(tmp_path).settings, T, RebuildOptions()) == 1
    assert re.search(r"2 keys missing\n +hint: see\n$", capsys.readouterr().out)


def test_a_table_that_is_held_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(monkeypatch, step(delayed={T: "parts are removed"}))
    assert run(History(tmp_path).settings, T, RebuildOptions()) == 1
    assert script.ran == 0
    assert "parts are removed" in capsys.readouterr().out


def test_what_is_not_compared_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = schema_of(T, {"id": "int32"}, ["id"])
    swap = PlannedSwap(T, "live", "beside", schema, 5, 9, "app", "app", 3)
    behind = replace(swap, live_to_manifest=2)
    Script(
        monkeypatch, step(swaps=(swap,)), answer(Outcome.REFUSED, error="it moved on"),
        step(swaps=(behind,)), answer(Outcome.APPLIED), None,
    )  # fmt: skip
    assert run(History(tmp_path).settings, T, RebuildOptions()) == 0
    reported = capsys.readouterr().out
    assert "comparing and swapping at manifest 5" in reported
    assert "without comparing: the live table cannot go on from manifest 2" in reported


def test_a_swap_is_planned_again_once_a_merger_has_left_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was merged every few seconds: the first plan's swap would be refused."""
    schema = schema_of(T, {"id": "int32"}, ["id"])
    swap = PlannedSwap(T, "live", "beside", schema, 5, 9, "app", "app", 3)
    script = Script(
        monkeypatch, step(), answer(Outcome.APPLIED), step(swaps=(swap,)),
        step(), answer(Outcome.APPLIED), step(swaps=(swap,)), answer(Outcome.APPLIED), None,
    )  # fmt: skip
    began: list[int] = []

    def begin(made: Reservation) -> bool:
        began.append(script.ran)
        return len(began) == 1

    monkeypatch.setattr(Reservation, "begin", begin)
    assert run(History(tmp_path).settings, T, RebuildOptions()) == 0
    assert (began, script.ran) == ([1, 2], 3)


def test_a_move_says_what_it_copies_and_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A merger leaves the table alone for the last step, not for the copy."""
    schema = schema_of(T, {"id": "int32"}, ["id"])
    copy = PlannedMove(T, "file:///t", "iceberg://t", schema, 5, 9, "new", "old", 3, copy=True)
    last = replace(copy, copy=False)
    script = Script(
        monkeypatch, step(moves=(copy,)), answer(Outcome.APPLIED),
        step(moves=(last,)), answer(Outcome.APPLIED), None,
    )  # fmt: skip
    begun: list[dict[str, Any]] = []

    def begin_rebuild(settings: Any, table: str, **given: Any) -> RebuildRecord:
        begun.append(given)
        return replace(RECORD, to="iceberg", target="iceberg://t")

    began: list[int] = []
    monkeypatch.setattr(rebuild, "begin_rebuild", begin_rebuild)
    monkeypatch.setattr(Reservation, "begin", lambda made: began.append(script.ran))
    assert run(History(tmp_path).settings, T, RebuildOptions(to="iceberg")) == 0
    assert ([one["to"] for one in begun], began) == (["iceberg"], [1])
    reported = capsys.readouterr().out
    assert "rebuild 3 of public.t, as history, to iceberg" in reported
    assert "copying file:///t to iceberg://t" in reported
    assert "comparing with the copy, which takes over, at manifest 5" in reported
    assert "public.t is at iceberg://t; `tideline delete-former public.t` removes" in reported
    assert "the settings still say delta" in reported


def test_a_format_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline_console.commands.warehouse.job_settings_at", lambda _: None)
    refused = CliRunner().invoke(app, ["rebuild", T, "--to", "hudi"])
    assert (refused.exit_code, "'hudi'" in refused.output) == (2, True)


def test_a_mode_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RebuildOptions] = []
    monkeypatch.setattr("tideline_console.commands.warehouse.job_settings_at", lambda _: None)
    monkeypatch.setattr(
        "tideline_console.rebuild.run", lambda _, table, options: asked.append(options)
    )
    runner = CliRunner()
    refused = runner.invoke(app, ["rebuild", T, "--mode", "scd2"])
    assert (refused.exit_code, "'scd2'" in refused.output, asked) == (2, True, [])
    for words in (["--mode", "append"], []):
        runner.invoke(app, ["rebuild", T, *words, "--since-dump"])
    assert asked == [
        RebuildOptions(mode=Mode.APPEND, since_dump=True),
        RebuildOptions(since_dump=True),
    ]
