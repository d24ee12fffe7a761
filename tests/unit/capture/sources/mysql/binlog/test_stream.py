"""The names inside mysql-replication and PyMySQL that the reader is built on.

When one of these fails after an upgrade, `tideline_capture.sources.mysql.binlog.stream` must be
looked at: PyMySQL alone, with COM_BINLOG_DUMP written by hand, is the way on.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader

from tideline.contract.errors import InvariantBroken, SourceLost
from tideline.contract.position import MysqlPosition
from tideline.settings import SourceSettings
from tideline_capture.sources.mysql.binlog import stream
from tideline_capture.sources.mysql.binlog.stream import (
    CONNECT,
    CONNECTION,
    SOCKET,
    Accepted,
    open_stream,
)

SOURCE = SourceSettings.model_validate({"url": "mysql://u:secret@127.0.0.1:1/?ssl-mode=DISABLED"})


def test_mysql_replication_connects_by_these_names() -> None:
    connect = getattr(BinLogStreamReader, CONNECT)
    source = inspect.getsource(connect)
    assert f"self.{CONNECTION} = " in source
    assert "pymysql_wrapper" in source
    assert "COM_BINLOG_DUMP" in source
    taken = inspect.signature(BinLogStreamReader.__init__).parameters
    wanted = {"connection_settings", "server_id", "resume_stream", "blocking", "slave_heartbeat"}
    wanted |= {"report_slave", "enable_logging", "pymysql_wrapper", "log_file", "log_pos"}
    assert wanted <= set(taken)


def test_pymysql_reads_and_writes_by_these_names() -> None:
    connection = pymysql.connect(defer_connect=True)
    assert hasattr(connection, SOCKET)
    assert callable(connection._force_close)
    assert callable(connection._write_bytes)
    assert "self._next_seq_id" in inspect.getsource(pymysql.connections.Connection._read_packet)


def test_a_library_without_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CONNECT", "_renamed")
    with pytest.raises(InvariantBroken, match="no longer the names") as caught:
        opened(MysqlPosition("binlog.000001", 4))
    assert "constraints" in str(caught.value.hint)


def test_nothing_of_the_connection_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """mysql-replication logs its settings, the password included, unless it is told not to."""
    seen: dict[str, Any] = {}

    class Reader:
        def __init__(self, **arguments: Any) -> None:
            seen.update(arguments)
            raise pymysql.err.OperationalError(2003, "nobody is there")

    monkeypatch.setattr(stream, "BinLogStreamReader", Reader)
    with pytest.raises(pymysql.err.OperationalError):
        opened(MysqlPosition("binlog.000001", 4))
    assert seen["enable_logging"] is False
    assert seen["connection_settings"] == {}
    assert "secret" not in caplog.text


def test_an_offset_of_more_than_32_bits_needs_gtids() -> None:
    with pytest.raises(SourceLost, match="32 bits"):
        opened(MysqlPosition("binlog.000001", 1 << 32))


def opened(position: MysqlPosition) -> None:
    open_stream(SOURCE, position, flavour="mysql", server_id=7, application_name="test")


def test_accepted_events_are_counted_from_where_the_rest_begins() -> None:
    accepted = Accepted()
    accepted.add(starts(5, 25), starts(20, 40), -1)
    accepted.add(starts(45, 65), starts(60, 80), 0)
    assert (accepted.count, accepted.last_end, accepted.bytes) == (4, 2, 80)
    first, stops = accepted.take(3)
    assert (first.tolist(), stops.tolist()) == ([5, 25, 45], [20, 40, 60])
    assert (accepted.count, accepted.last_end, accepted.bytes) == (1, -1, 20)


def starts(*values: int) -> Any:
    return np.array(values, np.int64)
