"""CloudEvents 1.0, as its specification has their JSON form."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.publishing import Read, published

T = 'public."T é"'
_NAME = re.compile(r"[a-z0-9]{1,20}")


@pytest.fixture
def history(tmp_path: Path) -> History:
    found = History(tmp_path)
    found.commit(Shaped(schema_of(T, {"id": "int32", "name": "string"}, ["id"])))
    return found


def events(history: History) -> list[Read]:
    return published(history, format="cloudevents")


def test_an_event_has_what_the_specification_wants_and_tidelines_own_in_it(
    history: History,
) -> None:
    history.commit(Row(T, "c", {"id": 1, "name": 'a"b'}))
    (found,) = events(history)
    (own,) = published(history)
    assert found.key == own.key == {"id": 1}
    assert found.value == {
        "specversion": "1.0",
        "id": "one-2-c",
        "source": "/tideline/shop",
        "type": "tideline.row.created",
        "subject": T,
        "datacontenttype": "application/json",
        "time": "2024-01-01T00:00:02.000000Z",
        "sequence": "00000000000000000002",
        "data": own.value,
    }


def test_each_has_an_id_of_its_own_and_sorts_by_its_sequence(history: History) -> None:
    """Also the two that an update of the key makes."""
    history.commit(
        Row(T, "r", {"id": 1}),
        Row(T, "u", {"id": 2, "name": "b"}, before={"id": 1}),
        Row(T, "u", {"id": 2, "name": "c"}),
        Row(T, "d", {"id": 2}),
        Emptied(T),
    )
    found = [one.value for one in events(history)]
    assert [one["type"].rpartition(".")[2] for one in found] == [
        *("read", "deleted", "updated", "updated", "deleted"),
        "truncated",
    ]
    assert len({one["id"] for one in found}) == len(found)
    assert [one["sequence"] for one in found] == sorted(one["sequence"] for one in found)
    assert [one["data"] for one in found] == [one.value for one in published(history)]
    for one in found:
        assert all(_NAME.fullmatch(name) for name in one)
        assert datetime.fromisoformat(one["time"]).tzinfo is not None
