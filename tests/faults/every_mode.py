"""Tables in every mode over one chain, and what each must hold: the stage of the jobs' fault tests.

What is expected is derived from the list of changes alone, by the words of docs/MODES.md, so it
does not matter how often a job died on the way.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import TableNotFoundError

from devtools.demo.compare import read_warehouse
from tests.faults.bigquery_tables import BigQueryTables, InBigQuery
from tests.faults.iceberg_tables import in_place_of, rows_of
from tests.faults.places import Files, InS3, Place
from tests.fixtures.parts import Event, History, Row, Shaped, schema_of
from tideline.contract.manifest import Copied, DeleteBefore
from tideline.contract.modes import Mode
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.target_url import CATALOG, ICEBERG
from tideline.settings import Warehouse
from tideline.warehouse.access import storage_options
from tideline.warehouse.iceberg.names import identifier_of

NOW, LOG, PAST, BAG = "public.now", "public.log", "public.past", "public.bag"
"""Compliance as current, append and history; and one without a key, whose equal rows are
counted."""
KEYED = (NOW, LOG, PAST)
TABLES = (*KEYED, BAG)
_COLUMNS = {"id": "int64", "a": "string", "b": "int32"}
_BAG_COLUMNS = {"a": "string", "b": "int32"}
_SETTINGS = {LOG: {"mode": "append"}, PAST: {"mode": "history"}, BAG: {"keyless": "counted"}}
_LAID_OUT: Mapping[str, Mapping[str, Any]] = {
    **_SETTINGS,
    NOW: {"partition_by": ["b"]},
    PAST: {"mode": "history", "cluster_by": ["a", "id"]},
    BAG: {"keyless": "counted", "partition_by": ["a"]},
}
"""The same with layouts, which change nothing of what the tables hold."""
_WORDS = {"c": "insert", "u": "update", "d": "delete"}

Values = Mapping[str, Any]
Content = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a table with a key, as the source made it."""

    seq: int
    op: str
    key: int
    values: Values
    before: int | None = None


