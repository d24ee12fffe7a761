"""What the worker's log has about tables: troubles with their reason and cure, and their ends."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from tideline.contract.open_state import (
    REMOVED,
    CapturedFrom,
    OpenState,
    TableCondition,
    TableState,
)
from tideline_capture.table_log import TableLog

LIVE = TableState(captured_from=CapturedFrom(seq=3))
QUARANTINED = replace(
    LIVE, condition=TableCondition.QUARANTINED, reason="it has no key", hint="add a primary key"
)


def logged(before: TableState | None, *after: TableState) -> list[dict[str, Any]]:
    """The lines about ``shop.a`` of a worker that finds it as ``before`` and then as ``after``."""
    with capture_logs() as lines:
        log = TableLog(OpenState(tables={} if before is None else {"shop.a": before}))
        for one in after:
            log.durable(OpenState(tables={"shop.a": one}), initial_dump=True)
    return [dict(line) for line in lines]


def test_a_table_that_is_not_captured_is_named_once_with_its_reason_and_cure() -> None:
    (line,) = logged(LIVE, QUARANTINED, QUARANTINED)
    assert line["log_level"] == "warning"
    assert (line["table"], line["reason"]) == ("shop.a", "it has no key")
    assert line["hint"] == "add a primary key"


def test_a_worker_that_starts_names_what_is_in_trouble_already() -> None:
    (line,) = logged(QUARANTINED)
    assert "quarantined" in line["event"]


def test_another_reason_is_another_line() -> None:
    other = replace(QUARANTINED, reason="it has no identity")
    assert [line["reason"] for line in logged(LIVE, QUARANTINED, other)] == [
        "it has no key",
        "it has no identity",
    ]


def test_every_condition_has_its_words_and_an_end() -> None:
    for condition in set(TableCondition) - {TableCondition.ACTIVE}:
        begun, ended = logged(LIVE, replace(QUARANTINED, condition=condition), LIVE)
        assert begun["log_level"] == "warning"
        assert (ended["event"], ended["table"]) == ("a table is live again", "shop.a")


def test_a_table_that_is_not_chosen_any_more_is_no_trouble() -> None:
    gone = replace(LIVE, condition=TableCondition.QUARANTINED, reason=REMOVED)
    assert logged(LIVE, gone) == []
    (line,) = logged(QUARANTINED, gone)
    assert "quarantined" in line["event"]
