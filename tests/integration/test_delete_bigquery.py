"""``tideline delete-pipeline`` on BigQuery's tables: the pipeline's own go, all others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import with_endpoint
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.target_properties import owner_properties
from tideline.settings import Settings, Warehouse
from tideline.warehouse.bigquery.log import COLUMNS, NO_VERSION, CommitEntry, Pending
from tideline.warehouse.bigquery.removal import owned_targets, remove_target
from tideline_console.delete_pipeline import EXIT_LEFT, run

HEX = "0123456789abcdef"


def ask(dataset: Dataset, sql: str) -> None:
    dataset.client.query(sql).result()


def a_target(
    dataset: Dataset,
    table: str,
    properties: Mapping[str, str],
    *,
    version: int = 0,
    pending: Pending | None = None,
) -> None:
    """A table and its log, as merges make them."""
    name = f"`{dataset.name}`.`{table}`"
    ask(dataset, f"CREATE TABLE IF NOT EXISTS {name} (id INT64)")
    columns = ", ".join(f"{one} {kind}" for one, kind in COLUMNS.items())
    ask(dataset, f"CREATE TABLE `{dataset.name}`.`_tideline_log_{table}` ({columns})")
    entry = CommitEntry(properties=dict(properties)).text()
    waits = "NULL" if pending is None else f"'{pending.text()}'"
    values = f"{version}, TRUE, CURRENT_TIMESTAMP(), '', '{entry}', {waits}"
    log, listed = f"`{dataset.name}`.`_tideline_log_{table}`", ", ".join(COLUMNS)
    ask(dataset, f"INSERT {log} ({listed}) VALUES ({values})")  # noqa: S608


def tables(dataset: Dataset) -> list[str]:
    return sorted(one.table_id for one in dataset.client.list_tables(dataset.name))


@pytest.fixture
def theirs(dataset: Dataset) -> Dataset:
    """A dataset named ``{prefix}__public``, with tables of others alone."""
    name = f"{dataset.name}__public"
    dataset.client.create_dataset(name)
    inner = replace(dataset, name=name)
    a_target(inner, "others", owner_properties(("another", "one", "public.others")))
    ask(inner, f"CREATE TABLE `{name}`.`_tideline_staged_{HEX}_others` (c0 INT64)")
    ask(inner, f"CREATE TABLE `{name}`.`by_hand` (id INT64)")
    return inner


OTHERS = ["_tideline_log_others", f"_tideline_staged_{HEX}_others", "by_hand", "others"]


@pytest.fixture
def shop(
    database: Database, pipeline_of: PipelineFactory, dataset: Dataset, theirs: Dataset
) -> Pipeline[Database]:
    """A pipeline that has run, and what merges and runs that were killed have left of it."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    shop = pipeline_of(database)
    shop.drain()
    owner = owner_properties((shop.settings.pipeline, shop.manifest().incarnation, "public.orders"))
    a_target(theirs, "orders", owner)
    ask(theirs, f"CREATE TABLE `{theirs.name}`.`_tideline_staged_{HEX}_orders` (c0 INT64)")
    return shop


def settings_of(shop: Pipeline[Any], dataset: Dataset) -> Settings:
    place = with_endpoint(shop.settings.warehouse, dataset.front.endpoint, dataset.name)
    return shop.settings.model_copy(update={"warehouse": place})


