"""What a MySQL server's log is taken to hold, by what the server answers."""

from __future__ import annotations

import pytest

from tideline.contract.errors import SourceLost
from tideline.contract.position import MysqlPosition
from tideline_capture.sources.mysql.checks.server_log import ServerLog

BEHIND = MysqlPosition("", 0, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", by_gtid=True)


class Server:
    """A cursor. ``timed_out`` are its answers to waits for GTIDs; it has purged nothing."""

    def __init__(self, *timed_out: int) -> None:
        self.timed_out = list(timed_out)
        self._row: tuple[object, ...] = ()

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        waits = "WAIT_FOR_EXECUTED_GTID_SET" in statement
        self._row = (self.timed_out.pop(0) if waits else "",)

    def fetchone(self) -> tuple[object, ...]:
        return self._row


def test_a_commit_that_waits_for_an_acknowledgement_is_waited_for() -> None:
    """Semi-synchronous replication shows what the log has after 10 s."""
    server = Server(1, 0)
    ServerLog(server, "mysql").check(BEHIND)
    assert not server.timed_out


def test_what_never_comes_is_another_log() -> None:
    with pytest.raises(SourceLost, match="not the one that it was"):
        ServerLog(Server(1, 1), "mysql").check(BEHIND)
