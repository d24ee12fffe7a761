"""Tideline's own JSON form of events, as consumers read it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.publishing import orders, published

T = "public.t"
COLUMNS = {"id": "int32", "name": "string", "price": "decimal(10,2)"}


@pytest.fixture
def history(tmp_path: Path) -> History:
    found = History(tmp_path)
    found.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    return found


def test_an_insert_shows_where_it_is_and_its_row(history: History) -> None:
    history.commit(Row(T, "c", {"id": 1, "name": 'a"b', "price": Decimal("1.5")}))
    (event,) = published(history)
    assert event.key == {"id": 1}
    assert event.value == {
        "op": "c",
        "table": T,
        "seq": 2,
        "tx": 7,
        "at": "2024-01-01T00:00:02.000000Z",
        "key": {"id": 1},
        "row": {"id": 1, "name": 'a"b', "price": "1.50"},
    }


def test_a_delete_has_no_row(history: History) -> None:
    history.commit(Row(T, "d", {"id": 1}))
    (event,) = published(history)
    assert (event.key, event.value["op"]) == ({"id": 1}, "d")
    assert "row" not in event.value


def test_an_update_of_the_key_deletes_the_old_one_first(history: History) -> None:
    history.commit(Row(T, "u", {"id": 2, "name": "b"}, before={"id": 1}))
    old, new = published(history)
    assert orders([old, new]) == [(2, 0), (2, 1)]
    assert (old.key, old.value["op"]) == ({"id": 1}, "d")
    assert (new.key, new.value["op"], new.value["row"]["name"]) == ({"id": 2}, "u", "b")


def test_a_column_that_the_log_left_out_is_named_and_never_null(history: History) -> None:
    history.commit(Row(T, "u", {"id": 1, "price": Decimal(2)}, unchanged=("name",)))
    (event,) = published(history)
    assert event.value["row"] == {"id": 1, "price": "2.00"}
    assert event.value["unchanged"] == ["name"]


def test_a_value_that_does_not_fit_is_its_text_and_never_null(history: History) -> None:
    history.commit(Row(T, "c", {"id": 1, "name": "n"}, overflow={"price": "NaN"}))
    (event,) = published(history)
    assert event.value["row"] == {"id": 1, "name": "n"}
    assert event.value["overflow"] == {"price": "NaN"}


def test_rows_of_both_kinds_keep_their_order(history: History) -> None:
    """Those with columns left out are encoded apart from the others."""
    rows = [Row(T, "u", {"id": at}, unchanged=("name",) if at % 3 == 0 else ()) for at in range(20)]
    history.commit(*rows)
    assert [event.key for event in published(history)] == [{"id": at} for at in range(20)]


def test_the_row_before_is_there_where_the_parts_have_it(history: History) -> None:
    history.commit(
        Row(T, "u", {"id": 1, "name": "new"}, image={"name": "old", "price": Decimal(3)}),
        Row(T, "d", {"id": 1}, image={"name": "new", "price": None}),
    )
    update, delete = published(history)
    assert update.value["before"] == {"id": 1, "name": "old", "price": "3.00"}
    assert delete.value["before"] == {"id": 1, "name": "new", "price": None}


def test_the_row_before_has_the_old_key(history: History) -> None:
    image = {"name": "old", "price": None}
    history.commit(Row(T, "u", {"id": 2, "name": "new"}, before={"id": 1}, image=image))
    old, new = published(history)
    assert old.value["before"] == new.value["before"] == {"id": 1, **image}


def test_a_value_of_the_row_before_that_does_not_fit_is_its_text(history: History) -> None:
    row = Row(T, "d", {"id": 1}, image={"name": "n"}, image_overflow={"price": "NaN"})
    history.commit(row)
    (event,) = published(history)
    assert event.value["before"] == {"id": 1, "name": "n"}
    assert event.value["before_overflow"] == {"price": "NaN"}


def test_a_row_without_a_key_has_none(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, COLUMNS, [])), Row(T, "c", {"id": 1}))
    (event,) = published(history)
    assert event.key is None
    assert "key" not in event.value


def test_a_truncate_is_an_event_of_its_own(history: History) -> None:
    history.commit(Row(T, "c", {"id": 1}), Emptied(T), Row(T, "c", {"id": 2}))
    first, emptied, second = published(history)
    assert orders([first, emptied, second]) == [(2, 0), (3, 0), (4, 0)]
    assert emptied.key is None
    assert (emptied.value["op"], emptied.value["table"]) == ("t", T)
    assert emptied.value["at"].startswith("2023-11-14T")


def test_names_are_written_as_json_has_them(tmp_path: Path) -> None:
    history = History(tmp_path)
    table = '"a""b"."c\\d"'
    history.commit(Shaped(schema_of(table, {'k"1': "int32", "v\\": "string"}, ['k"1'])))
    history.commit(Row(table, "c", {'k"1': 1, "v\\": "x"}))
    (event,) = published(history)
    assert event.value["table"] == table
    assert event.key == {'k"1': 1}
    assert event.value["row"] == {'k"1': 1, "v\\": "x"}
