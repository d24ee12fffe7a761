"""Documents of several tables: each is the join at its position, whatever is killed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.aggregates import CUSTOMER, ORDERS, SCHEMAS, documents
from tests.fixtures.parts import Emptied, Row, Shaped, schema_of
from tests.publish.documents import Documents, check
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.open_state import TableCondition
from tideline.contract.publishing import ChainPosition
from tideline.contract.steps import ColumnStep, StepKind


@pytest.fixture
def chain(tmp_path: Path) -> Documents:
    return Documents(tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_each_document_is_the_join_at_its_position(tmp_path: Path, seed: int) -> None:
    chain = Documents(tmp_path, seed)
    chain.commit(20)
    events = chain.read()
    check(events, chain.joins)
    assert {event["op"] for event in events} == {"c", "u", "d"}
    assert all(event["table"] == "aggregates.customer" for event in events)


def test_it_goes_on_from_each_position(chain: Documents) -> None:
    """The events behind any position are those that follow it from the beginning."""
    chain.commit(8)
    events = chain.read()
    numbers = {one.manifest.last_seq: one.manifest.manifest_number for one in chain.manifests()}
    number = 0
    for seq in range(chain.history.last_seq + 1):
        number = numbers.get(seq, number)
        found = chain.read(ChainPosition("one", number, seq))
        assert found == [event for event in events if event["seq"] > seq]


def test_documents_wait_for_the_ends_of_all_dumps(tmp_path: Path) -> None:
    """Rows come chunk by chunk, between transactions: none is published before all are there, and
    then each root once, with all of its children."""
    chain = Documents(tmp_path, complete=False)
    chain.commit(6)
    for number, schema in enumerate(SCHEMAS):
        table, low = schema.table, chain.history.last_seq
        chain.history.commit(*chain.shop.dump(table))
        chain.commit(1)
        assert chain.read() == []
        last = number == len(SCHEMAS) - 1
        rows = chain.shop.transaction(3) if last else ()
        chain.history.commit(*rows, deletes_before=[(table, low)])
    at = chain.history.last_seq
    found = chain.read()
    assert {event["seq"] for event in found} == {at}
    made = {event["key"]["id"]: event["row"] for event in found}
    assert made == documents(chain.shop.rows)
    assert {event["op"] for event in found} == {"r"}
    documents_at = copy.deepcopy(made)
    chain.commit(5)
    later = {seq: one for seq, one in chain.joins.items() if seq > at}
    check(chain.read()[len(found) :], later, before=documents_at)


def test_an_empty_tables_dump_ends_the_wait(tmp_path: Path) -> None:
    """The manifest in which the last dump ends may have no change at all."""
    chain = Documents(tmp_path, complete=False)
    chain.commit(3)
    ends = [(schema.table, 0) for schema in SCHEMAS]
    for end in ends:
        assert chain.read() == []
        chain.history.commit(deletes_before=[end])
    found = chain.read()
    assert {event["key"]["id"]: event["row"] for event in found} == documents(chain.shop.rows)
    number, seq = chain.history.last_number, chain.history.last_seq
    assert chain.read(ChainPosition("one", number, seq)) == []
    # Before the end, the position does not say that anything was published.
    assert chain.read(ChainPosition("one", number - 1, 0)) == found


def test_rows_that_a_dump_does_not_find_leave_the_documents(chain: Documents) -> None:
    """As when the log missed their deletion: documents follow at the dump's end."""
    chain.commit(10)
    low = chain.history.last_seq
    gone = list(chain.shop.rows[ORDERS])[::2]
    for key in gone:
        del chain.shop.rows[ORDERS][key]
    chain.history.commit(*chain.shop.dump(ORDERS), deletes_before=[(ORDERS, low)])
    before = chain.joins[low]
    found = {e["key"]["id"]: e["row"] for e in chain.read() if e["seq"] > low}
    assert found == {
        key: row
        for key, row in documents(chain.shop.rows).items()
        if row["orders"] != before[key]["orders"]
    }
    assert found


