"""Tables of aggregates against a join of the test's own, wherever their members' merges stand."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
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
from tests.fixtures.parts import History, Shaped
from tideline.contract.aggregate_tables import AggregateOutcome, AggregateResult
from tideline.planner.aggregating import order_aggregates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.parametrize("seed", [1, 2])
def test_each_table_of_documents_is_the_join_at_its_place(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    draw, shop = random.Random(seed), Shop(seed)
    history = Aggregating(tmp_path)
    history.begin()
    at: dict[int, Rows] = {history.last_number: copy.deepcopy(shop.rows)}
    outcomes, places = set(), []
    for number in range(12):
        for _ in range(draw.randrange(1, 4)):
            history.commit(*(one for _ in range(3) for one in shop.transaction(3)))
            at[history.last_number] = copy.deepcopy(shop.rows)
        merged = TABLES if number in (0, 11) else draw.sample(TABLES, draw.randrange(1, 5))
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
