# ruff: noqa: S608  statements are made of names of a test's tables
"""Puts streamed rows into a table of the emulator, in the order of their numbers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from devtools.bigquery.front import BigQueryFront
from devtools.bigquery.stream_messages import StreamedRow

_TYPES = {
    "INTEGER": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "RECORD": pa.struct({"key": pa.string(), "value": pa.string()}),
    "STRUCT": pa.struct({"key": pa.string(), "value": pa.string()}),
}
_GONE = "tideline_gone"


def put_rows(
    front: BigQueryFront,
    table: tuple[str, str, str],
    fields: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    rows: Sequence[StreamedRow],
) -> None:
    """Apply those of ``rows`` that no higher number of their key is known of, deleted ones too; of
    equal numbers the later one. Whoever reads through ``front`` waits."""
    _, dataset, name = table
    numbers = front.jobs.numbers.setdefault((dataset, name), {})
    newest: dict[Any, StreamedRow] = {}
    for row in rows:
        of = tuple(row.values[one] for one in key)
        if row.number >= numbers.get(of, ()):
            numbers[of] = row.number
            newest[of] = row
    if newest:
        _apply(front, table, fields, key, list(newest.values()))
    front.jobs.modified[dataset, name] = time.time_ns() // 1_000_000


def _apply(
    front: BigQueryFront,
    table: tuple[str, str, str],
    fields: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    rows: Sequence[StreamedRow],
) -> None:
    project, dataset, name = table
    emulator, own = front.emulator, f"standin_{uuid.uuid4().hex}"
    path = front.jobs.folder / f"{own}.parquet"
    columns = {f"c{at}": [row.values.get(one["name"]) for row in rows]
               for at, one in enumerate(fields)}  # fmt: skip
    kinds = {f"c{at}": _type(one) for at, one in enumerate(fields)}
    schema = pa.schema([*kinds.items(), (_GONE, pa.bool_())])
    listed = {**columns, _GONE: [row.delete for row in rows]}
    pq.write_table(pa.table(listed, schema=schema), path)
    reference = {"projectId": project, "datasetId": dataset, "tableId": own}
    made = [{**one, "name": f"c{at}", "mode": one.get("mode") or "NULLABLE"}
            for at, one in enumerate(fields)]  # fmt: skip
    emulator.create(reference, [*made, {"name": _GONE, "type": "BOOLEAN", "mode": "NULLABLE"}])
    load = {
        "destinationTable": reference,
        "sourceUris": [f"file://{path}"],
        "sourceFormat": "PARQUET",
        "writeDisposition": "WRITE_APPEND",
    }
    try:
        emulator.run(project, {"load": load})
        places = {one["name"]: at for at, one in enumerate(fields)}
        target, source = f"`{dataset}`.`{name}`", f"`{dataset}`.`{own}`"
        same = " AND ".join(f"s.c{places[one]} = t.`{one}`" for one in key)
        emulator.query(
            project, f"DELETE FROM {target} AS t WHERE EXISTS(SELECT 1 FROM {source} AS s"
            f" WHERE {same})"
        )  # fmt: skip
        names = ", ".join(f"`{one['name']}`" for one in fields)
        values = ", ".join(f"c{at}" for at in range(len(fields)))
        emulator.query(
            project,
            f"INSERT INTO {target} ({names}) SELECT {values} FROM {source} WHERE NOT {_GONE}",
        )
    finally:
        emulator.drop(reference)
        path.unlink(missing_ok=True)


def _type(field: Mapping[str, Any]) -> pa.DataType:
    kind = field["type"]
    found = pa.decimal128(38, 9) if kind in ("NUMERIC", "BIGNUMERIC") else _TYPES[kind]
    return pa.list_(found) if field.get("mode") == "REPEATED" else found
