# ruff: noqa: S608  statements are made of constants
"""The stand-in for BigQuery does what BigQuery does, where its emulator does something else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.cloud import bigquery

from devtools.bigquery.faults import BigQueryFault, Call
from tests.fixtures.bigquery import Dataset
from tests.support.bigquery.load_jobs import load

SEVERAL_ROWS = "UPDATE/MERGE must match at most one source row for each target row"
APPLY = """
BEGIN TRANSACTION;
MERGE {d}.orders AS t
USING (SELECT * FROM {d}.staged QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) = 1)
  AS s ON t.id = s.id
WHEN MATCHED AND s.op = 'd' THEN DELETE
WHEN MATCHED THEN UPDATE SET name = s.name
WHEN NOT MATCHED AND s.op != 'd' THEN INSERT (id, name) VALUES (s.id, s.name);
MERGE {d}.applied AS t USING (SELECT 'orders' AS name, 7 AS number) AS s ON t.name = s.name
WHEN MATCHED THEN UPDATE SET number = s.number
WHEN NOT MATCHED THEN INSERT (name, number) VALUES (s.name, s.number);
COMMIT TRANSACTION;
"""
STAGED: dict[str, list[Any]] = {
    "id": [1, 2, 2, 3],
    "name": ["a", "b", "c", "d"],
    "seq": [1, 2, 3, 4],
    "op": ["u", "u", "u", "d"],
}


def run(dataset: Dataset, sql: str, job_id: str | None = None) -> bigquery.QueryJob:
    """Make a query job, in one request that the client does not repeat."""
    once: Any = {"retry": None, "job_retry": None}
    return dataset.client.query(sql.format(d=dataset.name), job_id=job_id, **once)


@pytest.fixture
def orders(dataset: Dataset) -> Dataset:
    """Two orders of which one is changed, and what is to be merged into them."""
    run(dataset, "CREATE TABLE {d}.orders (id INT64, name STRING, PRIMARY KEY (id) NOT ENFORCED)")
    run(dataset, "CREATE TABLE {d}.applied (name STRING, number INT64)")
    run(dataset, "INSERT {d}.orders (id, name) VALUES (2, 'old'), (3, 'gone')")
    load(dataset, STAGED).result()
    dataset.front.calls.clear()
    return dataset


def names(orders: Dataset) -> list[tuple[object, ...]]:
    return orders.rows("SELECT id, name FROM {d}.orders ORDER BY id")


APPEND: dict[str, Any] = {"write_disposition": "WRITE_APPEND"}
BEFORE = [(2, "old"), (3, "gone")]
AFTER = [(1, "a"), (2, "c")]


def test_a_script_merges_and_notes_what_is_applied(orders: Dataset) -> None:
    run(orders, APPLY).result()
    assert names(orders) == AFTER
    assert orders.rows("SELECT * FROM {d}.applied") == [("orders", 7)]


@pytest.mark.parametrize(
    ("clause", "left"),
    [
        ("DELETE", [(2, "c"), (4, "kept")]),
        ("UPDATE SET name = UPPER(t.name)", [(2, "c"), (3, "GONE"), (4, "kept")]),
    ],
)
def test_rows_that_the_source_lacks_are_changed_by_the_merge(
    orders: Dataset, clause: str, left: list[tuple[object, ...]]
) -> None:
    """Beside a clause with a subquery, at which its emulator's DuckDB ends."""
    run(orders, "INSERT {d}.orders (id, name) VALUES (4, 'kept')").result()
    run(
        orders,
        """
BEGIN TRANSACTION;
MERGE {d}.orders AS t
USING (SELECT id, name, ['name'] AS unknown FROM {d}.staged WHERE seq = 3) AS s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = CASE
  WHEN ARRAY_LENGTH(ARRAY(SELECT x FROM UNNEST(s.unknown) AS x WHERE x IN UNNEST([t.name]))) > 0
  THEN t.name ELSE s.name END
WHEN NOT MATCHED BY TARGET THEN INSERT (id, name) VALUES (s.id, s.name)
WHEN NOT MATCHED BY SOURCE AND t.name <> 'kept' THEN """
        + clause
        + ";\nCOMMIT TRANSACTION;",
    ).result()
    assert names(orders) == left


