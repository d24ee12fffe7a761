"""The statements that jobs write for BigQuery do what the modes promise, whatever the history: they
are run by DuckDB, and a plain model says what must come of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
import pytest

from tests.fixtures.parts import schema_of
from tests.support.bigquery.duckdb_child import DuckDb, DuckDbFailed
from tideline.contract.part import OVERFLOW, PENDING, SEQ, TS
from tideline.contract.plan import PlannedEnd, TablePlan
from tideline_spark.dialects.bigquery import TEXTS, BigQueryDialect
from tideline_spark.fold import MISSING, UNKNOWN
from tideline_spark.formats.statements import RowMerge
from tideline_spark.modes import history, soft_deletes
from tideline_spark.modes.soft_deletes import DELETED, DELETED_AT, DELETED_SEQ
from tideline_spark.statement import delete_rows, merge_rows
from tideline_spark.version_context import CURRENT, FROM, FROM_SEQ, TO, TO_SEQ
from tideline_spark.working_columns import GONE

DIALECT = BigQueryDialect()
TABLE, SOURCE = "target", "staged"
SCHEMA = schema_of("shop.t", {"id": "int32", "a b": "string", "n": "int32"}, ["id"])
PLAN = TablePlan("shop.t", "", SCHEMA, {}, (), 1, 0, 2, 0, "shop/one/shop.t")
ROWS = {"id": "INT64", "a b": "STRING", "n": "INT64", SEQ: "INT64", TS: "TIMESTAMP"}
OWN = {OVERFLOW: TEXTS, PENDING: "ARRAY<STRING>"}
WORKING = {GONE: "BOOL", UNKNOWN: "ARRAY<STRING>", MISSING: "ARRAY<STRING>"}
SOFT = {DELETED: "BOOL", DELETED_AT: "TIMESTAMP", DELETED_SEQ: "INT64"}
VALID = {FROM_SEQ: "INT64", TO_SEQ: "INT64", FROM: "TIMESTAMP", TO: "TIMESTAMP", CURRENT: "BOOL"}
KEYS = range(1, 8)
PLANS, EVENTS = 6, 9
SEEDS = range(5)
"""Those that the mutants are looked for with; the histories themselves are the first three."""

Values = dict[str, Any]


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDb]:
    with DuckDb() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a row, or (``key`` None) a truncate. ``values`` lacks ``n`` where the log did."""

    seq: int
    key: int | None
    values: Values | None
    dumped: bool = False


@dataclass
class Version:
    """What a row held from ``since`` until ``until``; ``seq`` is its newest change."""

    key: int
    since: int
    values: Values
    until: int | None = None


@dataclass
class Model:
    """The versions of all rows, by applying one event after the other."""

    versions: list[Version] = field(default_factory=list)

    def open(self, key: int) -> Version | None:
        return next((one for one in self.versions if one.key == key and one.until is None), None)

    def take(self, event: Event) -> None:
        for one in self.versions:
            if one.until is None and event.key in (None, one.key):
                one.until = event.seq
        if event.key is not None and event.values is not None:
            before = self._last(event.key, event.seq)
            self.versions.append(Version(event.key, event.seq, _after(before, event.values)))

    def end(self, delete_before: int, seq: int) -> None:
        for one in self.versions:
            if one.until is None and one.since <= delete_before:
                one.until = seq

    def _last(self, key: int, until: int) -> Values | None:
        found = [one for one in self.versions if (one.key, one.until) == (key, until)]
        return found[0].values if found else None


def _after(before: Values | None, given: Values) -> Values:
    """What a row holds after a change: of what the change lacks, the row's; else it is pending."""
    whole: Values = {"n": None, OVERFLOW: [], PENDING: []}
    if "n" in given:
        return whole | given
    return whole | {PENDING: ["n"]} | (before or {}) | given


def _at(seq: int | None) -> str | None:
    return None if seq is None else f"2024-01-01 00:{seq // 60:02d}:{seq % 60:02d}+00:00"


def _micros(seq: int) -> int:
    return 1_704_067_200_000_000 + seq * 1_000_000


