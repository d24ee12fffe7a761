"""From the numbers in row events to tables: what is known, what is news, what is told."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fixtures.odd_events import FOLDER, read_events
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.binlog.table_cache import Known, Role, TableCache

TABLE_MAP = 19


def bodies(name: str) -> list[bytes]:
    found = read_events((FOLDER / f"{name}.bin").read_bytes())
    return [event.body for event in found if event.code == TABLE_MAP]


@pytest.fixture
def body() -> bytes:
    return bodies("mysql-9.7.4-savepoint")[0]


def cache_of(role: Role = Role.CHOSEN, *, captured: set[str] | None = None) -> TableCache:
    def captures(table: str) -> bool:
        return captured is None or table in captured

    cache = TableCache(lambda table: role, lambda table: {}, captures)
    cache.begin_file("9.7.4")
    return cache


def first_news(cache: TableCache, *maps: bytes) -> int:
    """Of events with these bodies, one after another."""
    data, starts, stops = b"", [], []
    for body in maps:
        starts.append(len(data))
        data += bytes(19) + body
        stops.append(len(data))
    padded = np.frombuffer(data + bytes(64), np.uint8)
    return cache.first_news(padded, np.array(starts), np.array(stops))


def renumbered(body: bytes, number: int) -> bytes:
    return number.to_bytes(6, "little") + body[6:]


def added(cache: TableCache, body: bytes) -> Known:
    assert first_news(cache, body) == 0
    return cache.add(body)


def test_what_is_known_is_no_news(body: bytes) -> None:
    cache = cache_of()
    known = added(cache, body)
    assert first_news(cache, body, body) == 2
    other = renumbered(body, 777)
    assert first_news(cache, body, other, body) == 3
    assert cache.get(777) is known


def test_other_bytes_under_a_known_number_are(body: bytes) -> None:
    cache = cache_of()
    added(cache, body)
    other = body[:-1] + bytes([body[-1] ^ 1])
    assert first_news(cache, body, other, body) == 1
    assert first_news(cache, body, body + b"\0") == 1


def test_a_file_begins_with_nothing(body: bytes) -> None:
    """A server that was restarted counts anew: a number then stands for another table."""
    cache = cache_of()
    known = added(cache, body)
    cache.begin_file()
    assert cache.get(known_number(body)) is None
    assert first_news(cache, renumbered(body, 5)) == 1
    assert cache.get(5) is known


def test_another_version_parses_again(body: bytes) -> None:
    cache = cache_of()
    added(cache, body)
    cache.begin_file("8.0.15")
    assert first_news(cache, body) == 0


def test_a_named_table_is_parsed_again(body: bytes) -> None:
    cache = cache_of()
    known = added(cache, body)
    cache.forget([str(known.name).upper()])
    assert first_news(cache, body) == 0
    assert cache.add(body) is not known


def test_a_schema_is_told_once_more_when_its_rows_are_taken(body: bytes) -> None:
    """A table that matches the settings, and is not captured before the catalog was looked at."""
    captured: set[str] = set()
    cache = cache_of(captured=captured)
    known = added(cache, body)
    assert first_news(cache, body) == 1
    captured.add(str(known.name))
    assert first_news(cache, body) == 0
    assert cache.add(body) is known
    assert first_news(cache, body) == 1


@pytest.mark.parametrize("role", list(Role))
def test_only_rows_of_our_own_table_need_a_look(role: Role, body: bytes) -> None:
    cache = cache_of(role)
    known = added(cache, body)
    assert cache.is_bulk(known_number(body)) is (role is not Role.OURS)
    assert not cache.is_bulk(99_999)
    assert (known.table is None) is (role is Role.OTHER)


def test_what_cannot_be_read_is_kept_with_its_error() -> None:
    """It stops the run when rows of it come, and not before: nobody may want them."""
    cache = cache_of()
    cache.begin_file("10.11.19-MariaDB")
    known = cache.add(bodies("mariadb-10.11.19-old-temporals")[0])
    assert known.schema is None
    assert known.error is not None
    assert known.name == TableId("odd_old_temporals", "t")


def known_number(body: bytes) -> int:
    return int.from_bytes(body[:6], "little")
