"""A look through the server's log before it is read, which may take as long as decoding it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import psycopg2.errors
import pytest

from tideline.contract.errors import SourceLost, Unavailable
from tideline.contract.position import PostgresPosition
from tideline.settings import make_settings
from tideline_capture.sources.postgres import source as module
from tideline_capture.sources.postgres.source import PostgresSource

PATIENCE_S = 60.0


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> PostgresSource:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    settings = {
        "pipeline": "shop",
        "source": {"url": "postgresql://nobody@127.0.0.1:1/shop", "tables": ["public.*"]},
        "store": {"url": "memory://same-log"},
        "warehouse": {"url": "file:///warehouse"},
    }
    return PostgresSource(make_settings(settings))


class Looking:
    """A connection whose statement ends when it is cancelled, or with ``found``."""

    def __init__(self, found: bool | None = None) -> None:
        self.cancelled = threading.Event()
        self.found = found

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return SimpleNamespace(connection=self)

    def __exit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        return None

    def cancel(self) -> None:
        self.cancelled.set()

    def look(self, *_: object) -> bool:
        if self.found is None:
            assert self.cancelled.wait(PATIENCE_S)
            raise psycopg2.errors.QueryCanceled
        return self.found


def test_a_stop_is_heard_while_the_log_is_looked_through(
    source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, told = Looking(), list[str]()
    monkeypatch.setattr(source, "_connect", lambda role: looking)
    monkeypatch.setattr(module, "a_transaction_ends_at", looking.look)

    def on_waiting(reason: str) -> None:
        told.append(reason)
        if len(told) == 3:
            raise Unavailable("stopped")

    with pytest.raises(Unavailable, match="stopped"):
        source._check_same_log(PostgresPosition(0x1000), on_waiting)
    assert looking.cancelled.is_set()
    assert told == ["the server looks through its log up to 0/1000"] * 3


@pytest.mark.parametrize("found", [True, False])
def test_what_the_look_finds_counts(
    source: PostgresSource, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    looking = Looking(found)
    monkeypatch.setattr(source, "_connect", lambda role: looking)
    monkeypatch.setattr(module, "a_transaction_ends_at", looking.look)
    if found:
        source._check_same_log(PostgresPosition(0x1000), lambda reason: None)
        return
    with pytest.raises(SourceLost, match="no transaction of the server's log ends at 0/1000"):
        source._check_same_log(PostgresPosition(0x1000), lambda reason: None)
