"""Tables of aggregates against a join of the test's own, wherever their members' merges stand."""

from __future__ import annotations

import contextlib
import copy
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.aggregates import (
    CUSTOMER,
    CUSTOMERS,
    ITEMS,
    ORDERS,
    REGIONS,
    SCHEMAS,
    Rows,
    Shop,
    documents,
)
from tests.fixtures.iceberg import with_iceberg
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.aggregate_tables import AggregateOutcome, AggregateResult
from tideline.contract.errors import Misconfigured
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner.aggregating import order_aggregates
from tideline.settings import Warehouse
from tideline_console.deleted_files import target_removals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGION = CUSTOMER["children"]["region"]
TABLES = (CUSTOMERS, ORDERS, ITEMS, REGIONS)


class Aggregating(History):
    """A history whose tables are the members of the aggregate ``customer``."""

    def __init__(self, root: Path, definition: Mapping[str, Any] = CUSTOMER, **given: Any) -> None:
        super().__init__(root, **given)
        self.define(definition)

    def define(self, definition: Mapping[str, Any]) -> None:
        """Have ``definition`` be that of the settings from now on."""
        raw = self.settings.model_dump(exclude_unset=True)
        raw["aggregates"] = {"customer": definition}
        self.settings = type(self.settings).model_validate(raw)

    def begin(self) -> None:
        """Have all members captured, and dumped while they were empty."""
        self.commit(*(Shaped(schema) for schema in SCHEMAS))
        self.commit(deletes_before=[(name, 0) for name in TABLES])

    def write(
        self,
        spark: SparkSession,
        order_id: str,
        on_point: Callable[[str], None] = lambda point: None,
    ) -> AggregateResult:
        """Order and run the aggregate ``customer``."""
        from tideline_spark.aggregate import write_aggregates

        order = order_aggregates(self.settings, order_id=order_id)
        [result] = write_aggregates(spark, order, on_point=on_point).aggregates
        return result


def held(spark: SparkSession, url: str) -> dict[int, dict[str, Any]]:
    """The table's documents by the customer's id, without the columns of ours."""
    from tideline_spark.formats.registry import open_target

    found = [row.asDict(recursive=True) for row in open_target(spark, url).rows().collect()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: plain(row) for row in found}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if not name.startswith("_tl_")}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 6), *(pytest.param(n, 20, marks=pytest.mark.long) for n in (2, 3))]
)
def test_each_table_of_documents_is_the_join_at_its_place(
    spark: SparkSession, tmp_path: Path, seed: int, rounds: int
) -> None:
    draw, shop = random.Random(seed), Shop(seed)
    history = Aggregating(tmp_path)
    history.begin()
    at: dict[int, Rows] = {history.last_number: copy.deepcopy(shop.rows)}
    outcomes, places = set(), []
    for number in range(rounds):
        for _ in range(draw.randrange(1, 4)):
            history.commit(*(one for _ in range(3) for one in shop.transaction(3)))
            at[history.last_number] = copy.deepcopy(shop.rows)
        merged = TABLES if number in (0, rounds - 1) else draw.sample(TABLES, draw.randrange(1, 5))
        history.merge(spark, *merged)
        result = history.write(spark, f"order-{number}")
        assert result.error is None
        outcomes.add(result.outcome)
        if result.outcome is not AggregateOutcome.DELAYED:
            assert result.manifest is not None
            places.append(result.manifest)
            url = result.target or f"{history.settings.warehouse.url}/~aggregates/customer"
            assert held(spark, url) == documents(at[result.manifest])
    assert {AggregateOutcome.WRITTEN, AggregateOutcome.CURRENT} <= outcomes
    assert places == sorted(places)
    assert places[-1] == history.last_number


@pytest.mark.parametrize("point", ["before-write", "after-write"])
def test_a_run_that_dies_is_done_again_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    shop, history = Shop(3), Aggregating(tmp_path)
    history.begin()
    history.commit(*(one for _ in range(20) for one in shop.transaction(3)))
    history.merge(spark)

    class Died(Exception):
        pass

    def die(at: str) -> None:
        if at == point:
            raise Died

    for order, outcome in (("made", "written"), ("merged", "written")):
        assert history.write(spark, order, die).outcome is AggregateOutcome.FAILED
        again = history.write(spark, order)
        assert again.outcome.value == ("current" if point == "after-write" else outcome)
        assert held(spark, again.target) == documents(shop.rows)
        history.commit(*(one for _ in range(3) for one in shop.transaction(3)))
        history.merge(spark)


