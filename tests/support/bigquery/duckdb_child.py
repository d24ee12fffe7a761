"""DuckDB of the emulator's environment, in a process of its own: ours has none.

BigQuery's SQL is translated by sqlglot. What DuckDB lacks is checked here: a MERGE's source must
have one row for each row of the target.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import sqlglot
from sqlglot import expressions as sg

from devtools.bigquery.statements import SEVERAL_ROWS
from devtools.services.bigquery import emulator_root

_PROGRAM = """
import json, sys
import duckdb
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for line in sys.stdin:
    try:
        found = connection.execute(json.loads(line))
        names = [one[0] for one in found.description or ()]
        answer = {"rows": [dict(zip(names, row)) for row in found.fetchall()]}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
"""


class DuckDbFailed(Exception):
    """A statement failed."""


class DuckDb:
    """An empty database in memory, while it is entered."""

    def __enter__(self) -> Self:
        python = emulator_root() / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python), "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement of DuckDB's; times are texts."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(sql) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise DuckDbFailed(answer["error"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def fill(
        self, table: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Make or replace a table with ``columns`` of BigQuery's types."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        self.run(_translated(f"CREATE OR REPLACE TABLE {table} ({listed})"))
        if rows:
            values = ", ".join(
                f"({', '.join(_literal(row.get(name)) for name in columns)})" for row in rows
            )
            self.run(f"INSERT INTO {table} VALUES {values}")  # noqa: S608

    def merge(self, sql: str) -> None:
        """Run a MERGE of BigQuery's. Raises DuckDbFailed where two rows of its source are for one
        row of its target."""
        merge = sqlglot.parse_one(sql, read="bigquery")
        assert isinstance(merge, sg.Merge)
        target, source = merge.this.sql("duckdb"), merge.args["using"].sql("duckdb")
        on = merge.args["on"].sql("duckdb")
        twice = (
            f"SELECT 1 FROM {target} INNER JOIN {source} ON {on}"  # noqa: S608
            f" GROUP BY {merge.this.alias}.rowid HAVING COUNT(*) > 1"
        )
        if self.run(twice):
            raise DuckDbFailed(SEVERAL_ROWS)
        for one in _without_subqueries(merge):
            self.run(one.sql("duckdb"))


def _without_subqueries(merge: sg.Merge) -> Iterator[sg.Merge]:
    """Yield ``merge``, as two where it has subqueries and a clause for rows of the target alone:
    DuckDB 1.5.5 fails to bind both in one. That clause changes no key, so its rows are no others'.
    """
    whens = merge.args["whens"]
    alone = [one for one in whens.expressions if one.args.get("source")]
    if alone and merge.find(sg.Select) is not None:
        first = merge.copy()
        first.args["whens"].set("expressions", [one.copy() for one in alone])
        yield first
        whens.set("expressions", [one for one in whens.expressions if one not in alone])
    yield merge


def _translated(sql: str) -> str:
    (found,) = sqlglot.transpile(sql, read="bigquery", write="duckdb")
    return found


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_literal(one)}' for name, one in value.items())}}}"
    text = str(value).replace("'", "''")
    return f"'{text}'"
