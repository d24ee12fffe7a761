"""Load jobs of Parquet as BigQuery does them: columns by name, the table made or replaced.

The emulator fills columns by their order in the file, makes no table that has no schema in the job,
and keeps a truncated table's columns. Here a file is read, checked against the table, and written
again in the table's order. The types of columns are those that BigQuery's documentation has for
Parquet; nothing here has been compared with BigQuery.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from devtools.bigquery.answers import JobError, unsupported
from devtools.bigquery.emulator import Emulator
from devtools.bigquery.statements import known

_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_integer, "INTEGER"),
    (pa.types.is_floating, "FLOAT"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_binary, "BYTES"),
    (pa.types.is_large_binary, "BYTES"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
)
_ALIASES = {
    "INT64": "INTEGER",
    "FLOAT64": "FLOAT",
    "BOOL": "BOOLEAN",
    "STRUCT": "RECORD",
    "DECIMAL": "NUMERIC",
}
_DECIMALS = (("NUMERIC", 29, 9), ("BIGNUMERIC", 38, 38))
_KEYS = {
    "destinationTable", "sourceFormat", "writeDisposition", "createDisposition", "schema",
    "decimalTargetTypes", "parquetOptions", "schemaUpdateOptions", "autodetect", "sourceUris",
}  # fmt: skip
"""What of a load job's configuration is known here."""