def test_its_tables_go_and_all_others_stay(
    shop: Pipeline[Database],
    dataset: Dataset,
    theirs: Dataset,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = settings_of(shop, dataset)
    before = tables(theirs)
    assert run(settings, chain=True, targets=True, yes=False) == 0
    printed = capsys.readouterr().out
    assert f"the BigQuery table tideline.{theirs.name}.orders, its log" in printed
    assert "1 tables of staged rows" in printed and "others" not in printed
    assert tables(theirs) == before != OTHERS
    assert run(settings, chain=False, targets=False, yes=True) == 0
    assert tables(theirs) == before, "only --targets removes them"
    assert run(settings, chain=True, targets=True, yes=True) == 0
    assert tables(theirs) == OTHERS
    capsys.readouterr()
    assert run(settings, chain=True, targets=True, yes=True) == 0
    assert "nothing is left" in capsys.readouterr().out


def test_another_life_of_the_chain_stays(theirs: Dataset, dataset: Dataset) -> None:
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    assert list(owned_targets(place, "another", "two")) == []
    (owned,) = owned_targets(place, "another", "one")
    assert (owned.name.table, len(owned.staged)) == ("others", 1)
    assert [one.name for one in owned_targets(place, "another", None)] == [owned.name]
    elsewhere = with_endpoint(_place(), dataset.front.endpoint, f"{dataset.name}_x")
    assert list(owned_targets(elsewhere, "another", None)) == []


def test_what_was_removed_by_half_is_found_again(theirs: Dataset, dataset: Dataset) -> None:
    """Killed before the log went: that says whose the table was."""
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    theirs.client.delete_table(f"{theirs.name}.others")
    (owned,) = owned_targets(place, "another", "one")
    remove_target(place, owned)
    assert tables(theirs) == ["by_hand"]


def test_a_table_that_was_being_made_is_found(theirs: Dataset, dataset: Dataset) -> None:
    """Killed after its log had said what was to come."""
    owner = owner_properties(("shop", "one", "public.new"))
    pending = Pending("job", "CREATE", CommitEntry(properties=owner), 0)
    a_target(theirs, "new", {}, version=NO_VERSION, pending=pending)
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    (owned,) = owned_targets(place, "shop", "one")
    assert owned.name.table == "new"


def test_the_dataset_of_shadow_tables_goes_with_its_last(theirs: Dataset, dataset: Dataset) -> None:
    name = f"{dataset.name}__rebuild_000001__public"
    dataset.client.create_dataset(name)
    shadow = replace(dataset, name=name)
    for table in ("a", "b"):
        a_target(shadow, table, owner_properties(("shop", "one", f"public.{table}")))
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    first, second = owned_targets(place, "shop", "one")
    remove_target(place, first)
    assert tables(shadow) == ["_tideline_log_b", "b"]
    remove_target(place, second)
    assert name not in [one.dataset_id for one in dataset.client.list_datasets()]
    (others,) = owned_targets(place, "another", "one")
    remove_target(place, others)
    assert tables(theirs) == ["by_hand"], "and no other dataset does"


def test_what_may_not_be_removed_keeps_the_chain(
    shop: Pipeline[Database],
    dataset: Dataset,
    theirs: Dataset,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = settings_of(shop, dataset)
    dataset.front.denied.add("bigquery.tables.delete")
    assert run(settings, chain=True, targets=True, yes=True) == EXIT_LEFT
    printed = capsys.readouterr()
    assert "BigQuery refused to remove" in printed.err and "the chain stays" in printed.out
    dataset.front.denied.clear()
    assert run(settings, chain=True, targets=True, yes=True) == 0
    assert tables(theirs) == OTHERS


def test_logs_that_cannot_be_read_are_left(theirs: Dataset, dataset: Dataset) -> None:
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    dataset.front.denied.add("bigquery.tables.getData")
    assert list(owned_targets(place, "another", "one")) == []
    dataset.front.denied.clear()
    log = f"`{theirs.name}`.`_tideline_log_others`"
    ask(theirs, f"UPDATE {log} SET entry = 'damaged' WHERE TRUE")  # noqa: S608
    assert list(owned_targets(place, "another", "one")) == []


def test_datasets_that_may_not_be_listed_are_an_error(theirs: Dataset, dataset: Dataset) -> None:
    """Without the list, tables would be left in silence."""
    place = with_endpoint(_place(), dataset.front.endpoint, dataset.name)
    dataset.front.denied.add("bigquery.datasets.get")
    with pytest.raises((Misconfigured, Unavailable), match="to list the datasets"):
        list(owned_targets(place, "another", "one"))


def _place() -> Warehouse:
    return Warehouse(url="file:///w")
