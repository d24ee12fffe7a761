"""The dump command: what it says while a request goes on, and of its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer, DumpRequest, KeyRange, RequestState, TableProgress
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import End, ExchangeResult, Waits
from tideline_console.dump import _finish, _note, warn_if_none_runs, watch

REQUEST = DumpRequest("r1", ("public.a",))
RUNNING = Answer("r1", RequestState.RUNNING)
DONE = Answer("r1", RequestState.DONE, manifest_number=9)


@pytest.mark.parametrize("there", [True, False])
def test_who_has_sent_a_request_is_told_that_nobody_works(there: bool) -> None:
    """A queue that has gone away since tells nothing, and is no error: the request is sent."""

    class Workers:
        def workers(self) -> list[str]:
            if not there:
                raise Unavailable("away")
            return []

    reported: list[str] = []
    warn_if_none_runs(cast(ControlClient, Workers()), reported.append)
    assert len(reported) == there


def test_a_table_in_words() -> None:
    running = TableProgress(
        "public.a",
        RequestState.THROTTLED,
        chunks=3,
        rows=1_030,
        rows_estimate=12_000,
        rows_per_s=214.6,
        remaining_s=3_725.2,
        waiting="replica lag 9 s, limit 5 s",
    )
    assert _note(running) == (
        "throttled, 1,030 of about 12,000 rows, 215 a second, 1:02:05 left:"
        " replica lag 9 s, limit 5 s"
    )
    done = TableProgress("public.a", RequestState.DONE, rows=7, rows_estimate=4)
    assert _note(done) == "done, 7 rows"


def test_without_a_terminal_a_line_per_state_and_no_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Chunk by chunk would fill a log; colours and bars are for a terminal."""
    states = [
        TableProgress("public.a", RequestState.RUNNING, chunks=n, rows=n * 10) for n in (1, 2, 3)
    ]
    states.append(TableProgress("public.a", RequestState.DONE, chunks=3, rows=30))

    class Following:
        def follow(self, waits: Waits, show: Callable[[Answer], None]) -> ExchangeResult:
            for state in states:
                show(replace(RUNNING, tables=(state,)))
            return ExchangeResult(End.FINAL, DONE)

    client = cast(RequestClient, Following())
    assert watch(client) is DONE
    printed = capsys.readouterr().out
    assert printed == "public.a: running, 10 rows\npublic.a: done, 30 rows\n"
    assert watch(client, quiet=True) is DONE
    assert capsys.readouterr().out == ""


def test_a_range_that_held_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ranged = DumpRequest("r1", ("public.a",), key_range=KeyRange(("2000",), ("1000",)))
    read = TableProgress("public.a", RequestState.DONE, rows=7)
    for request, tables in ((REQUEST, ()), (ranged, (read,))):
        assert _finish(replace(DONE, tables=tables), request) == 0
        assert "the wrong way round" not in capsys.readouterr().out
    assert _finish(DONE, ranged) == 0
    assert "its ends are the wrong way round" in capsys.readouterr().out