class Load:
    """One load job's configuration; HttpError where it has what is not known here."""

    def __init__(self, project: str, configuration: Mapping[str, Any], folder: Path) -> None:
        self._project, self._folder = project, folder
        self._load = configuration["load"]
        if strange := set(self._load) - _KEYS:
            raise unsupported(f"load jobs with {', '.join(sorted(strange))}")
        if self._load.get("sourceFormat") != "PARQUET":
            raise unsupported("load jobs of other formats than PARQUET")
        self._target = self._load["destinationTable"]
        self._name = "{projectId}:{datasetId}.{tableId}".format(**self._target)
        self._lists = self._load.get("parquetOptions", {}).get("enableListInference", False)

    def run(self, emulator: Emulator, contents: Sequence[bytes]) -> dict[str, Any]:
        """Load the files ``contents``; return the statistics of the job. Raises JobError, with the
        table unchanged, where BigQuery fails the job."""
        try:
            rows = pa.concat_tables([pq.read_table(io.BytesIO(one)) for one in contents])
        except pa.ArrowInvalid as error:
            raise JobError("invalid", f"Error while reading data, error message: {error}") from None
        fields = self._fields(rows.schema)
        rows = self._in_order_of(self._prepared(emulator, fields), rows)
        path = self._folder / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(rows, path)
        load = {
            "destinationTable": self._target,
            "sourceUris": [f"file://{path}"],
            "sourceFormat": "PARQUET",
            "writeDisposition": "WRITE_APPEND",
        }
        try:
            emulator.run(self._project, {"load": load})
        except JobError as error:  # BigQuery's own failures were looked for before.
            raise unsupported(f"this, for its emulator fails: {error.message[:300]}") from None
        finally:
            path.unlink()
        return {"inputFiles": str(len(contents)), "inputFileBytes": str(sum(map(len, contents))),
                "badRecords": "0", "outputRows": str(rows.num_rows)}  # fmt: skip

    def in_buckets(self, buckets: Mapping[str, Path]) -> list[bytes]:
        """Return the files that the job names, of ``buckets`` by their names; JobError for none."""
        found: list[bytes] = []
        for uri in self._load["sourceUris"]:
            bucket, _, pattern = uri.removeprefix("gs://").partition("/")
            files = sorted(buckets[bucket].glob(pattern)) if bucket in buckets else []
            if not files:
                raise JobError("notFound", f"Not found: URI {uri}")
            found += [one.read_bytes() for one in files]
        return found

    def _prepared(self, emulator: Emulator, fields: list[dict[str, Any]]) -> list[str]:
        """Make or replace the table where that is asked for; return its columns' names."""
        table = emulator.table(self._target)
        how = self._load.get("writeDisposition", "WRITE_APPEND")
        if table is None:
            if self._load.get("createDisposition") == "CREATE_NEVER":
                raise JobError("notFound", f"Not found: Table {self._name}")
        elif how == "WRITE_TRUNCATE":
            emulator.drop(self._target)
        elif how == "WRITE_EMPTY" and self._has_rows(emulator):
            raise JobError("duplicate", f"Already Exists: Table {self._name}")
        else:
            return self._checked(table["schema"]["fields"], fields)
        emulator.create(self._target, fields)
        return [field["name"] for field in fields]

    def _has_rows(self, emulator: Emulator) -> bool:
        name = "`{projectId}`.{datasetId}.{tableId}".format(**self._target)
        found = emulator.query(self._project, " ".join(("SELECT 1 FROM", name, "LIMIT 1")))
        return bool(found["statistics"]["query"]["totalRows"] != "0")

    def _checked(self, known: list[dict[str, Any]], fields: list[dict[str, Any]]) -> list[str]:
        """Return the columns' names of the table ``known``, if the file's ``fields`` fit it."""
        start = f"Provided Schema does not match Table {self._name}."
        types = {field["name"].lower(): _type(field) for field in known}
        for field in fields:
            name, found = field["name"], types.get(field["name"].lower())
            if found is None:
                raise JobError("invalid", f"{start} Cannot add fields (field: {name})")
            if found != _type(field):
                change = f"has changed type from {found} to {_type(field)}"
                raise JobError("invalid", f"{start} Field {name} {change}")
        given = {field["name"].lower() for field in fields}
        for field in known:
            if field.get("mode") == "REQUIRED" and field["name"].lower() not in given:
                raise JobError("invalid", f"{start} Field {field['name']} is missing in new schema")
        return [field["name"] for field in known]

    def _in_order_of(self, names: list[str], rows: pa.Table) -> pa.Table:
        own = {name.lower(): name for name in rows.column_names}
        columns = [
            rows[own[name.lower()]] if name.lower() in own else pa.nulls(rows.num_rows)
            for name in names
        ]
        return pa.table(columns, names=names)

    def _fields(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Return the file's columns as BigQuery's fields. A schema in the job has to have the same
        ones: other types than the file's are not known here."""
        found = [self._field(one) for one in schema]
        wanted = self._load.get("schema", {}).get("fields")
        if wanted is None:
            return found
        by_name = {field["name"].lower(): _type(field) for field in found}
        if {field["name"].lower(): _type(field) for field in wanted} != by_name:
            raise unsupported("load jobs whose schema is not the file's")
        return list(wanted)

    def _field(self, column: pa.Field) -> dict[str, Any]:
        kind, mode = column.type, "NULLABLE"
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            if not self._lists:
                raise unsupported("lists of Parquet without enableListInference")
            kind, mode = kind.value_type, "REPEATED"
        field = {"name": column.name, "mode": mode, "type": self._type_of(kind)}
        if field["type"] == "RECORD":
            field["fields"] = [self._field(one) for one in kind]
        return field

    def _type_of(self, kind: pa.DataType) -> str:
        if pa.types.is_struct(kind):
            return "RECORD"
        if pa.types.is_timestamp(kind):
            return "DATETIME" if kind.tz is None else "TIMESTAMP"
        if pa.types.is_decimal(kind):
            targets = self._load.get("decimalTargetTypes") or ["NUMERIC"]
            for name, digits, scale in _DECIMALS:
                fits = kind.precision - kind.scale <= digits and kind.scale <= scale
                if name in targets and fits:
                    return known(name)
            if "STRING" in targets:
                raise unsupported("decimals of Parquet as STRING")
            raise JobError("invalid", f"{kind} of Parquet fits none of {', '.join(targets)}")
        for matches, name in _TYPES:
            if matches(kind):
                return name
        raise unsupported(f"{kind} of Parquet")


def _type(field: Mapping[str, Any]) -> str:
    """Return a field's type to compare: other names of it, and whether it is an array."""
    name = _ALIASES.get(field["type"], field["type"])
    inner = ", ".join(f"{one['name']} {_type(one)}" for one in field.get("fields", ()))
    return (
        f"{name}{f' ({inner})' if inner else ''}{' []' if field.get('mode') == 'REPEATED' else ''}"
    )
