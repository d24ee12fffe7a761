# ruff: noqa: S608  statements are made of constants and our own names
"""The toy's one line in the registry, and the toy as the conformance suite writes to it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.fixtures.settings import Section
from tests.support.toy_source.database import SCHEMA, Connection, make_database
from tests.support.toy_source.section import ToySection, check_toy
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import TableSchema
from tideline.settings.source_kinds import DatasetNaming, SourceKind

_MEMORY = Path("/dev/shm")


TOY = SourceKind(
    name="toy",
    title="Toy",
    schemes=("toy",),
    form="toy:///path",
    check_url=check_toy,
    tables="*.*",
    section=ToySection,
    position=PostgresPosition,
    package="tests.support.toy_source",
    extra="toy",
    datasets=DatasetNaming("toy", None),
)


@contextmanager
def toy_database() -> Iterator[ToyDatabase]:
    """A server of one test, in memory where the machine has files there."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield ToyDatabase(Path(folder))


class ToyDatabase:
    """A `ConformingSource`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "toy.db"
        make_database(self._path)

    @property
    def source(self) -> Section:
        return {"url": f"toy://{self._path}"}

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        columns = ", ".join(f"CAST({name} AS TEXT)" for name in schema.column_names)
        with closing(Connection(self._path)) as connection:
            return connection.rows(
                f"SELECT {columns} FROM {schema.table.removeprefix(f'{SCHEMA}.')}"
            )

    def full_name(self, table: str) -> str:
        return f"{SCHEMA}.{table}"

    def make(self, table: str) -> None:
        self.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, ver INT NOT NULL, at TIMESTAMP, t TEXT)"
        )

    def fill(self, table: str, first: int, last: int, *, text: str = "filled") -> None:
        self.run(
            f"INSERT INTO {table} WITH RECURSIVE numbers(g) AS (SELECT {first} UNION ALL"
            f" SELECT g + 1 FROM numbers WHERE g < {last})"
            f" SELECT g, 0, datetime('2024-01-01', g || ' hours'), '{text}' FROM numbers"
        )

    def noise(self, column: str) -> str:
        return f"noise({column})"

    def run(self, *statements: str) -> None:
        with self.session() as connection:
            for statement in statements:
                connection.execute(statement)

    def transact(self, *statements: str, commit: bool = True) -> None:
        self.run("BEGIN", *statements, "COMMIT" if commit else "ROLLBACK")

    @contextmanager
    def session(self) -> Iterator[Any]:
        with closing(Connection(self._path)) as connection:
            yield connection

    def stranger(self) -> Section:
        path = self._folder / f"{uuid.uuid4().hex}.db"
        make_database(path)
        return {"url": f"toy://{path}"}