@dataclass
class Source:
    """A source with a random history; ``live`` are its rows' keys."""

    random: Random
    live: set[int] = field(default_factory=set)
    seq: int = 0

    def events(self, *, truncates: bool) -> list[Event]:
        return [self._event(truncates) for _ in range(EVENTS)]

    def dump(self) -> list[Event]:
        return [Event(self._next(), key, self._values(), True) for key in sorted(self.live)]

    def lose(self) -> None:
        """Rows go that the log says nothing of."""
        self.live -= {key for key in sorted(self.live) if self.random.random() < 0.3}

    def _event(self, truncates: bool) -> Event:
        seq, key = self._next(), self.random.choice(KEYS)
        if truncates and self.random.random() < 0.1:
            self.live.clear()
            return Event(seq, None, None)
        if key in self.live and self.random.random() < 0.3:
            self.live.discard(key)
            return Event(seq, key, None)
        values = self._values()
        if key in self.live and self.random.random() < 0.4:
            values = {"a b": values["a b"]}
        self.live.add(key)
        return Event(seq, key, values)

    def _values(self) -> Values:
        values: Values = {"a b": f"é'{self.seq}", "n": self.random.randrange(99), OVERFLOW: []}
        if self.random.random() < 0.4:
            values |= {"n": None, OVERFLOW: [{"key": "n", "value": f"1e{self.seq}"}]}
        return values

    def _next(self) -> int:
        self.seq += 1
        return self.seq


def _plan(events: list[Event], start: int, end: int, **more: Any) -> TablePlan:
    keys = [one.key for one in events if one.key is not None]
    bounds = {"key_min": str(min(keys)), "key_max": str(max(keys))} if keys else {}
    return msgspec.structs.replace(PLAN, from_seq=start, to_seq=end, **bounds, **more)


def _merged(duckdb: DuckDb, rows: RowMerge) -> None:
    """Run the MERGE, and once more, which changes nothing."""
    sql = replace(DIALECT.merge(rows), source=SOURCE).sql(TABLE, "")
    duckdb.merge(sql)
    once = _content(duckdb)
    duckdb.merge(sql)
    assert _content(duckdb) == once, "twice is not once"


def _content(duckdb: DuckDb) -> list[str]:
    """All rows; an array is never NULL in BigQuery."""
    found = [
        {n: ([] if v is None else v) if n in OWN else v for n, v in row.items()}
        for row in duckdb.run(f"SELECT * FROM {TABLE}")  # noqa: S608
    ]
    return sorted(repr(sorted(row.items())) for row in found)


def _expected(rows: list[Values], columns: Mapping[str, str]) -> list[str]:
    assert all(row.keys() == columns.keys() for row in rows)
    return sorted(repr(sorted(row.items())) for row in rows)


def _row(one: Version, seq: int | None = None) -> Values:
    at = one.since if seq is None else seq
    return {"id": one.key, **one.values, SEQ: at, TS: _at(at)}


def _folded(events: list[Event]) -> list[Values]:
    """One row per key, as Spark folds them: the newest, with what earlier ones of it say of ``n``;
    nothing is known across a delete."""
    found: dict[int, Values] = {}
    for one in events:
        assert one.key is not None
        was = found.get(one.key, {GONE: True, UNKNOWN: []})
        row: Values = {"id": one.key, SEQ: one.seq, TS: _at(one.seq), GONE: one.values is None}
        lacks = one.values is not None and "n" not in one.values
        row |= {"a b": None, "n": None, OVERFLOW: [], UNKNOWN: [], MISSING: []}
        if lacks and not was[GONE]:
            row |= {name: was[name] for name in ("n", OVERFLOW, UNKNOWN)}
        elif lacks:
            row[UNKNOWN] = ["n"]
        found[one.key] = row | (one.values or {})
    return list(found.values())


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_current_rows_are_the_sources(duckdb: DuckDb, seed: int) -> None:
    """With rows that a dump does not find, that are missing in the target, or whose sequence is
    damaged there: such a row does not shield itself from older changes."""
    random, model = Random(seed), Model()
    source, columns = Source(random), ROWS | OWN
    duckdb.fill(TABLE, columns, [])
    for number in range(PLANS):
        start, dumped = source.seq, number == PLANS // 2
        if dumped:
            source.lose()
        events = source.dump() if dumped else []
        events += source.events(truncates=False)
        _damage(duckdb, random, model, events, start)
        plan = _plan(events, start, source.seq, delete_before=start if dumped else None)
        duckdb.fill(SOURCE, ROWS | {OVERFLOW: TEXTS} | WORKING, _folded(events))
        for event in events:
            model.take(event)
        if dumped:
            model.end(start, source.seq)
        _merged(duckdb, merge_rows(plan, "v", ("n",)))
        rows = [_row(one) for one in model.versions if one.until is None]
        assert _content(duckdb) == _expected(rows, columns), f"after plan {number}"


