# ruff: noqa: S608  statements are made of a test's own names
"""Reads tables by DuckDB or Polars, in the environment of the README's ``readers``, or Iceberg
tables by DuckDB in that of the page ICEBERG.

``python other_readers.py READER`` with JSON on stdin, for each table its path and columns; on
stdout by table its rows, or the text of an error. Imports nothing of the project.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    read = {"duckdb": by_duckdb, "duckdb-iceberg": by_duckdb_iceberg, "polars": by_polars}[
        sys.argv[1]
    ]
    answers: dict[str, object] = {}
    for table, (path, columns) in json.load(sys.stdin).items():
        try:
            answers[table] = read(path, columns)
        except Exception as error:  # noqa: BLE001  whatever it is, the test judges it
            answers[table] = f"{type(error).__name__}: {error}"
    json.dump(answers, sys.stdout, default=str)


def by_duckdb(path: str, columns: list[str]) -> list[Any]:
    duckdb: Any = import_module("duckdb")
    import_module("duckdb_extensions").import_extension("delta")
    names = ", ".join('"' + name + '"' for name in columns)
    found: list[Any] = duckdb.sql(f"SELECT {names} FROM delta_scan('{path}')").fetchall()
    return found


def by_duckdb_iceberg(path: str, columns: list[str]) -> list[Any]:
    duckdb: Any = import_module("duckdb")
    for extension in ("avro", "iceberg"):
        import_module("duckdb_extensions").import_extension(extension)
    names = ", ".join('"' + name + '"' for name in columns)
    found: list[Any] = duckdb.sql(f"SELECT {names} FROM iceberg_scan('{path}')").fetchall()
    return found


def by_polars(path: str, columns: list[str]) -> list[Any]:
    polars: Any = import_module("polars")
    found: list[Any] = polars.read_delta(path).select(columns).rows()
    return found


if __name__ == "__main__":
    main()
