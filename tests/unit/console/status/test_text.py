"""The status as people read it: dumps that are under way, and how the last ones ended."""

from __future__ import annotations

import re

import pytest

from tideline.contract.request import Answer, RequestState, TableProgress
from tideline_console.status.document import Status, WorkerState
from tideline_console.status.text import ENDED_SHOWN, _print_dumps

SLOWED = TableProgress(
    "public.orders",
    RequestState.THROTTLED,
    chunks=3,
    chunks_estimate=12,
    rows=1_030,
    rows_estimate=12_000,
    rows_per_s=214.6,
    remaining_s=3_725.2,
    waiting="running queries 9, limit 4",
)


def printed(capsys: pytest.CaptureFixture[str], **fields: object) -> list[str]:
    """The lines, with runs of blanks as one."""
    status = Status(pipeline="shop", at_us=0, worker=WorkerState.LIVE, **fields)  # type: ignore[arg-type]
    _print_dumps(status)
    return [re.sub(r"\s+", " ", line).strip() for line in capsys.readouterr().out.splitlines()]


def test_every_figure_of_a_dump_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, dumps=(Answer("r1", RequestState.THROTTLED, tables=(SLOWED,)),))
    assert (
        "r1 public.orders throttled 3 12 1,030 12,000 214.6 1:02:05 running queries 9, limit 4"
        in lines
    )


def test_how_requests_ended(capsys: pytest.CaptureFixture[str]) -> None:
    failed = TableProgress("public.a", RequestState.FAILED, rows=7, error="it has no key")
    ended = [
        Answer(f"r{number}", RequestState.DONE, manifest_number=number, tables=(SLOWED,))
        for number in range(ENDED_SHOWN + 3)
    ]
    why = Answer(
        "last", RequestState.FAILED, tables=(failed,), error="public.a: it has no key", hint="add"
    )
    lines = printed(capsys, ended=(*ended, why))
    assert "last failed 1 7 - public.a: it has no key; add" in lines
    assert "r12 done 1 1,030 12 -" in lines
    assert len([line for line in lines if line.startswith("r")]) == ENDED_SHOWN - 1


def test_that_all_are_paused_is_said_although_none_is_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "tideline resume --all" in printed(capsys, paused=True)[0]
    assert printed(capsys) == []