def test_all_rows_of_a_long_table_are_listed(orders: Dataset) -> None:
    """Its emulator answers ten thousand at once."""
    many = "INSERT {d}.orders (id, name) SELECT x, 'n' FROM UNNEST(GENERATE_ARRAY(10, 25009)) AS x"
    run(orders, many).result()
    found = orders.client.list_rows(f"{orders.name}.orders")
    assert len({row["id"] for row in found}) == 25_002
    assert len(orders.rows("SELECT id FROM {d}.orders")) == 25_002


def test_an_id_is_run_once(orders: Dataset) -> None:
    add = "INSERT {d}.orders (id, name) VALUES (9, 'more')"
    run(orders, add, "tideline-1").result()
    with pytest.raises(exceptions.Conflict, match=r"Exists: Job tideline:US\.tideline-1"):
        run(orders, add, "tideline-1")
    assert orders.rows("SELECT COUNT(*) FROM {d}.orders WHERE id = 9") == [(1,)]
    assert orders.client.get_job("tideline-1").state == "DONE"


def test_the_id_of_a_job_that_failed_is_used(orders: Dataset) -> None:
    assert run(orders, "SELECT missing FROM {d}.orders", "tideline-1").error_result is not None
    with pytest.raises(exceptions.Conflict):
        run(orders, "SELECT 1", "tideline-1")


@pytest.mark.parametrize("resumable", [False, True])
def test_a_load_job_is_run_once(orders: Dataset, resumable: bool) -> None:
    more: dict[str, Any] = {
        "write_disposition": "WRITE_APPEND",
        "job_id": "l",
        "resumable": resumable,
    }
    load(orders, {"id": [5]}, "orders", **more).result()
    with pytest.raises(exceptions.Conflict):
        load(orders, {"id": [6]}, "orders", **more)
    assert names(orders) == [*BEFORE, (5, None)]


def test_an_answer_is_lost_after_the_job_ran(orders: Dataset) -> None:
    orders.front.fail_next(BigQueryFault.ANSWER_LOST)
    with pytest.raises(requests.ConnectionError):
        run(orders, APPLY, "tideline-1")
    assert orders.client.get_job("tideline-1").state == "DONE"
    assert names(orders) == AFTER
    with pytest.raises(exceptions.Conflict):
        run(orders, APPLY, "tideline-1")


def test_a_client_that_repeats_what_it_lost_is_refused(orders: Dataset) -> None:
    orders.front.fail_next(BigQueryFault.ANSWER_LOST)
    with pytest.raises(exceptions.Conflict):
        orders.client.query(APPLY.format(d=orders.name), job_id="tideline-1", job_retry=None)
    jobs = "/bigquery/v2/projects/tideline/jobs"
    assert orders.front.calls == [Call("POST", jobs, "tideline-1")] * 2
    assert names(orders) == AFTER


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BigQueryFault.REQUEST_LOST, requests.ConnectionError),
        (BigQueryFault.RATE_LIMIT, exceptions.Forbidden),
        (BigQueryFault.QUOTA, exceptions.Forbidden),
        (BigQueryFault.UNAVAILABLE, exceptions.ServiceUnavailable),
        (BigQueryFault.INTERNAL, exceptions.InternalServerError),
    ],
)
def test_a_request_that_failed_made_no_job(
    orders: Dataset, fault: BigQueryFault, error: type[Exception]
) -> None:
    orders.front.fail_next(fault)
    with pytest.raises(error) as raised:
        run(orders, APPLY, "tideline-1")
    if isinstance(raised.value, exceptions.GoogleAPICallError):
        assert [one["reason"] for one in raised.value.errors] == [fault.value[1]]
    assert orders.front.unmet == []
    with pytest.raises(exceptions.NotFound):
        orders.client.get_job("tideline-1")
    assert names(orders) == BEFORE
    run(orders, APPLY, "tideline-1").result()
    assert names(orders) == AFTER


