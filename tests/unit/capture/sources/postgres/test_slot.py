"""A look through the server's log before it is read, which may take as long as decoding it."""

from __future__ import annotations

import threading
from typing import Any

import psycopg2.errors
import pytest

from tideline.contract.errors import SourceLost, Unavailable
from tideline.contract.position import PostgresPosition
from tideline_capture.sources.postgres import slot as module
from tideline_capture.sources.postgres.slot import ReplicationSlot

PATIENCE_S = 60.0


class Looking:
    """A connection whose statement ends when it is cancelled, or with ``found``."""

    def __init__(self, found: bool | None = None) -> None:
        self.cancelled = threading.Event()
        self.found = found

    def cursor(self) -> Any:
        return self

    @property
    def connection(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        return None

    def cancel(self) -> None:
        self.cancelled.set()

    def execute(self, statement: str, given: tuple[object, ...]) -> None:
        assert given == ("slot", "0/1000", '"published"', (0x1000).to_bytes(8, "big"))
        if self.found is None:
            assert self.cancelled.wait(PATIENCE_S)
            raise psycopg2.errors.QueryCanceled

    def fetchone(self) -> tuple[bool | None]:
        return (self.found,)


def slot_over(looking: Looking) -> ReplicationSlot:
    return ReplicationSlot("slot", "published", lambda role: looking)


def test_a_stop_is_heard_while_the_log_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, reported = Looking(), list[str]()
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)

    def on_waiting(reason: str) -> None:
        reported.append(reason)
        if len(reported) == 3:
            raise Unavailable("stopped")

    with pytest.raises(Unavailable, match="stopped"):
        slot_over(looking).check_same_log(PostgresPosition(0x1000), on_waiting)
    assert looking.cancelled.is_set()
    assert reported == ["the server looks through its log up to 0/1000"] * 3


@pytest.mark.parametrize("found", [True, False])
def test_what_the_look_finds_counts(found: bool) -> None:
    slot = slot_over(Looking(found))
    if found:
        slot.check_same_log(PostgresPosition(0x1000), lambda reason: None)
        return
    with pytest.raises(SourceLost, match="no transaction of the server's log ends at 0/1000"):
        slot.check_same_log(PostgresPosition(0x1000), lambda reason: None)
