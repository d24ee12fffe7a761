"""The table of events: what is known has a treatment, what is not known stops the run."""

from __future__ import annotations

import pytest

from tideline.contract.errors import CorruptData, Misconfigured
from tideline_capture.sources.mysql.binlog.event_codes import (
    EVENT_KINDS,
    IGNORABLE_FLAG,
    EventCode,
    Treatment,
    is_gap,
    refusal,
)


def test_codes_have_the_same_names_everywhere() -> None:
    for code in EventCode:
        assert EVENT_KINDS[code].name == code.name


def test_what_is_ignored_or_stopped_at_says_why() -> None:
    for kind in EVENT_KINDS.values():
        assert bool(kind.why) == (kind.treatment in (Treatment.IGNORED, Treatment.STOP))


@pytest.mark.parametrize("code", [0, 43, 159, 173, 255])
def test_unknown_events_stop_even_where_a_replica_may_skip_them(code: int) -> None:
    error = refusal(code, IGNORABLE_FLAG)
    assert isinstance(error, CorruptData)
    assert f"code {code}" in error.message
    assert "ignorable" in error.message
    assert not is_gap(code)


@pytest.mark.parametrize("code", [9, 17, 18])
def test_load_data_in_statement_form_is_a_gap(code: int) -> None:
    error = refusal(code)
    assert isinstance(error, Misconfigured)
    assert error.hint == "SET GLOBAL binlog_format = 'ROW'"
    assert is_gap(code)


def test_fragments_of_rows_are_named() -> None:
    error = refusal(EventCode.PARTIAL_ROW_DATA)
    assert isinstance(error, Misconfigured)
    assert "PARTIAL_ROW_DATA" in error.message
    assert not is_gap(EventCode.TABLE_MAP)
