"""What has ended, as GTIDs: a transaction counts with its end, whatever batches it came in."""

from __future__ import annotations

import struct
import uuid

import numpy as np
import pytest

from tideline_capture.sources.mysql.binlog.bulk import (
    EventColumns,
    prepares,
    read_transaction_starts,
    unwrapped,
)
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.executed import Executed, make_executed

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
XID = (EventCode.XID, 0, b"\0" * 8)


def mysql(number: int, source: uuid.UUID = ONE) -> tuple[int, int, bytes]:
    return EventCode.GTID, 1, b"\1" + source.bytes + struct.pack("<QB", number, 2) + bytes(24)


def mariadb(
    number: int, domain: int = 0, server: int = 1, flags: int = 0
) -> tuple[int, int, bytes]:
    return EventCode.MARIADB_GTID, server, struct.pack("<QIB", number, domain, flags) + bytes(6)


def events(*parts: tuple[int, int, bytes]) -> EventColumns:
    data, starts, stops = b"", [], []
    for code, server, body in parts:
        starts.append(len(data))
        data += struct.pack("<IBIIIH", 9, code, server, 19 + len(body), 0, 0) + body
        stops.append(len(data))
    padded = np.frombuffer(data + bytes(64), np.uint8)
    return EventColumns(padded, np.array(starts, np.int64), np.array(stops, np.int64))


def pass_over(executed: Executed, *parts: tuple[int, int, bytes]) -> str:
    found = events(*parts)
    ends = np.flatnonzero(found.codes == EventCode.XID)
    executed.begin_all(
        found, read_transaction_starts(found).indices, int(ends[-1]) if len(ends) else -1
    )
    return str(executed)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_begun_transaction_does_not_count(flavour: str) -> None:
    executed = make_executed(flavour, "")
    begin = mysql if flavour == "mysql" else mariadb
    assert pass_over(executed, begin(1)) == ""
    assert pass_over(executed) == ""
    after = pass_over(executed, XID, begin(2))
    assert after == (f"{ONE}:1" if flavour == "mysql" else "0-1-1")
    executed.end()
    assert str(executed) == (f"{ONE}:1-2" if flavour == "mysql" else "0-1-2")
    executed.end()
    assert str(executed) == (f"{ONE}:1-2" if flavour == "mysql" else "0-1-2")


def test_many_of_several_sources() -> None:
    executed = make_executed("mysql", f"{ONE}:1-4")
    batch = [part for n in (5, 6, 9) for part in (mysql(n), XID)]
    batch += [mysql(3, TWO), XID, mysql(4, TWO)]
    assert pass_over(executed, *batch) == f"{ONE}:1-6:9,\n{TWO}:3"
    assert executed.covers(f"{ONE}:2-3,{TWO}:3")
    assert not executed.covers(f"{ONE}:7")
    assert not executed.covers(f"{TWO}:4")


def test_domains_go_on_by_themselves() -> None:
    executed = make_executed("mariadb", "0-1-7,3-1-1")
    batch = [mariadb(8), XID, mariadb(2, 3, 9), XID, mariadb(9), XID, mariadb(5, 4)]
    text = pass_over(executed, *batch)
    assert sorted(text.split(",")) == ["0-1-9", "3-9-2"]
    assert executed.covers("0-1-8,3-1-2")
    assert not executed.covers("4-1-5")


def test_transactions_without_gtids_leave_no_trace() -> None:
    executed = make_executed("mysql", "")
    nameless = (int(EventCode.ANONYMOUS_GTID), 1, bytes(42))
    assert pass_over(executed, nameless, XID, nameless) == ""
    executed.end()
    assert str(executed) == ""


def test_what_begins_a_prepared_transaction() -> None:
    found = events(mariadb(1), mariadb(2, flags=64), mariadb(3, flags=8), mariadb(4, flags=76))
    assert prepares(found, np.arange(4)).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("position", "before", "true"),
    [
        (100, 4, 100),
        (10, (1 << 32) - 10, (1 << 32) + 10),
        (4_000_000_000, 3_999_999_000, 4_000_000_000),
        (500, (7 << 32) + 400, (7 << 32) + 500),
        (4, (2 << 32) - 1, (2 << 32) + 4),
    ],
)
def test_positions_of_32_bits(position: int, before: int, true: int) -> None:
    assert unwrapped(position, before) == true
