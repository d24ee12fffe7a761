"""Tables that are reserved for rebuilds, in a real Valkey, and how a merger sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.settings import as_toml
from tests.unit.control.test_merger import STATUS
from tideline.control import reservation
from tideline.control.merger import MergerQueue
from tideline.control.reservation import RESERVED_S, Reservation, ReservedTables
from tideline.settings import Settings, load_settings

T = "public.t"


@pytest.fixture
def settings(valkey: ValkeyServer, tmp_path: Path) -> Settings:
    path = tmp_path / "tideline.toml"
    path.write_text(
        as_toml(
            {
                "pipeline": "shop",
                "source": {"url": "postgres://nobody@127.0.0.1:1/shop"},
                "store": {"url": (tmp_path / "store").as_uri()},
                "control": {"url": valkey.url()},
                "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
            }
        )
    )
    return load_settings(path)


@pytest.fixture
def queue(settings: Settings) -> Iterator[MergerQueue]:
    with closing(MergerQueue(settings.control, "shop", "m", lease_s=600)) as made:
        yield made


def test_a_table_is_reserved_until_the_end(
    settings: Settings, queue: MergerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "_REPEAT_S", 0.05)
    queue.renew()
    queue.publish(replace(STATUS, reserved=(T,)))
    lines: list[str] = []
    with Reservation(settings, T, lines.append) as made:
        assert queue.reserved() == {}
        assert made.begin(), "it may stand elsewhere than before"
        assert not made.begin()
        first = queue.reserved()[T]
        poll("it is repeated", lambda: queue.reserved()[T] > first)
    assert (queue.reserved(), lines) == ({}, [])


def test_without_a_merger_or_redis_nothing_is_waited_for(
    settings: Settings, queue: MergerQueue
) -> None:
    lines: list[str] = []
    with Reservation(settings, T, lines.append) as made:
        assert not made.begin()
        assert list(queue.reserved()) == [T], "one may start"
    nowhere = settings.control.model_copy(update={"url": "redis://127.0.0.1:1/0"})
    away = settings.model_copy(
        update={"control": settings.control.model_validate(nowhere.model_dump())}
    )
    with Reservation(away, T, lines.append) as made:
        assert not made.begin()
    [line] = lines
    assert "cannot be asked" in line


def test_a_merger_that_does_not_leave_it_is_not_waited_for(
    settings: Settings, queue: MergerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "_LEFT_WITHIN_S", 0.2)
    queue.renew()
    queue.publish(STATUS)
    lines: list[str] = []
    with Reservation(settings, T, lines.append) as made:
        assert not made.begin()
    assert lines == [f"the merger has not left {T} alone"]


def test_a_reservation_that_no_one_repeats_lapses() -> None:
    """By the merger's clock alone, whatever theirs say."""
    tables = ReservedTables()
    assert tables.at({"a": 5.0, "b": 9e15}, 0.0) == (["a", "b"], [])
    assert tables.at({"a": 6.0, "b": 9e15}, RESERVED_S) == (["a", "b"], [])
    assert tables.at({"a": 6.0, "b": 9e15}, RESERVED_S + 1) == (["a"], ["b"])
    assert tables.at({"a": 6.0}, 2 * RESERVED_S) == (["a"], [])
    assert tables.at(None, 2 * RESERVED_S + 1) == ([], ["a"]), "nor while Redis is away"
    assert tables.at({}, 2 * RESERVED_S + 2) == ([], [])