def test_an_error_is_answered_although_the_job_ran(orders: Dataset) -> None:
    orders.front.fail_next(BigQueryFault.INTERNAL_AFTER)
    with pytest.raises(exceptions.InternalServerError):
        run(orders, APPLY, "tideline-1")
    assert orders.client.get_job("tideline-1").state == "DONE"
    assert names(orders) == AFTER


def test_a_job_is_made_and_fails(orders: Dataset) -> None:
    orders.front.fail_next(BigQueryFault.JOB_FAILS)
    job = run(orders, APPLY, "tideline-1")
    assert (job.state, job.error_result["reason"]) == ("DONE", "backendError")
    assert names(orders) == BEFORE
    with pytest.raises(exceptions.Conflict):
        run(orders, APPLY, "tideline-1")


@pytest.mark.parametrize("resumable", [False, True])
def test_a_load_jobs_answer_is_lost(orders: Dataset, resumable: bool) -> None:
    """The client repeats an upload by itself. One that is resumable knows the job that it made."""
    orders.front.fail_next(BigQueryFault.ANSWER_LOST)
    more: dict[str, Any] = {
        "write_disposition": "WRITE_APPEND",
        "job_id": "l",
        "resumable": resumable,
    }
    if resumable:
        load(orders, {"id": [5]}, "orders", **more).result()
    else:
        with pytest.raises(exceptions.Conflict):
            load(orders, {"id": [5]}, "orders", **more)
    assert orders.client.get_job("l").state == "DONE"
    assert names(orders) == [*BEFORE, (5, None)]


def test_a_load_jobs_request_is_lost(orders: Dataset) -> None:
    orders.front.fail_next(BigQueryFault.REQUEST_LOST)
    load(orders, {"id": [5]}, "orders", **APPEND, job_id="l", resumable=True)
    assert [call.method for call in orders.front.calls] == ["POST", "PUT", "PUT"]
    assert names(orders) == [*BEFORE, (5, None)]


def test_a_job_is_not_applied_while_it_runs(orders: Dataset) -> None:
    orders.front.keep_running(2)
    run(orders, APPLY, "tideline-1")
    states = []
    for _ in range(3):
        assert names(orders) == BEFORE
        states.append(orders.client.get_job("tideline-1").state)
    assert states == ["RUNNING", "RUNNING", "DONE"]
    assert names(orders) == AFTER


def test_a_job_ends_that_no_one_polls(orders: Dataset) -> None:
    orders.front.keep_running(100)
    run(orders, APPLY, "tideline-1")
    orders.front.jobs.finish("tideline-1")
    assert names(orders) == AFTER


def test_a_client_waits_for_a_job(orders: Dataset) -> None:
    orders.front.keep_running(1)
    run(orders, APPLY, "tideline-1").result()
    assert names(orders) == AFTER


def test_a_running_job_is_cancelled(orders: Dataset) -> None:
    orders.front.keep_running(100)
    run(orders, APPLY, "tideline-1").cancel()
    job = orders.client.get_job("tideline-1")
    assert (job.state, job.error_result["reason"]) == ("DONE", "stopped")
    assert names(orders) == BEFORE


TWICE = APPLY.replace("QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) = 1", "")


def test_a_script_whose_merge_has_two_rows_for_a_key_changes_nothing(orders: Dataset) -> None:
    sql = TWICE.replace("BEGIN TRANSACTION;", "{begin}", 1).replace(
        "{begin}", "BEGIN TRANSACTION; INSERT {d}.applied (name, number) VALUES ('first', 1);"
    )
    with pytest.raises(exceptions.BadRequest, match=SEVERAL_ROWS):
        run(orders, sql).result()
    assert names(orders) == BEFORE
    assert orders.rows("SELECT * FROM {d}.applied") == []
    run(orders, APPLY).result()
    assert names(orders) == AFTER


MERGE = """MERGE INTO `{d}.orders` USING {d}.staged s ON orders.id = s.id
WHEN MATCHED AND s.seq > 2 THEN UPDATE SET name = s.name
WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, name)"""