def test_a_table_in_doubt_withholds_documents(chain: Documents) -> None:
    """While its rows may differ from the source's, none is made; then all that changed."""
    chain.commit(4)
    published = chain.read()
    doubted = {ORDERS: {"condition": TableCondition.NEEDS_RESNAPSHOT, "since_seq": 3}}
    low = chain.history.last_seq
    chain.history.commit(*chain.shop.transaction(4), states=doubted)
    chain.commit(3)
    assert chain.read() == published
    active = {ORDERS: {"condition": TableCondition.ACTIVE, "since_seq": None}}
    dump = chain.shop.dump(ORDERS)
    chain.history.commit(*dump, deletes_before=[(ORDERS, low)], states=active)
    found = chain.read()[len(published) :]
    assert {event["seq"] for event in found} == {chain.history.last_seq}
    assert latest([*published, *found]) == documents(chain.shop.rows)


def latest(events: list[dict[str, Any]]) -> dict[int, Any]:
    """The last document of each root."""
    found = {event["key"]["id"]: event.get("row") for event in events}
    return {key: row for key, row in found.items() if row is not None}


def test_columns_come_and_go(chain: Documents) -> None:
    """Documents show a table's columns as they are since its schema changed, of all rows."""
    chain.commit(4)
    table = "public.customers"
    schema = schema_of(
        table, {"id": "int32", "title": "string", "region_id": "int32", "rank": "int64"}, ["id"]
    )
    steps = (
        ColumnStep(StepKind.RENAME, "title", was="name"),
        ColumnStep(StepKind.ADD, "rank", type="int64", default="7"),
    )
    chain.history.commit(Shaped(schema, steps))
    wanted = {
        key: {**{k: v for k, v in row.items() if k != "name"}, "title": row["name"], "rank": 7}
        for key, row in documents(chain.shop.rows).items()
    }
    assert latest(chain.read()) == wanted
    dropped = schema_of(table, {"id": "int32", "region_id": "int32"}, ["id"])
    steps = (ColumnStep(StepKind.DROP, "title"), ColumnStep(StepKind.DROP, "rank"))
    chain.history.commit(Shaped(dropped, steps))
    for row in wanted.values():
        del row["title"], row["rank"]
    assert latest(chain.read()) == wanted


def test_values_that_the_log_left_out_are_those_of_the_state(chain: Documents) -> None:
    history = chain.history
    history.commit(
        Row("public.customers", "c", {"id": 1, "name": "long", "region_id": 2}, tx=1),
        Row("public.customers", "u", {"id": 1, "region_id": 3}, unchanged=("name",), tx=2),
        Row(
            "public.customers",
            "u",
            {"id": 5, "region_id": 4},
            before={"id": 1},
            unchanged=("name",),
            tx=3,
        ),
    )
    events = chain.read()
    assert [event["op"] for event in events] == ["c", "u", "d", "c"]
    kept = [event["row"]["name"] for event in events if "row" in event]
    assert kept == ["long"] * 3


def test_a_dumps_partial_row_completes_what_the_log_has(tmp_path: Path) -> None:
    """The log's update lacks a value, and comes before the row's dump."""
    chain = Documents(tmp_path, complete=False)
    at, name = "public.customers", {"id": 1, "name": "long"}
    chain.history.commit(
        Row(at, "u", {"id": 1, "region_id": 3}, unchanged=("name",), tx=1),
        Row(at, "r", name, unchanged=("region_id",), tx=0),
        deletes_before=[(schema.table, 0) for schema in SCHEMAS],
    )
    (event,) = chain.read()
    assert (event["row"]["name"], event["row"]["region_id"]) == ("long", 3)