def test_two_runs_at_once(spark: SparkSession, tmp_path: Path) -> None:
    shop, history = Shop(4), Aggregating(tmp_path)
    history.begin()
    history.commit(*(one for _ in range(20) for one in shop.transaction(3)))
    history.merge(spark)
    for order in ("made", "merged"):
        both = threading.Barrier(2)

        def meet(at: str, both: threading.Barrier = both) -> None:
            if at == "before-write" and not both.broken:
                with contextlib.suppress(threading.BrokenBarrierError):
                    both.wait(60)
                both.abort()

        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(history.write, spark, order, meet) for _ in range(2)]
            results = [one.result() for one in running]
        assert sorted(one.outcome.value for one in results) == ["current", "written"]
        assert held(spark, results[0].target) == documents(shop.rows)
        history.commit(*(one for _ in range(3) for one in shop.transaction(3)))
        history.merge(spark)


def test_a_run_that_another_overtakes(spark: SparkSession, tmp_path: Path) -> None:
    """All of it, between the look at the table and the commit."""
    shop, history = Shop(7), Aggregating(tmp_path)
    history.begin()
    for order in ("made", "merged"):
        history.commit(*(one for _ in range(5) for one in shop.transaction(3)))
        history.merge(spark)
        others: list[AggregateResult] = []

        def overtake(at: str, order: str = order, others: list[AggregateResult] = others) -> None:
            if at == "before-write" and not others:
                others.append(history.write(spark, order))

        result = history.write(spark, order, overtake)
        outcomes = (others[0].outcome.value, result.outcome.value)
        assert outcomes == ("written", "current"), result.error
        assert held(spark, result.target) == documents(shop.rows)


