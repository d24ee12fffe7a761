"""Load jobs of Parquet in the stand-in for BigQuery: columns by name, tables made and replaced."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.api_core import exceptions

from tests.fixtures.bigquery import Dataset
from tests.support.bigquery.load_jobs import load

APPEND: dict[str, Any] = {"write_disposition": "WRITE_APPEND"}
MOMENT = datetime(2024, 2, 29, 12, 30, 1, 123456)


def columns(dataset: Dataset, table: str = "staged") -> list[tuple[str, str, str]]:
    schema = dataset.client.get_table(f"{dataset.name}.{table}").schema
    return [(one.name, one.field_type, one.mode) for one in schema]


def test_types_of_parquet_become_bigquerys(dataset: Dataset) -> None:
    kinds = {
        "id": pa.int64(), "small": pa.int16(), "name": pa.string(), "raw": pa.binary(),
        "paid": pa.bool_(), "weight": pa.float64(), "day": pa.date32(),
        "local": pa.timestamp("us"), "moment": pa.timestamp("us", tz="UTC"),
        "amount": pa.decimal128(12, 2),
        "tags": pa.list_(pa.string()), "pair": pa.struct({"a": pa.int64()}),
    }  # fmt: skip
    row = {
        "id": 2**62, "small": -7, "name": "Käufe", "raw": b"\x00\xff", "paid": True,
        "weight": 0.1, "day": date(2024, 2, 29), "local": MOMENT,
        "moment": MOMENT.replace(tzinfo=UTC), "amount": Decimal("9999999999.99"),
        "tags": ["a", "b"], "pair": {"a": 1},
    }  # fmt: skip
    rows = pa.Table.from_pylist([row, {"tags": []}], schema=pa.schema(kinds))
    lists: Any = {"parquet_options": _list_inference()}
    load(dataset, rows, **lists).result()
    assert [(name, kind) for name, kind, _ in columns(dataset)] == [
        ("id", "INTEGER"), ("small", "INTEGER"), ("name", "STRING"), ("raw", "BYTES"),
        ("paid", "BOOLEAN"), ("weight", "FLOAT"), ("day", "DATE"), ("local", "DATETIME"),
        ("moment", "TIMESTAMP"), ("amount", "NUMERIC"),
        ("tags", "STRING"), ("pair", "RECORD"),
    ]  # fmt: skip
    [found] = dataset.rows("SELECT * FROM {d}.staged WHERE id IS NOT NULL")
    assert found == tuple(row.values())


def _list_inference() -> Any:
    from google.cloud.bigquery.format_options import ParquetOptions

    options: Any = ParquetOptions()  # type: ignore[no-untyped-call]
    options.enable_list_inference = True
    return options


def test_columns_are_filled_by_name(dataset: Dataset) -> None:
    load(dataset, {"id": [1], "name": ["a"], "more": ["b"]}).result()
    job = load(dataset, {"MORE": ["d"], "id": [2]}, **APPEND)
    job.result()
    assert job.output_rows == 1
    assert dataset.rows("SELECT * FROM {d}.staged ORDER BY id") == [(1, "a", "b"), (2, None, "d")]


def test_a_replaced_table_has_the_files_columns(dataset: Dataset) -> None:
    load(dataset, {"id": [1, 2], "name": ["a", "b"]}).result()
    load(dataset, {"seq": [3], "id": ["x"]}).result()
    assert columns(dataset) == [("seq", "INTEGER", "NULLABLE"), ("id", "STRING", "NULLABLE")]
    assert dataset.rows("SELECT * FROM {d}.staged") == [(3, "x")]


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ({"id": [2], "new": [1]}, APPEND, exceptions.BadRequest, r"Cannot add fields \(field: new"),
        (
            {"id": ["x"]},
            APPEND,
            exceptions.BadRequest,
            "id has changed type from INTEGER to STRING",
        ),
        ({"id": [2]}, {"write_disposition": "WRITE_EMPTY"}, exceptions.Conflict, "Already Exists"),
        (
            {"id": [Decimal("0." + "1" * 20)]},
            {},
            exceptions.BadRequest,
            r"decimal128\(20, 20\) of Parquet fits none of NUMERIC",
        ),
    ],
)
def test_what_does_not_fit_the_table_fails_the_job(
    dataset: Dataset,
    content: dict[str, list[Any]],
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    load(dataset, {"id": [1]}).result()
    job = load(dataset, content, **options)
    with pytest.raises(error, match=message):
        job.result()
    assert dataset.rows("SELECT * FROM {d}.staged") == [(1,)]


def test_decimals_that_the_emulator_would_round_are_refused(dataset: Dataset) -> None:
    wide: dict[str, Any] = {"decimal_target_types": ["NUMERIC", "BIGNUMERIC"]}
    content: dict[str, list[Any]] = {"id": [Decimal("0." + "1" * 20)]}
    with pytest.raises(exceptions.MethodNotImplemented, match="BIGNUMERIC"):
        load(dataset, content, **wide)
    with pytest.raises(exceptions.MethodNotImplemented, match="BIGNUMERIC"):
        dataset.rows("CREATE TABLE {d}.wide (id BIGNUMERIC)")
    load(dataset, {"id": [Decimal("0.1")]}, **wide).result()


def test_a_table_is_made_only_if_the_job_may(dataset: Dataset) -> None:
    with pytest.raises(exceptions.NotFound, match="Not found: Table"):
        load(dataset, {"id": [1]}, create_disposition="CREATE_NEVER").result()
    load(dataset, {"id": [1]}, **APPEND).result()
    assert dataset.rows("SELECT * FROM {d}.staged") == [(1,)]


def test_a_file_that_is_no_parquet_fails_the_job(dataset: Dataset) -> None:
    import io

    from google.cloud.bigquery import LoadJobConfig

    config = LoadJobConfig(source_format="PARQUET")
    job = dataset.client.load_table_from_file(
        io.BytesIO(b"PAR0"), f"{dataset.name}.staged", size=4, job_config=config
    )
    with pytest.raises(exceptions.BadRequest, match="Error while reading data"):
        job.result()
    assert list(dataset.client.list_tables(dataset.name)) == []


def test_a_resumable_file_comes_in_pieces(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("google.cloud.bigquery.client._DEFAULT_CHUNKSIZE", 256 * 1024)
    rows = pa.table({"id": list(range(100_000))})
    load(dataset, rows, resumable=True).result()
    sent = [call.method for call in dataset.front.calls if call.path.startswith("/upload")]
    assert len(sent) > 2
    assert dataset.rows("SELECT COUNT(*), SUM(id) FROM {d}.staged") == [(100_000, 4999950000)]