def test_a_value_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    chain = Documents(tmp_path)
    update = {"id": 1, "region_id": 3}
    chain.history.commit(Row("public.customers", "u", update, unchanged=("name",), tx=1))
    with pytest.raises(CorruptData, match=r"public\.customers lacks its column name"):
        chain.read()


def test_values_without_a_type_are_texts(tmp_path: Path) -> None:
    chain = Documents(tmp_path)
    row = {"id": 1, "region_id": 3}
    chain.history.commit(Row("public.customers", "c", row, overflow={"name": "Infinity"}, tx=1))
    (event,) = chain.read()
    assert event["row"]["name"] == "Infinity"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root": "public.log"}, "public.log has no key"),
        ({"columns": ["id", "nothing"]}, "has no column nothing"),
        ({"children": {"name": {"table": ORDERS, "keys": {"customer_id": "id"}}}}, "a column name"),
        (
            {"children": {"o": {"table": ORDERS, "keys": {"customer_id": "name"}}}},
            "not of the type",
        ),
        ({"children": {"o": {"table": ORDERS, "keys": {"cust": "id"}}}}, "has no column cust"),
        ({"children": {"o": {"table": ORDERS, "keys": {"customer_id": "no"}}}}, "has no column no"),
    ],
)
def test_a_definition_that_does_not_fit_is_refused(
    chain: Documents, change: Mapping[str, Any], message: str
) -> None:
    log = schema_of("public.log", {"text": "string"}, [])
    chain.history.commit(Shaped(log), states={"public.log": {"complete_seq": 0}})
    chain.commit(2)
    chain.definition = {**CUSTOMER, **change}
    with pytest.raises(Misconfigured, match=message):
        chain.read()


def test_cloudevents_have_ids_of_their_own(chain: Documents) -> None:
    chain.commit(4)
    events = chain.read(format="cloudevents")
    assert [event["data"] for event in events] == chain.read()
    assert len({event["id"] for event in events}) == len(events)


def test_operations_are_those_of_documents(chain: Documents) -> None:
    chain.commit(6)
    wanted = [event for event in chain.read() if event["op"] == "d"]
    assert chain.read(operations=["d"]) == wanted != []


def test_transactions_of_one_number_are_two(tmp_path: Path) -> None:
    """Servers number for themselves: what follows at another time is another transaction."""
    chain = Documents(tmp_path)
    first, second = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2))
    table, row = "public.customers", {"id": 1, "name": "a", "region_id": 2}
    chain.history.commit(
        Row(table, "c", row, tx=5, at=first),
        Row(table, "u", {**row, "name": "b"}, tx=5, at=first),
        Row(table, "u", {**row, "name": "c"}, tx=5, at=second),
    )
    assert [event["row"]["name"] for event in chain.read()] == ["b", "c"]


def test_a_truncate_of_a_transaction_comes_with_it(tmp_path: Path) -> None:
    """Whether first, between rows, or last; one of its own is published for itself."""
    chain = Documents(tmp_path)
    at, table, row = datetime(2026, 1, 1, tzinfo=UTC), "public.customers", {"id": 1, "name": "a"}
    orders = Row(ORDERS, "c", {"id": 1, "customer_id": 1}, tx=6, at=at)
    chain.history.commit(Row(table, "c", row, tx=5, at=at), orders)
    chain.history.commit(
        Emptied(ORDERS, 7),
        Row(ORDERS, "c", {"id": 2, "customer_id": 1}, tx=7, at=at),
        Emptied(ORDERS, 7),
        Row(ORDERS, "c", {"id": 3, "customer_id": 1}, tx=7, at=at),
        Emptied(ORDERS),
        Row(table, "u", {**row, "name": "b"}, tx=8, at=at),
    )
    found = [
        (event["row"]["name"], [one["id"] for one in event["row"]["orders"]])
        for event in chain.read()
    ]
    assert found == [("a", []), ("a", [1]), ("a", [3]), ("a", []), ("b", [])]
