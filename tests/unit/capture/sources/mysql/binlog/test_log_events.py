"""The log's single events: recorded from real servers, and built by the documented layouts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.fixtures.odd_events import FOLDER, LoggedEvent, plain_query_body, read_events
from tideline.contract.errors import CorruptData, Misconfigured, SourceLost
from tideline_capture.sources.mysql.binlog.compressed import (
    InnerEvent,
    expand_payload,
    expand_rows,
    parse_payload,
)
from tideline_capture.sources.mysql.binlog.event_codes import (
    EVENT_KINDS,
    EventCode,
    is_gap,
    refusal,
)
from tideline_capture.sources.mysql.binlog.gtid import GtidSet
from tideline_capture.sources.mysql.binlog.gtid_events import (
    parse_mariadb_gtid,
    parse_tagged_gtid,
)
from tideline_capture.sources.mysql.binlog.log_events import (
    Heartbeat,
    Query,
    Rotate,
    parse_format_description,
    parse_heartbeat,
    parse_heartbeat_v2,
    parse_query,
    parse_rotate,
    parse_xa_prepare,
)
from tideline_capture.sources.mysql.binlog.xid import Xid

MARIADB, MYSQL8, MYSQL9 = "mariadb-10.11.19", "mysql-8.0.15", "mysql-9.7.4"
LIMIT = 1 << 20
FILES = sorted(path.name for path in FOLDER.glob("*.bin"))

PARSERS: dict[int, Callable[[bytes], Any]] = {
    EventCode.QUERY: parse_query,
    EventCode.ROTATE: parse_rotate,
    EventCode.FORMAT_DESCRIPTION: parse_format_description,
    EventCode.PREVIOUS_GTIDS: GtidSet.decode,
    EventCode.XA_PREPARE: parse_xa_prepare,
    EventCode.GTID_TAGGED: parse_tagged_gtid,
    EventCode.MARIADB_GTID: parse_mariadb_gtid,
    EventCode.TRANSACTION_PAYLOAD: lambda body: _expanded(body),
    EventCode.QUERY_COMPRESSED: lambda body: parse_query(plain_query_body(body, LIMIT)),
    166: partial(expand_rows, 166, expanded_bytes_max=LIMIT),
    167: partial(expand_rows, 167, expanded_bytes_max=LIMIT),
    168: partial(expand_rows, 168, expanded_bytes_max=LIMIT),
}


def _expanded(body: bytes, most: int = LIMIT) -> list[InnerEvent]:
    return list(expand_payload(parse_payload(body), expanded_bytes_max=most, event_bytes_max=LIMIT))


def _plain_rows(code: int, body: bytes) -> tuple[int, bytes]:
    plain, pieces = expand_rows(code, body, expanded_bytes_max=LIMIT)
    return plain, b"".join(pieces)


def _events(server: str, scenario: str, *codes: int) -> list[LoggedEvent]:
    """The recorded events; of the kinds ``codes`` only, if there are any."""
    found = list(read_events((FOLDER / f"{server}-{scenario}.bin").read_bytes()))
    return [event for event in found if event.code in codes] if codes else found


def _body(server: str, scenario: str, code: int) -> bytes:
    return _events(server, scenario, code)[0].body


def _queries(server: str, scenario: str) -> list[bytes]:
    return [parse_query(event.body).text for event in _events(server, scenario, 2)]


# -- recorded from real servers ------------------------------------------------------------------


def test_there_are_recordings() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_event_is_known_and_can_be_read(name: str) -> None:
    server = name.split("-")[1]
    for event in read_events((FOLDER / name).read_bytes()):
        assert event.code in EVENT_KINDS
        if event.code in PARSERS:
            parsed = PARSERS[event.code](event.body)
        if event.code == EventCode.FORMAT_DESCRIPTION:
            assert parsed.server_version.startswith(server)
            assert parsed.checksummed is ("no-checksum" not in name)


@pytest.mark.parametrize("name", FILES)
def test_an_event_that_ends_early_is_named(name: str) -> None:
    """Whatever is cut off: an answer or CorruptData, and no other error."""
    for event in read_events((FOLDER / name).read_bytes()):
        parser = PARSERS.get(event.code)
        if parser is None:
            continue
        for end in range(len(event.body)):
            try:
                parser(event.body[:end])
            except CorruptData:
                continue


@pytest.mark.parametrize(
    ("server", "scenario", "code"),
    [
        (MYSQL9, "tagged-gtid", EventCode.GTID_TAGGED),
        (MYSQL9, "transaction-payload", EventCode.TRANSACTION_PAYLOAD),
        (MARIADB, "compressed-events", EventCode.QUERY_COMPRESSED),
        (MARIADB, "compressed-events", 167),
        (MYSQL8, "xa", EventCode.XA_PREPARE),
        (MYSQL8, "xa", EventCode.PREVIOUS_GTIDS),
    ],
)
def test_events_without_optional_ends_are_refused_at_every_cut(
    server: str, scenario: str, code: int
) -> None:
    body = _body(server, scenario, code)
    for end in range(len(body)):
        with pytest.raises(CorruptData):
            PARSERS[code](body[:end])


def test_tagged_gtids() -> None:
    events = _events(MYSQL9, "tagged-gtid", EventCode.GTID_TAGGED)
    gtids = [parse_tagged_gtid(event.body) for event in events]
    assert [(gtid.tag, gtid.number) for gtid in gtids] == [("tideline", 1), ("tideline", 2)]
    assert len({gtid.source for gtid in gtids}) == 1
    times = [gtid.commit_time_us for gtid in gtids]
    assert None not in times
    assert times == sorted(time for time in times if time is not None)


def test_what_was_executed_before_a_file() -> None:
    tagged = _body(MYSQL9, "transaction-payload", EventCode.PREVIOUS_GTIDS)
    assert str(GtidSet.decode(tagged)).endswith(":1-6:tideline:1-2")
    plain = _body(MYSQL8, "partial-json", EventCode.PREVIOUS_GTIDS)
    executed = GtidSet.decode(plain)
    assert executed.encode() == plain
    assert GtidSet.decode(tagged).encode() == tagged


def test_a_payload_holds_the_whole_transaction() -> None:
    body = _body(MYSQL9, "transaction-payload", EventCode.TRANSACTION_PAYLOAD)
    inner = _expanded(body)
    assert [event.code for event in inner] == [2, 19, 30, 19, 31, 19, 32, 16]
    assert parse_query(inner[0].body).text == b"BEGIN"
    assert inner[2].body.count(b"the same text") == 40
    assert (
        sum(len(one.header) + len(one.body) for one in inner) == parse_payload(body).expanded_bytes
    )
    assert all(event.header[13:17] == bytes(4) for event in inner)


def test_a_payload_is_not_expanded_beyond_the_limit() -> None:
    body = _body(MYSQL9, "transaction-payload", EventCode.TRANSACTION_PAYLOAD)
    size = parse_payload(body).expanded_bytes
    assert _expanded(body, size)
    with pytest.raises(CorruptData, match="the limit is"):
        _expanded(body, size - 1)


def test_mariadbs_compressed_events_are_plain_ones() -> None:
    body = _body(MARIADB, "compressed-events", EventCode.QUERY_COMPRESSED)
    query = parse_query(plain_query_body(body, LIMIT))
    assert query.text == b"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))"
    assert query.schema == "odd_compressed_events"
    plain = [
        _plain_rows(event.code, event.body)
        for event in _events(MARIADB, "compressed-events", 166, 167, 168)
    ]
    assert [code for code, _ in plain] == [23, 24, 25]
    insert = plain[0][1]
    rows = b"".join(
        b"\xfc" + number.to_bytes(4, "little") + b"\x0dthe same text" for number in range(40)
    )
    assert insert[8:] == b"\x02\x03" + rows
    assert plain[1][1].count(b"the same text") == plain[1][1].count(b"another text") == 20


def test_the_second_form_of_compressed_rows_is_read_likewise() -> None:
    """No server at hand writes 169 to 171: their layout is that of V2 rows around the same."""
    for event in _events(MARIADB, "compressed-events", 166, 167, 168):
        code, plain = _plain_rows(event.code, event.body)
        second = event.body[:8] + b"\x04\0ab" + event.body[8:]
        expanded = _plain_rows(event.code + 3, second)
        assert expanded == (code + 7, plain[:8] + b"\x04\0ab" + plain[8:])


@pytest.mark.parametrize("server", [MARIADB, MYSQL8, MYSQL9])
def test_xa(server: str) -> None:
    prepared = [parse_xa_prepare(event.body) for event in _events(server, "xa", 38)]
    assert prepared[0].xid == Xid(7, b"one", b"branch")
    assert prepared[1].xid == Xid(1, b"two", b"")
    phases = [False, False] if server == MARIADB else [False, False, True]
    assert [one.one_phase for one in prepared] == phases
    assert f"XA END {prepared[0].xid}".encode() in _queries(server, "xa")


def test_mariadbs_gtids_say_what_follows() -> None:
    xa = [parse_mariadb_gtid(event.body) for event in _events(MARIADB, "xa", 162)]
    assert [one.prepared for one in xa] == [False, True, False, True, False, False]
    assert [one.standalone for one in xa] == [True, False, True, False, True, False]
    assert xa[1].xid == xa[2].xid == Xid(7, b"one", b"branch")
    domains = [parse_mariadb_gtid(one.body) for one in _events(MARIADB, "domains", 162)]
    assert [(one.domain, one.sequence) for one in domains[1:]] == [(7, 1), (7, 2)]


@pytest.mark.parametrize("server", [MARIADB, MYSQL8, MYSQL9])
def test_an_incident_is_a_gap(server: str) -> None:
    event = _events(server, "incident", EventCode.INCIDENT)[0]
    assert isinstance(refusal(event.code, event.flags), SourceLost)
    assert is_gap(event.code)


@pytest.mark.parametrize("server", [MARIADB, MYSQL8, MYSQL9])
def test_statements_come_with_the_sessions_settings(server: str) -> None:
    query = parse_query(_body(server, "savepoint", EventCode.QUERY))
    assert query.schema == "odd_savepoint"
    assert query.text == b"CREATE TABLE t (id INT PRIMARY KEY)"
    assert query.client_collation == (45 if server == MARIADB else 255)
    assert query.sql_mode & 1 << 21, "STRICT_TRANS_TABLES"
    assert (query.ansi_quotes, query.no_backslash_escapes, query.error) == (False, False, 0)


@pytest.mark.parametrize("server", [MYSQL8, MYSQL9])
def test_partial_json_is_named_with_its_cure(server: str) -> None:
    event = _events(server, "partial-json", EventCode.PARTIAL_UPDATE_ROWS)[0]
    error = refusal(event.code, event.flags)
    assert isinstance(error, Misconfigured)
    assert error.hint == "SET GLOBAL binlog_row_value_options = ''"


# -- built by the documented layouts -------------------------------------------------------------


def test_a_query_is_cut_where_its_lengths_say() -> None:
    status = b"\x00" + bytes(4) + b"\x01" + (1 << 2 | 1 << 20).to_bytes(8, "little")
    status += b"\x06\x03std" + b"\x03" + bytes(4) + b"\x04\x08\0\x08\0\x08\0" + b"\xf0unknown"
    body = struct.pack("<IIBHH", 1, 0, 2, 1105, len(status)) + status + b"db\0DROP TABLE t"
    query = parse_query(body)
    assert query == Query(b"DROP TABLE t", "db", 1 << 2 | 1 << 20, 8, 1105)
    assert query.ansi_quotes
    assert query.no_backslash_escapes


@pytest.mark.parametrize(
    "before",
    [
        b"\x02\x03std\0",
        b"\x05\x06SYSTEM",
        b"\x07\0\0",
        b"\x08\0\0",
        b"\x09" + bytes(8),
        b"\x0a" + bytes(4),
        b"\x0b\x02ab\x01c",
        b"\x0c\x02one\0two\0",
        b"\x0c\xfe",
        b"\x0d\0\0\0",
        b"\x10\0",
        b"\x11" + bytes(8),
        b"\x12\0\0",
        b"\x13\0",
        b"\x14\0",
        b"\x80\0\0\0",
        b"\x81" + bytes(8),
        b"\x82\x02\0",
        b"\x82\x04\0" + bytes(8),
        b"\x83\x02" + bytes(8),
    ],
)
def test_status_variables_are_passed_by_their_lengths(before: bytes) -> None:
    status = before + b"\x04\x0d\0\0\0\0\0" + b"\x01" + (4).to_bytes(8, "little")
    body = struct.pack("<IIBHH", 1, 0, 0, 0, len(status)) + status + b"\0BEGIN"
    assert parse_query(body) == Query(b"BEGIN", "", 4, 13, 0)


def test_an_unknown_status_variable_before_the_charset_is_no_guess() -> None:
    status = b"\x63" + b"\x04\x0d\0\0\0\0\0"
    body = struct.pack("<IIBHH", 1, 0, 0, 0, len(status)) + status + b"\0BEGIN"
    with pytest.raises(CorruptData, match="code 99"):
        parse_query(body)
    padded = b"\xff\xff\xff"
    body = struct.pack("<IIBHH", 1, 0, 0, 0, len(padded)) + padded + b"\0BEGIN"
    assert parse_query(body) == Query(b"BEGIN", "", 0, None, 0)


def test_a_schema_that_does_not_end_is_refused() -> None:
    with pytest.raises(CorruptData, match="schema"):
        parse_query(struct.pack("<IIBHH", 1, 0, 2, 0, 0) + b"dbxBEGIN")


TAGGED = bytes.fromhex(
    "027c00000202ee4503410258026903 22c5036902824102 3502dcbedc35020404 0610746573745f746167"
    "08000a040c7f003e8900fa5b06104505 12dbd009"
)
"""Of Percona Server 8.4.11: 77d1902c-01da-11f1-9a41-908d6e5f6e8d:test_tag:1, 337 bytes long."""


def test_a_tagged_gtid_of_another_server() -> None:
    gtid = parse_tagged_gtid(TAGGED)
    assert str(gtid.source) == "77d1902c-01da-11f1-9a41-908d6e5f6e8d"
    assert (gtid.tag, gtid.number, gtid.flags) == ("test_tag", 1, 1)


def test_fields_of_later_servers() -> None:
    """A field that is not known ends the reading; one that must be known is a stop."""
    longer = bytes((2, 2 * (len(TAGGED) + 2))) + TAGGED[2:] + bytes((2 * 40, 2))
    assert parse_tagged_gtid(longer) == parse_tagged_gtid(TAGGED)
    needed = longer[:2] + bytes((2 * 40,)) + longer[3:]
    with pytest.raises(CorruptData, match="unknown field: 40"):
        parse_tagged_gtid(needed)
    with pytest.raises(CorruptData, match="version 2"):
        parse_tagged_gtid(b"\x04" + TAGGED[1:])


def test_extra_flags_of_a_later_mariadb_are_a_stop() -> None:
    body = struct.pack("<QIB", 5, 0, 12)
    assert parse_mariadb_gtid(body + b"\x10" + bytes(8)) == parse_mariadb_gtid(body + b"\0")
    with pytest.raises(CorruptData, match="0x20"):
        parse_mariadb_gtid(body + b"\x20")


def test_a_group_commit_id_stands_before_the_rest() -> None:
    body = struct.pack("<QIB", 5, 0, 2 | 64) + bytes(8) + struct.pack("<IBB", 3, 1, 0) + b"x"
    assert parse_mariadb_gtid(body).xid == Xid(3, b"x", b"")


def test_a_format_that_is_not_read() -> None:
    body = _body(MYSQL8, "xa", EventCode.FORMAT_DESCRIPTION)
    for broken in (b"\x03" + body[1:], body[:56] + b"\x14" + body[57:]):
        with pytest.raises(CorruptData, match="not read"):
            parse_format_description(broken)
    with pytest.raises(CorruptData, match="algorithm 2"):
        parse_format_description(body[:-5] + b"\x02" + body[-4:])


def test_a_rotate_of_a_large_file() -> None:
    body = (1 << 33).to_bytes(8, "little") + b"binlog.000002"
    assert parse_rotate(body) == Rotate("binlog.000002", 1 << 33)


def test_heartbeats() -> None:
    assert parse_heartbeat(b"b.000001", header_position=4) == Heartbeat("b.000001", None)
    large = (1 << 33).to_bytes(8, "little") + b"b.000001"
    assert parse_heartbeat(large, header_position=0) == Heartbeat("b.000001", 1 << 33)
    second = b"\x01\x08b.000001" + b"\x02\x09\xfe" + (1 << 33).to_bytes(8, "little") + b"\0"
    assert parse_heartbeat_v2(second) == Heartbeat("b.000001", 1 << 33)
    later = b"\x07\x02xx" + second
    assert parse_heartbeat_v2(later) == Heartbeat("b.000001", 1 << 33)
    with pytest.raises(CorruptData):
        parse_heartbeat_v2(second[:-6])
