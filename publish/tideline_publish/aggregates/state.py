"""The rows of the members' tables, by key and by what they are joined by, in a local file.

The file is only a working place: it is made again from a checkpoint in the store, and from the
chain behind that. What of it is in memory is bounded by `_CACHE_KIB`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tideline.contract.aggregates import Aggregate, lookups, tables
from tideline_publish.aggregates.rows import Values, key_text

_CACHE_KIB = 64 * 1024
_PAGE = 1_000
"""Keys that are read at once, where rows change while they are walked through."""
_TABLES = (
    "CREATE TABLE rows (tbl INT, pk TEXT, seq INT, body BLOB, PRIMARY KEY (tbl, pk)) WITHOUT ROWID",
    "CREATE TABLE links (idx INT, value TEXT, pk TEXT, PRIMARY KEY (idx, value, pk)) WITHOUT ROWID",
    "CREATE TABLE due (agg INT, pk TEXT, existed INT, PRIMARY KEY (agg, pk)) WITHOUT ROWID",
)
_FIND = "SELECT pk FROM links WHERE idx = ? AND value = ? AND pk > ? ORDER BY pk LIMIT ?"
_KEYS = "SELECT pk FROM rows WHERE tbl = ? AND seq <= ? AND pk > ? ORDER BY pk LIMIT ?"
_NULL = b"null"
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row, and the sequence of its last change."""

    seq: int
    values: Values


@dataclass(frozen=True, slots=True)
class DueRoot:
    """A root whose document has to be published: of the aggregate at that place in the definition.
    ``existed``: there was one before."""

    aggregate: int
    key: str
    existed: bool


class AggregateState:
    """The rows, and the roots that are due. ``changes`` counts what was written."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._tables = {name: at for at, name in enumerate(tables(aggregates))}
        self._lookups = {one: at for at, one in enumerate(lookups(aggregates))}
        self._folder = tempfile.TemporaryDirectory(prefix="tideline-aggregates-")
        self._db = sqlite3.connect(Path(self._folder.name) / "state.db", isolation_level=None)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._db.execute(f"PRAGMA {setting}")
        for table in _TABLES:
            self._db.execute(table)
        self._db.execute("BEGIN")
        self.changes = 0

    def close(self) -> None:
        """Remove the file."""
        self._db.close()
        self._folder.cleanup()

    def clear(self) -> None:
        """Forget everything."""
        self._db.executescript("DELETE FROM rows; DELETE FROM links; DELETE FROM due;")

    def get(self, table: str, key: str) -> StoredRow | None:
        """Return the row; None where there is none."""
        sql = "SELECT seq, body FROM rows WHERE tbl = ? AND pk = ?"
        found = self._db.execute(sql, (self._tables[table], key)).fetchone()
        return None if found is None else StoredRow(found[0], _DECODER.decode(found[1]))

    def put(self, table: str, key: str, seq: int, values: Values) -> None:
        """Write a row, in the place of one with the same key."""
        self.remove(table, key)
        body = msgspec.json.encode(values)
        self._db.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?)", (self._tables[table], key, seq, body)
        )
        for at, value in self._links(table, values):
            self._db.execute("INSERT INTO links VALUES (?, ?, ?)", (at, value, key))
        self.changes += 1

    def touch(self, table: str, key: str, seq: int) -> None:
        """Note that a row was the same at ``seq``."""
        sql = "UPDATE rows SET seq = ? WHERE tbl = ? AND pk = ?"
        self._db.execute(sql, (seq, self._tables[table], key))
        self.changes += 1

    def remove(self, table: str, key: str) -> None:
        """Remove a row, if it is there."""
        before = self.get(table, key)
        if before is None:
            return
        self._db.execute("DELETE FROM rows WHERE tbl = ? AND pk = ?", (self._tables[table], key))
        for at, value in self._links(table, before.values):
            sql = "DELETE FROM links WHERE idx = ? AND value = ? AND pk = ?"
            self._db.execute(sql, (at, value, key))
        self.changes += 1

    def find(self, table: str, columns: tuple[str, ...], value: str) -> Iterator[str]:
        """Yield the keys of the rows with ``value`` (`joined_by`) in ``columns``."""
        at = self._lookups[table, columns]
        yield from self._paged(_FIND, (at, value))

    def keys(self, table: str, through_seq: int | None = None) -> Iterator[str]:
        """Yield the keys of a table's rows; with ``through_seq``, of those that last changed up to
        it."""
        limit = (1 << 62) if through_seq is None else through_seq
        yield from self._paged(_KEYS, (self._tables[table], limit))

    def mark(self, aggregate: int, key: str, *, existed: bool) -> None:
        """Note that a root is due; ``existed`` counts where it was not yet."""
        self._db.execute("INSERT OR IGNORE INTO due VALUES (?, ?, ?)", (aggregate, key, existed))

    def any_due(self) -> bool:
        """Return whether a root is due."""
        return self._db.execute("SELECT 1 FROM due LIMIT 1").fetchone() is not None

    def due(self) -> Iterator[DueRoot]:
        """Yield the roots that are due, by aggregate and key."""
        at: tuple[int, str] = (-1, "")
        sql = "SELECT agg, pk, existed FROM due WHERE (agg, pk) > (?, ?) ORDER BY agg, pk LIMIT ?"
        while page := self._db.execute(sql, (*at, _PAGE)).fetchall():
            yield from (DueRoot(agg, pk, bool(existed)) for agg, pk, existed in page)
            at = page[-1][:2]

    def forget_due(self) -> None:
        """Note that no root is due."""
        self._db.execute("DELETE FROM due")

    def row_count(self) -> int:
        """Return the number of rows."""
        found: tuple[int] = self._db.execute("SELECT count(*) FROM rows").fetchone()
        return found[0]

    def dumped_rows(self) -> Iterator[tuple[str, str, int, bytes]]:
        """Yield table, key, sequence and body of each row."""
        names = list(self._tables)
        for at, key, seq, body in self._db.execute("SELECT tbl, pk, seq, body FROM rows"):
            yield names[at], key, seq, body

    def load_row(self, table: str, key: str, seq: int, body: bytes) -> None:
        """Take in what `dumped_rows` yielded."""
        self.put(table, key, seq, _DECODER.decode(body))

    def _links(self, table: str, values: Values) -> Iterable[tuple[int, str]]:
        for (name, columns), at in self._lookups.items():
            value = joined_by(values, columns) if name == table else None
            if value is not None:
                yield at, value

    def _paged(self, sql: str, values: tuple[object, ...]) -> Iterator[str]:
        last = ""
        while page := self._db.execute(sql, (*values, last, _PAGE)).fetchall():
            yield from (key for (key,) in page)
            last = page[-1][0]


def joined_by(values: Values, columns: Sequence[str]) -> str | None:
    """Return what rows are joined by in ``columns``; None where one is NULL, or not there."""
    found = [bytes(values.get(name, _NULL)) for name in columns]
    return None if _NULL in found else key_text(found)
