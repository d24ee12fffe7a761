"""Many small random sources, as one table: a shard of it each, so that one Spark job serves all.

A source knows the truth. What it logs may lack columns that did not change, as PostgreSQL's log
lacks unchanged TOAST, and mixes in the rows of dumps, whole or partial.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fixtures.parts import Row, schema_of

TABLE = "public.shards"
SCHEMA = schema_of(
    TABLE,
    {"shard": "int32", "id": "int64", "a": "string", "b": "int32", "c": "timestamp"},
    ["shard", "id"],
)
VALUES = ("a", "b", "c")
_IDS = range(6)

Truth = dict[str, tuple[Any, str | None]]
"""A row's columns: value, and the text of one that its type cannot hold."""


@dataclass
class RandomSource:
    """One shard; ``rows`` is its content now, by id."""

    shard: int
    random: Random
    rows: dict[int, Truth] = field(default_factory=dict)

    def fill(self) -> list[Row]:
        """Insert some rows into the empty source."""
        ids = self.random.sample(_IDS, self.random.randint(0, 4))
        return [self._insert(key) for key in ids]

    def change(self) -> Row | None:
        """One change, or one row of a dump; None when the drawn one is not possible."""
        choice = self.random.random()
        live = sorted(self.rows)
        free = [key for key in _IDS if key not in self.rows]
        if choice < 0.15:
            return self._insert(self.random.choice(free)) if free else None
        if not live:
            return None
        key = self.random.choice(live)
        if choice < 0.30:
            del self.rows[key]
            return self._row("d", key, {})
        if choice < 0.55:
            return self._move(key, self.random.choice(free)) if free else None
        if choice < 0.85:
            return self._update(key)
        return self._dump(key)

    def whole(self, key: int) -> Row:
        """A dump's row of ``key``, with every column."""
        return self._row("r", key, dict(self.rows[key]))

    def _insert(self, key: int) -> Row:
        self.rows[key] = {name: self._value(name) for name in VALUES}
        return self._row("c", key, self.rows[key])

    def _update(self, key: int) -> Row:
        return self._row("u", key, self._changed(key))

    def _move(self, before: int, key: int) -> Row:
        carried = self._changed(before)
        self.rows[key] = self.rows.pop(before)
        old = {"shard": self.shard, "id": before} if self.random.random() < 0.5 else {"id": before}
        return self._row("u", key, carried, before=old)

    def _dump(self, key: int) -> Row:
        carried = dict(self.rows[key])
        if self.random.random() < 0.5:
            carried = {n: v for n, v in carried.items() if self.random.random() < 0.5}
        return self._row("r", key, carried)

    def _changed(self, key: int) -> Truth:
        """Change some columns; return what the log carries: those, and some of the others."""
        row = self.rows[key]
        changed = {n: self._value(n) for n in VALUES if self.random.random() < 0.4}
        row.update(changed)
        return {n: v for n, v in row.items() if n in changed or self.random.random() < 0.4}

    def _value(self, name: str) -> tuple[Any, str | None]:
        if self.random.random() < 0.15:
            return None, None
        if name == "c":
            return None, self.random.choice(["infinity", "-infinity"])
        number = self.random.randint(0, 99)
        return (f"text {number}" if name == "a" else number), None

    def _row(
        self, op: str, key: int, carried: Truth, *, before: dict[str, Any] | None = None
    ) -> Row:
        values = {name: value for name, (value, _) in carried.items()}
        return Row(
            TABLE,
            op,
            {"shard": self.shard, "id": key, **values},
            before=before,
            unchanged=() if op == "d" else tuple(n for n in VALUES if n not in carried),
            overflow={name: text for name, (_, text) in carried.items() if text is not None},
        )


def interleave(sources: list[RandomSource], random: Random, changes: int) -> list[Row]:
    """``changes`` changes drawn from all sources, in the order of one log."""
    drawn = (random.choice(sources).change() for _ in range(changes))
    return [row for row in drawn if row is not None]


def truth(sources: list[RandomSource]) -> dict[tuple[int, int], Truth]:
    return {(s.shard, key): dict(row) for s in sources for key, row in s.rows.items()}