def test_rows_that_no_clause_uses_do_not_count_as_a_keys_second(orders: Dataset) -> None:
    """Two rows of the source have the key 2; one of them meets the condition. 1 is new, 3 there."""
    job = run(orders, MERGE)
    job.result()
    assert names(orders) == [(1, "a"), (2, "c"), (3, "d")]
    assert (job.num_dml_affected_rows, job.statement_type) == (3, "MERGE")
    with pytest.raises(exceptions.BadRequest, match=SEVERAL_ROWS):
        run(orders, MERGE.replace("s.seq > 2", "s.seq > 1")).result()


def test_two_new_rows_of_a_key_are_inserted(orders: Dataset) -> None:
    run(orders, "DELETE FROM {d}.orders WHERE TRUE").result()
    run(orders, MERGE).result()
    assert orders.rows("SELECT COUNT(*) FROM {d}.orders WHERE id = 2") == [(2,)]


def test_rows_that_a_statement_changed_are_counted(orders: Dataset) -> None:
    update = run(orders, "UPDATE {d}.orders SET name = 'x' WHERE id > 1")
    insert = run(orders, "INSERT {d}.orders (id) VALUES (7)")
    delete = run(orders, "DELETE FROM {d}.orders WHERE id > 2")
    counts = [job.dml_stats for job in (update, insert, delete)]
    assert [(one.inserted_row_count, one.updated_row_count, one.deleted_row_count)
            for one in counts if one] == [(0, 2, 0), (1, 0, 0), (0, 0, 2)]  # fmt: skip
    assert run(orders, APPLY).num_dml_affected_rows is None


def test_a_merge_into_a_table_whose_columns_were_renamed(orders: Dataset) -> None:
    """Of which its emulator knows the former columns. The rows are counted, and two of a key are
    refused."""
    run(orders, "ALTER TABLE {d}.orders RENAME COLUMN name TO title").result()
    sql = """
        BEGIN TRANSACTION;
        MERGE {{d}}.orders AS t USING (SELECT id, ['x'] AS list FROM UNNEST([{ids}]) AS id) AS s
        ON t.id = s.id
        WHEN MATCHED AND 'x' IN UNNEST(s.list) THEN DELETE
        WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
        COMMIT TRANSACTION;
    """
    with pytest.raises(exceptions.BadRequest, match=SEVERAL_ROWS):
        run(orders, sql.format(ids="2, 2")).result()
    job = run(orders, sql.format(ids="2, 7, 8"))
    job.result()
    (merge,) = orders.client.list_jobs(parent_job=job)
    stats = merge.dml_stats
    assert (stats.inserted_row_count, stats.updated_row_count, stats.deleted_row_count) == (2, 0, 1)
    assert orders.rows("SELECT id, title FROM {d}.orders ORDER BY id") == [
        (3, "gone"), (7, None), (8, None)
    ]  # fmt: skip


def test_a_condition_of_a_script_ends_it(orders: Dataset) -> None:
    count = "ASSERT (SELECT COUNT(*) FROM {d}.orders) = 2 AS 'two orders'"
    run(orders, count).result()
    add = "BEGIN TRANSACTION; INSERT {d}.orders (id) VALUES (7);"
    for condition in (count, "RAISE USING MESSAGE = CONCAT('two', ' orders')"):
        with pytest.raises(exceptions.BadRequest, match="two orders"):
            run(orders, f"{add} {condition}; COMMIT TRANSACTION;").result()
    assert names(orders) == BEFORE