def test_members_that_are_iceberg_tables(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One of them merged further than the others."""
    place = with_iceberg(request, Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    shop, history = Shop(6), Aggregating(tmp_path, place=place)
    history.begin()
    history.commit(*(one for _ in range(20) for one in shop.transaction(3)))
    history.merge(spark)
    then = copy.deepcopy(shop.rows)
    place_then = history.last_number
    history.commit(*(one for _ in range(5) for one in shop.transaction(3)))
    history.merge(spark, ITEMS, CUSTOMERS)
    result = history.write(spark, "one")
    assert (result.outcome, result.manifest) == (AggregateOutcome.WRITTEN, place_then)
    assert held(spark, result.target) == documents(then)
    history.merge(spark)
    assert history.write(spark, "two").manifest == history.last_number
    assert held(spark, result.target) == documents(shop.rows)


def test_another_definition_or_column_replaces_all(spark: SparkSession, tmp_path: Path) -> None:
    from tideline_spark.formats.registry import open_target

    shop, history = Shop(5), Aggregating(tmp_path)
    history.begin()
    history.commit(*(one for _ in range(20) for one in shop.transaction(3)))
    history.merge(spark)
    first = history.write(spark, "one")
    plainer = {"root": CUSTOMERS, "columns": ["name"]}
    history.define(plainer)
    assert history.write(spark, "two").outcome is AggregateOutcome.WRITTEN
    names = {key[0]: row["name"] for key, row in shop.rows[CUSTOMERS].items()}
    shown = {key: {"id": key, "name": name} for key, name in names.items()}
    assert held(spark, first.target) == shown
    history.define(CUSTOMER)
    assert history.write(spark, "three").outcome is AggregateOutcome.WRITTEN
    assert held(spark, first.target) == documents(shop.rows)
    # A new column of a child, which only new rows have.
    added = {"id": "int32", "title": "string", "size": "int32"}
    history.define({**CUSTOMER, "children": {"region": {**REGION, "columns": ["title", "size"]}}})
    steps = (ColumnStep(StepKind.ADD, "size", type="int32"),)
    history.commit(
        Shaped(schema_of(REGIONS, added, ["id"]), steps),
        Row(REGIONS, "c", {"id": 77, "title": "new", "size": 5}),
        Row(CUSTOMERS, "c", {"id": 500, "name": "last", "region_id": 77}),
    )
    history.merge(spark)
    assert history.write(spark, "four").outcome is AggregateOutcome.WRITTEN
    found = held(spark, first.target)
    assert found[500] == {"id": 500, "name": "last", "region_id": 77} | {
        "region": {"title": "new", "size": 5}
    }
    assert all((one["region"] or {}).get("size") in (None, 5) for one in found.values())
    # Then only what changes is written.
    history.commit(Row(REGIONS, "u", {"id": 77, "title": "newer", "size": 5}))
    history.merge(spark)
    result = history.write(spark, "five")
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 0)
    rows = open_target(spark, first.target).rows().collect()
    assert {row["id"] for row in rows if row["_tl_seq"] == result.seq} == {500}


HOUSES, ROOMS = "town.houses", "town.rooms"
ODD = "a b;c"


def odd_history(root: Path) -> Aggregating:
    """A root with a key of two columns that its documents do not name, and children by a text key,
    in fields and columns with odd names."""
    rooms = {"table": ROOMS, "keys": {"street": "street", "house": "number"}}
    history = Aggregating(
        root,
        {
            "root": HOUSES,
            "columns": [ODD],
            "children": {
                "the rooms": {**rooms, "columns": ["name", ODD]},
                "first": {**rooms, "many": False, "columns": ["name"]},
            },
        },
    )
    house = {"street": "string", "number": "int32", ODD: "decimal(5,2)"}
    room = {"name": "string", "street": "string", "house": "int64", ODD: "int32"}
    history.commit(
        Shaped(schema_of(HOUSES, house, ["street", "number"])),
        Shaped(schema_of(ROOMS, room, ["name"])),
    )
    history.commit(deletes_before=[(HOUSES, 0), (ROOMS, 0)])
    return history


def test_odd_names_keys_and_values_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    from tideline_spark.formats.registry import open_target

    history = odd_history(tmp_path)
    a, b = {"street": "High", "number": 1}, {"street": "high", "number": 1}

    def room(name: str, of: Mapping[str, Any], odd: int | None = None, **more: Any) -> Row:
        values = {"name": name, "street": of["street"], "house": of["number"], ODD: odd}
        return Row(ROOMS, "c", values, **more)

    history.commit(
        Row(HOUSES, "c", {**a, ODD: None}, overflow={ODD: "12345.67"}),
        Row(HOUSES, "c", {**b, ODD: Decimal("1.50")}),
        room("é", a),
        room("Z", a, 4),
        room("a", a, None, overflow={ODD: "99999999999"}),
        room("lost", {"street": None, "number": 1}),
    )
    history.merge(spark)
    result = history.write(spark, "one")
    assert result.error is None
    rows = open_target(spark, result.target).rows().collect()
    found = {row["street"]: row.asDict(recursive=True) for row in rows}
    assert [one["name"] for one in found["High"]["the rooms"]] == ["Z", "a", "é"]
    assert found["High"]["first"]["name"] == "Z"
    assert (found["high"]["the rooms"], found["high"]["first"]) == ([], None)
    assert (found["high"][ODD], found["high"]["_tl_overflow"]) == (Decimal("1.50"), None)
    overflow = [{"column": ODD, "text": "12345.67"}]
    assert (found["High"][ODD], found["High"]["_tl_overflow"]) == (None, overflow)
    texts = [{"column": ODD, "text": "99999999999"}]
    assert [one["_tl_overflow"] for one in found["High"]["the rooms"]] == [None, texts, None]
    # The room moves; the key of its house does not show, and is still what rows are found by.
    moved = Row(ROOMS, "u", {"name": "Z", "street": "high", "house": 1, ODD: 4})
    history.commit(moved, room("B", a))
    history.merge(spark)
    result = history.write(spark, "two")
    assert (result.inserted, result.updated, result.deleted) == (0, 2, 0)
    rows = open_target(spark, result.target).rows().collect()
    there = {row["street"]: [one["name"] for one in row["the rooms"]] for row in rows}
    assert there == {"High": ["B", "a", "é"], "high": ["Z"]}
    removed = [one.what for one in target_removals(history.settings, "one")]
    assert f"the table at {result.target}" in removed


def test_what_waits_and_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = Aggregating(tmp_path)
    history.commit(*(Shaped(schema) for schema in SCHEMAS))
    history.commit(Row(CUSTOMERS, "c", {"id": 1, "name": "Ada", "region_id": None}))
    result = history.write(spark, "unmerged")
    assert (result.outcome, result.reason) == (
        AggregateOutcome.DELAYED,
        "public.customers is not merged yet: `tideline merge`",
    )
    history.merge(spark)
    result = history.write(spark, "undumped")
    assert result.outcome is AggregateOutcome.DELAYED
    assert "where a first dump is under way, once it has ended" in str(result.reason)
    history.commit(deletes_before=[(name, 0) for name in TABLES])
    history.merge(spark)
    history.define({"root": CUSTOMERS, "children": {"Name": CUSTOMER["children"]["orders"]}})
    result = history.write(spark, "case")
    assert "two fields `name`" in str(result.error)
    history.define(CUSTOMER)
    # Its members' tables are complete, and something else is in the place of its own.
    url = f"{history.settings.warehouse.url}/~aggregates/customer"
    spark.range(1).write.format("delta").save(url)
    result = history.write(spark, "taken")
    assert result.outcome is AggregateOutcome.FAILED
    assert "is not that of this pipeline's aggregate customer" in str(result.error)
    with pytest.raises(Misconfigured, match="there is no aggregate nobody"):
        order_aggregates(history.settings, order_id="x", names=["nobody"])
    history.define({"root": CUSTOMERS, "columns": ["nothing"]})
    with pytest.raises(Misconfigured, match=r"public\.customers has no column nothing"):
        order_aggregates(history.settings, order_id="column")
