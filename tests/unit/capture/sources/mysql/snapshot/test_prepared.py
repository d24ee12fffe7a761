"""Which XA transactions a chunk waits for, by what a server answers."""

from __future__ import annotations

import pymysql
import pytest

from tideline_capture.sources.mysql.snapshot.prepared import ER_XAER_RMERR, PreparedTransactions


class Server:
    """A connection and its cursor. ``listed`` are the answers to XA RECOVER, the last one for good;
    None: the user may not ask."""

    def __init__(self, version: str, listed: list[set[str] | None], commits: int = 0) -> None:
        self.version = version
        self.listed = listed
        self.commits = commits
        self.asked = 0
        self._rows: list[tuple[str, ...]] = []

    def get_server_info(self) -> str:
        return self.version

    def execute(self, statement: str) -> None:
        if "Com" in statement:
            self._rows = [("Com_xa_commit", str(self.commits))]
            return
        now = self.listed[min(self.asked, len(self.listed) - 1)]
        self.asked += 1
        if now is None:
            raise pymysql.OperationalError(ER_XAER_RMERR, "XAER_RMERR")
        self._rows = [(xid,) for xid in now]

    def fetchall(self) -> list[tuple[str, ...]]:
        return self._rows

    def fetchone(self) -> tuple[str, ...]:
        return self._rows[0]


def test_those_that_are_listed_first_are_waited_for() -> None:
    server = Server("10.11.19-MariaDB", [{"a", "b"}, {"a", "c"}, {"c"}])
    assert PreparedTransactions(server).settle(server)
    assert server.asked == 3


def test_what_was_left_behind_is_not_waited_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline_capture.sources.mysql.snapshot.prepared._COMMIT_S", 0.05)
    monkeypatch.setattr("tideline_capture.sources.mysql.snapshot.prepared._LEFT_BEHIND_S", 0.0)
    server = Server("8.0.15", [{"a"}])
    prepared = PreparedTransactions(server)
    assert prepared.settle(server)
    before = server.asked
    assert before > 2
    assert prepared.settle(server)
    assert server.asked == before + 1


def test_a_server_that_stood_still_is_not_taken_for_one_that_does_not_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its commit is carried out a moment after the thaw, minutes later by the clock."""
    clock = iter(range(0, 100_000, 300))
    monkeypatch.setattr(
        "tideline_capture.sources.mysql.snapshot.prepared.time.monotonic", lambda: next(clock)
    )
    server = Server("10.11.19-MariaDB", [{"a"}, {"a"}, {"a"}, set()])
    assert PreparedTransactions(server).settle(server)
    assert server.asked == 4


def test_a_new_one_is_waited_for_beside_what_was_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tideline_capture.sources.mysql.snapshot.prepared._COMMIT_S", 0.05)
    monkeypatch.setattr("tideline_capture.sources.mysql.snapshot.prepared._LEFT_BEHIND_S", 0.0)
    server = Server("10.11.19-MariaDB", [{"a"}])
    prepared = PreparedTransactions(server)
    assert prepared.settle(server)
    server.listed, server.asked = [{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a"}], 0
    assert prepared.settle(server)
    assert server.asked == 4, "once the new one is gone, the other one is known"


@pytest.mark.parametrize(
    ("version", "commits", "settled"),
    [("8.0.15", 0, True), ("8.0.15", 1, False), ("8.0.30", 1, True), ("9.7.4", 1, True)],
)
def test_without_the_grant(version: str, commits: int, settled: bool) -> None:
    """An old server where none was ever committed has none that is being committed."""
    server = Server(version, [None], commits)
    assert PreparedTransactions(server).settle(server) is settled