def test_a_statement_changes_several_columns(orders: Dataset) -> None:
    changes = "ADD COLUMN `a b` STRING, ADD COLUMN n NUMERIC(9, 2), DROP COLUMN name"
    run(orders, f"ALTER TABLE {{d}}.orders {changes}").result()
    assert orders.rows("SELECT * FROM {d}.orders ORDER BY id") == [(2, None, None), (3, None, None)]


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("(id NUMERIC(12, 4), n NUMERIC) CLUSTER BY id AS SELECT {0} AS id, {0} AS n", None),
        ("AS SELECT CAST('1.2345' AS NUMERIC(12, 4)) AS id, CAST('1.2345' AS DECIMAL) AS n", None),
        ("(id NUMERIC(12, 4), n NUMERIC)", "SELECT {0}, {0}"),
    ],
    ids=["columns and rows", "rows", "columns"],
)
def test_decimals_keep_their_digits(orders: Dataset, made: str, given: str | None) -> None:
    """However their table is made; the emulator by itself has three of them."""
    value = "NUMERIC '1.2345'"
    run(orders, f"CREATE OR REPLACE TABLE {{d}}.exact {made.format(value)}").result()
    if given is not None:
        run(orders, f"INSERT INTO {{d}}.exact (id, n) {given.format(value)}").result()
    assert orders.rows("SELECT id, n FROM {d}.exact") == [(Decimal("1.2345"), Decimal("1.2345"))]


def test_a_statement_that_cannot_be_parsed_fails_its_job(orders: Dataset) -> None:
    with pytest.raises(exceptions.BadRequest, match="Syntax error: Unexpected identifier"):
        run(orders, "SELEC 1").result()


def test_a_job_that_cannot_be_read_is_read_later(orders: Dataset) -> None:
    run(orders, APPLY, "tideline-1")
    faults = (BigQueryFault.REQUEST_LOST, BigQueryFault.UNAVAILABLE, BigQueryFault.RATE_LIMIT)
    orders.front.fail_reads(*faults)
    once: Any = {"retry": None}
    for error in (requests.ConnectionError, exceptions.ServiceUnavailable, exceptions.Forbidden):
        with pytest.raises(error):
            orders.client.get_job("tideline-1", **once)
    assert orders.client.get_job("tideline-1", **once).state == "DONE"


def test_a_merge_with_parameters_is_judged_with_them(orders: Dataset) -> None:
    parameters = [bigquery.ScalarQueryParameter("least", "INT64", 2)]
    config = bigquery.QueryJobConfig(query_parameters=parameters)
    sql = MERGE.replace("> 2", "> @least").format(d=orders.name)
    orders.client.query(sql, config).result()
    assert names(orders) == [(1, "a"), (2, "c"), (3, "d")]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE {d}.orders AS t SET name = s.name FROM {d}.staged AS s WHERE t.id = s.id",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "BEGIN SELECT 1; EXCEPTION WHEN ERROR THEN SELECT 2; END",
    ],
)
def test_what_could_pass_here_and_fail_in_bigquery_is_refused(orders: Dataset, sql: str) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="does not know"):
        run(orders, sql)
    assert names(orders) == BEFORE


def test_what_the_stand_in_does_not_know_is_refused(orders: Dataset) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="does not know dry runs"):
        orders.client.query("SELECT 1", bigquery.QueryJobConfig(dry_run=True))
    with pytest.raises(exceptions.MethodNotImplemented, match="does not know GET"):
        list(orders.client.list_jobs())
    with pytest.raises(exceptions.MethodNotImplemented, match="other formats than PARQUET"):
        load(orders, {"id": [5]}, "orders", source_format="CSV")


def test_rows_are_listed_while_jobs_run(orders: Dataset) -> None:
    """Its emulator has one connection to its database, and lists rows in a thread: of two requests
    at once one could be answered with what the other found, or not at all."""
    table = f"{orders.front.client().project}.{orders.name}.orders"
    over = threading.Event()

    def list_rows() -> int:
        client, count = orders.front.client(), 0
        while not over.is_set():
            assert sorted(tuple(row) for row in client.list_rows(table)) == BEFORE
            count += 1
        return count

    with ThreadPoolExecutor() as pool:
        listed = [pool.submit(list_rows) for _ in range(2)]
        try:
            for number in range(40):
                run(
                    orders, f"CREATE OR REPLACE TABLE {{d}}.made AS SELECT {number} AS number"
                ).result()
                assert orders.rows("SELECT number FROM {d}.made") == [(number,)]
        finally:
            over.set()
        assert all(one.result() for one in listed)