@dataclass
class EveryMode:
    """The tables, the changes that the source has made so far, and what it holds now."""

    root: Path
    seed: int
    place: Warehouse | None = None
    """Where chain and tables are in S3, or the catalog of Iceberg tables; None: Delta tables, in
    files below ``root``."""
    bigquery: BigQueryTables | None = None
    """The tables, where they are in BigQuery; ``place`` is then theirs."""
    laid_out: bool = False
    """Whether files of the tables are partitioned or clustered."""
    merge: Mapping[str, Any] = field(default_factory=dict)
    """The settings of merges."""
    history: History = field(init=False)
    files: Place = field(init=False)
    """Where both are, by key."""
    changes: dict[str, list[Change]] = field(default_factory=lambda: {name: [] for name in KEYED})
    bag: list[tuple[str, int]] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    """Columns that `NOW` got later, with the default that older rows have."""
    modes: dict[str, Mode] = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.root, merge=self.merge, tables=self.settings, place=self.place)
        self.files = Files(self.root)
        if self.place is not None and self.place.in_s3:
            self.files = InS3(self.place)
        if self.bigquery is not None:
            self.files = InBigQuery(self.root, self.bigquery)
        self.modes = {NOW: Mode.CURRENT, LOG: Mode.APPEND, PAST: Mode.HISTORY}
        self._random = Random(self.seed)

    def fill(self, rows: int = 12) -> None:
        """The tables appear, with rows; the one without a key is copied."""
        h = self.history
        h.commit(*(Shaped(schema_of(name, _COLUMNS, ["id"])) for name in KEYED))
        h.commit(Shaped(schema_of(BAG, _BAG_COLUMNS, ())))
        self.bag = [self._bag_row() for _ in range(rows)]
        first, low = h.last_number, h.last_seq
        h.commit(*(Row(BAG, "r", {"a": a, "b": b}) for a, b in self.bag))
        copied = Copied(first, h.last_seq, rows, ())
        self._commit(3 * rows, deletes_before=[DeleteBefore(BAG, low, "dump", copied)])

    def more(self, count: int, *, manifests: int = 2, step: bool = False) -> None:
        """So many changes, over a few manifests; with ``step``, a column comes in between."""
        for number in range(manifests):
            if step and number == manifests - 1:
                self._add_column()
            self._commit(count // manifests)

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """What the settings file says of the tables."""
        return _LAID_OUT if self.laid_out else _SETTINGS

    @property
    def iceberg(self) -> bool:
        """Whether they are Iceberg tables."""
        return self.place is not None and self.place.format == ICEBERG

    def target(self, table: str) -> str:
        """The key of the table's folder."""
        if self.iceberg:
            return "/".join(("warehouse", *identifier_of(self.history.target(table))))
        url = self.history.target(table).removeprefix(self.history.settings.warehouse.url)
        return f"warehouse{unquote(url)}"

    def sql_name(self, table: str) -> str:
        """The table in Spark's SQL."""
        url = self.history.target(table)
        if self.iceberg:
            return ".".join(f"`{one}`" for one in (CATALOG, *identifier_of(url)))
        return f"delta.`{url}`"

    def expected(self, table: str) -> Content:
        """What the table must hold, whatever has happened to the jobs."""
        if table == BAG:
            return Counter(self.bag)
        mode = self.modes[table]
        if mode is Mode.APPEND:
            return Counter(
                (c.seq, _WORDS[c.op], c.key, c.values.get("a"), c.values.get("b"))
                for c in self.changes[table]
            )
        versions = _versions(self.changes[table])
        if mode is Mode.HISTORY:
            return Counter((key, *span, *self._shown(v)) for key, span, v in versions)
        live = [(key, span[0], values) for key, span, values in versions if span[1] is None]
        found = Counter((key, seq, *self._shown(values)) for key, seq, values in live)
        if mode is Mode.SOFT_DELETES:
            gone = _gone(versions, {key for key, _, _ in live})
            found = Counter((*row, False) for row in found)
            found.update((k, seq, *self._shown(values), True) for k, seq, values in gone)
        return found

    def content(self, table: str, root: Path | None = None) -> Content:
        """What it does hold, in the same words; of the copy in ``root``, if one is given."""
        return Counter(self._reported(table, row) for row in self.rows(table, root))

    def digest(self, table: str, root: Path | None = None) -> str:
        """Of every column of every row; but of those that say which plan brought it."""
        lines = []
        for row in self.rows(table, root):
            lines.append(repr(sorted((n, repr(v)) for n, v in row.items() if n != "_batch_id")))
        lines.sort()
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def digests(self, root: Path | None = None) -> dict[str, str]:
        return {name: self.digest(name, root) for name in TABLES}

    def rows(self, table: str, root: Path | None = None) -> list[dict[str, Any]]:
        """All rows; none where no table is."""
        if self.bigquery is not None:
            return self.bigquery.rows(self.history.target(table), root)
        if self.iceberg:
            with nullcontext() if root is None else in_place_of(self.root, root):
                return rows_of(self.history.settings.warehouse_storage, self.history.target(table))
        if root is None and self.place is not None:
            options = storage_options(self.place)
            try:
                return list(read_warehouse(self.history.target(table), options).to_pylist())
            except TableNotFoundError:
                return []
        path = (root or self.root) / self.target(table)
        if not (path / "_delta_log" / f"{0:020d}.json").exists():
            return []
        return list(read_warehouse(path.as_uri(), {}).to_pylist())

    def check(self, *names: str) -> None:
        """Nothing is lost, nothing is there twice, in ``names`` (all), which are merged."""
        for table in names or TABLES:
            found, expected = self.content(table), self.expected(table)
            lost, more = expected - found, found - expected
            assert not lost and not more, f"{table}: lost {lost}, too many {more}"
        seqs = [row["_tl_seq"] for row in self.rows(BAG)]
        assert len(set(seqs)) == len(seqs), "two rows of one sequence"

    # -- what is expected --------------------------------------------------------------------------

    def _shown(self, values: Values) -> tuple[Any, ...]:
        names = ("a", "b", *(name for name in self.added if name in values))
        return tuple(values[name] for name in names)

    def _reported(self, table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        values = (row["a"], row["b"], *(row[name] for name in self.added if name in row))
        if table == BAG:
            return values
        mode = self.modes[table]
        if mode is Mode.APPEND:
            return (row["_sequence_num"], row["_operation"], row["id"], *values)
        if mode is Mode.HISTORY:
            return (row["id"], row["_tl_valid_from_seq"], row["_tl_valid_to_seq"], *values)
        if mode is Mode.SOFT_DELETES:
            return (row["id"], row["_tl_seq"], *values, row["_tl_deleted"])
        return (row["id"], row["_tl_seq"], *values)

    # -- what happens ------------------------------------------------------------------------------

    def _commit(self, count: int, *, deletes_before: Sequence[DeleteBefore] = ()) -> None:
        first = self.history.last_seq + 1
        events = [self._event(first + at, TABLES[at % len(TABLES)]) for at in range(count)]
        self.history.commit(*events, deletes_before=deletes_before)

    def _event(self, seq: int, table: str) -> Event:
        if table == BAG:
            return self._bag_change()
        live = {key: values for key, span, values in _versions(self.changes[table]) if not span[1]}
        op = self._random.choice("ccuud" if len(live) > 3 else "c")
        free = next(key for key in range(1, 10_000) if key not in live)
        key = free if op == "c" else self._random.choice(sorted(live))
        before = None
        if op == "u" and self._random.random() < 0.3:
            before, key = key, free
        values = {} if op == "d" else self._values(table)
        self.changes[table].append(Change(seq, op, key, values, before))
        moved = None if before is None else {"id": before}
        return Row(table, op, {"id": key, **values}, before=moved)

    def _values(self, table: str) -> Values:
        own = {name: self._random.choice(["x", "y"]) for name in self.added if table == NOW}
        return {"a": f"v{self._random.randrange(1000)}", "b": self._random.randrange(1000), **own}

    def _bag_row(self) -> tuple[str, int]:
        return self._random.choice("ab"), self._random.randrange(2)

    def _bag_change(self) -> Event:
        op = self._random.choice("ccud" if self.bag else "c")
        was = None
        if op != "c":
            was = self._random.choice(self.bag)
            self.bag.remove(was)
        now = None
        if op != "d":
            now = self._bag_row()
            self.bag.append(now)
        values = {} if now is None else dict(zip("ab", now, strict=True))
        image = None if was is None else dict(zip("ab", was, strict=True))
        return Row(BAG, op, values, image=image)

    def _add_column(self) -> None:
        """`NOW` gets a column with a constant default: three commits in the target."""
        name, default = f"c{len(self.added)}", "older"
        self.added[name] = default
        columns = {**_COLUMNS, **dict.fromkeys(self.added, "string")}
        step = ColumnStep(StepKind.ADD, name, type="string", default=default)
        self.history.commit(Shaped(schema_of(NOW, columns, ["id"]), (step,)))
        self.changes[NOW] = [
            Change(c.seq, c.op, c.key, {**c.values, name: default}, c.before) if c.values else c
            for c in self.changes[NOW]
        ]


def _versions(changes: Sequence[Change]) -> list[tuple[int, tuple[int, int | None], Values]]:
    """Every version of every row: its key, from which sequence to which (None: still), values."""
    done: list[tuple[int, tuple[int, int | None], Values]] = []
    live: dict[int, tuple[int, Values]] = {}
    for change in changes:
        for key in {change.key, change.before}:
            if key in live:
                first, values = live.pop(key)
                done.append((key, (first, change.seq), values))
        if change.op != "d":
            live[change.key] = (change.seq, change.values)
    done += [(key, (first, None), values) for key, (first, values) in live.items()]
    return done


def _gone(
    versions: Sequence[tuple[int, tuple[int, int | None], Values]], live: set[int]
) -> Iterator[tuple[int, int, Values]]:
    """The last version of every key that no row has: with the sequence that ended it."""
    last: dict[int, tuple[int, Values]] = {}
    for key, (_, end), values in versions:
        if end is not None and key not in live:
            last[key] = max(last.get(key, (0, values)), (end, values), key=lambda one: one[0])
    yield from ((key, end, values) for key, (end, values) in last.items())