def _damage(duckdb: DuckDb, random: Random, model: Model, events: list[Event], start: int) -> None:
    """Of the rows that the plan touches one is gone, and one has a sequence that is not its."""
    touched = {one.key for one in events if one.key is not None}
    held = sorted(touched & {v.key for v in model.versions if v.until is None})
    random.shuffle(held)
    for key, change in zip(held, ("gone", "NULL"), strict=False):
        if change == "gone":
            duckdb.run(f"DELETE FROM {TABLE} WHERE id = {key}")  # noqa: S608
            model.versions = [v for v in model.versions if (v.key, v.until) != (key, None)]
        else:
            damage = random.choice(("NULL", str(start + 1_000)))
            duckdb.run(f"UPDATE {TABLE} SET {SEQ} = {damage} WHERE id = {key}")  # noqa: S608


def _ends(events: list[Event]) -> tuple[PlannedEnd, ...]:
    return tuple(
        PlannedEnd(one.seq, one.seq - 1, _micros(one.seq)) for one in events if one.key is None
    )


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_deleted_rows_keep_their_last_values(duckdb: DuckDb, seed: int) -> None:
    """Of deletes, and of truncates, which end rows that no change of the plan touches."""
    model, source, columns = Model(), Source(Random(seed)), ROWS | OWN | SOFT
    duckdb.fill(TABLE, columns, [])

    def last(keys: set[int]) -> list[Values]:
        newest = {one.key: one for one in model.versions if one.key in keys}
        return [
            _row(one, one.until)
            | {DELETED: one.until is not None, DELETED_AT: _at(one.until), DELETED_SEQ: one.until}
            for one in newest.values()
        ]

    for number in range(PLANS):
        start, events = source.seq, source.events(truncates=True)
        for event in events:
            model.take(event)
        touched = {one.key for one in events if one.key is not None}
        duckdb.fill(SOURCE, columns, last(touched))
        plan = _plan(events, start, source.seq, ends=_ends(events))
        _merged(duckdb, soft_deletes._merge(plan))
        assert _content(duckdb) == _expected(last({*KEYS}), columns), f"after plan {number}"


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_every_version_is_kept_and_closed_once(duckdb: DuckDb, seed: int) -> None:
    model, source, columns = Model(), Source(Random(seed)), ROWS | OWN | VALID
    duckdb.fill(TABLE, columns, [])

    def rows(versions: list[Version]) -> list[Values]:
        return [
            _row(one)
            | {FROM_SEQ: one.since, FROM: _at(one.since), TO_SEQ: one.until, TO: _at(one.until)}
            | {CURRENT: one.until is None}
            for one in versions
        ]

    for number in range(PLANS):
        start, events = source.seq, source.events(truncates=True)
        was_open = {id(one) for one in model.versions if one.until is None}
        for event in events:
            model.take(event)
        touched = {one.key for one in events}
        given = [v for v in model.versions if v.since > start or id(v) in was_open]
        duckdb.fill(SOURCE, columns, rows([one for one in given if one.key in touched]))
        plan = _plan(events, start, source.seq, ends=_ends(events))
        _merged(duckdb, history._merge(plan, {}))
        assert _content(duckdb) == _expected(rows(model.versions), columns), f"after plan {number}"


def test_keys_that_are_there_twice_go(duckdb: DuckDb) -> None:
    row = _row(Version(1, 3, {"a b": "x", "n": 1, OVERFLOW: [], PENDING: []}))
    duckdb.fill(TABLE, ROWS | OWN, [row, row, row | {"id": 2}])
    duckdb.fill(SOURCE, {"id": "INT64"}, [{"id": 1}])
    _merged(duckdb, delete_rows(PLAN, "v"))
    assert _content(duckdb) == _expected([row | {"id": 2}], ROWS | OWN)


def test_a_source_with_two_rows_of_a_key_is_refused(duckdb: DuckDb) -> None:
    """So that the tests above would see it: BigQuery refuses such a MERGE, DuckDB does not."""
    row = _row(Version(1, 3, {"a b": "x", "n": 1, OVERFLOW: [], PENDING: []}))
    newer = _folded([Event(4, 1, {"a b": "y"})])
    duckdb.fill(TABLE, ROWS | OWN, [row])
    duckdb.fill(SOURCE, ROWS | {OVERFLOW: TEXTS} | WORKING, newer * 2)
    with pytest.raises(DuckDbFailed, match="at most one source row"):
        _merged(duckdb, merge_rows(_plan([], 3, 4), "v", ("n",)))
    assert _content(duckdb) == _expected([row], ROWS | OWN)
