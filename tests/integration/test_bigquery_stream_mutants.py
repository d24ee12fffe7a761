"""What a table's stream promises by code of ours, broken on purpose: each time a check must notice.
Those of merges are in `tests.spark.test_bigquery_streams`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from devtools.bigquery.streams import StreamFault, StreamService
from tests.integration import test_bigquery_streams as checks
from tests.integration.test_bigquery_streams import Table
from tests.integration.test_bigquery_streams import table as table
from tideline.contract.errors import TidelineError
from tideline.warehouse.bigquery.log import CommitLog
from tideline_spark.formats.bigquery import layout, stream_connection, streaming
from tideline_spark.formats.bigquery.stream_connection import StreamRefusal
from tideline_spark.formats.bigquery.streaming import RowSender

_NOTICED = (AssertionError, TidelineError, pytest.fail.Exception)
Check = Callable[[Table, StreamService], None]


def _unseen(*given: object) -> None:
    return None


def _in_its_words(answer: Any) -> StreamRefusal | None:
    return StreamRefusal(answer.row_errors[0].message) if answer.row_errors else None


def _of_a_row(table: Table, streams: StreamService) -> None:
    faults = [StreamFault.ROW_REFUSED]
    checks.test_what_does_not_pass_ends_with_an_error_that_has_no_value(
        table, streams, faults, TidelineError, "BigQuery"
    )


def _of_a_replaced_table(table: Table, streams: StreamService) -> None:
    table.make()
    checks.test_rows_of_a_table_that_was_replaced_are_refused(table)


def _of_a_quota(table: Table, streams: StreamService) -> None:
    checks.test_what_may_not_have_been_taken_is_sent_again(table, streams, StreamFault.QUOTA)


MUTANTS: dict[str, tuple[Any, str, Any, Check]] = {
    "one name for the tables of one name": (
        layout,
        "new_life_column",
        lambda: "_tl_stream_same",
        _of_a_replaced_table,
    ),
    "no other look": (
        RowSender,
        "_look_again",
        _unseen,
        lambda table, streams: checks.test_a_run_that_was_suspended_looks_again_before_it_sends(
            table
        ),
    ),
    "no other try": (streaming, "_TRIES_MAX", 1, _of_a_quota),
    "the service's words": (stream_connection, "_refusal_in", _in_its_words, _of_a_row),
    "changes by the time": (
        CommitLog,
        "streamed",
        False,
        lambda table, streams: (
            checks.test_the_log_knows_no_change_by_others_from_what_a_stream_brings(table)
        ),
    ),
    "rows of any size": (
        streaming,
        "REQUEST_BYTES_MAX",
        1 << 30,
        checks.test_a_row_that_no_request_holds,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(
    table: Table, streams: StreamService, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where, attribute, broken, check = MUTANTS[name]
    monkeypatch.setattr(where, attribute, broken)
    with pytest.raises(_NOTICED):
        check(table, streams)
