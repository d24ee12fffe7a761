"""Requests: every rule, all broken ones at once, and never a key in an error."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.request import (
    CHUNK_ROWS_MAX,
    DELAY_MS_MAX,
    KEYS_MAX,
    TABLES_MAX,
    Action,
    Answer,
    Command,
    DumpRequest,
    KeyRange,
    RequestState,
    TableProgress,
    TimeRange,
    check_request,
    encode_answer,
    encode_command,
    encode_request,
    parse_answer,
    parse_command,
    parse_request,
)

WHOLE = DumpRequest("run-1", ("public.orders",))
KEYS = DumpRequest("run-2", ("public.orders",), keys=(("1", "a"), ("2", "b")))
TIME = DumpRequest("run-3", ("*.*",), time=TimeRange("at", start="2026-01-01", end="2026-02-01"))
RANGE = DumpRequest("run-4", ("public.orders",), key_range=KeyRange(("1", "a"), ("2",)))
RANGE_AND_KEYS = replace(RANGE, keys=(("1", "b"),))
ALL_SCOPES = [WHOLE, KEYS, TIME, RANGE, RANGE_AND_KEYS]


@pytest.mark.parametrize("request_", ALL_SCOPES, ids=["whole", "keys", "time", "range", "both"])
def test_good_ones(request_: DumpRequest) -> None:
    check_request(request_)
    assert parse_request(encode_request(request_)) == request_


def test_only_whole_tables_are_whole() -> None:
    assert [request.whole for request in ALL_SCOPES] == [True, False, False, False, False]


def test_what_is_read_to_verify_is_never_delete_complete() -> None:
    request = msgspec.structs.replace(WHOLE, purpose="verify")
    assert (request.unbounded, request.verifies, request.whole) == (True, True, False)


def test_the_words_of_a_time_range() -> None:
    assert msgspec.json.decode(encode_request(TIME))["time"] == {
        "column": "at",
        "from": "2026-01-01",
        "to": "2026-02-01",
    }


def test_a_request_written_by_hand_needs_no_version() -> None:
    assert parse_request(b'{"request_id":"run-1","tables":["public.orders"]}') == WHOLE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version must be 1"),
        ({"requires": ("b", "a")}, "unknown features required: a, b"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "-x"}, "request_id"),
        ({"request_id": "a b"}, "request_id"),
        ({"request_id": "a\n"}, "request_id"),
        ({"request_id": "a" * 201}, "request_id"),
        ({"tables": ()}, "at least one table"),
        ({"tables": ("a.b",) * (TABLES_MAX + 1)}, f"more than {TABLES_MAX} patterns"),
        ({"tables": ("a.\0",)}, "NUL"),
        ({"keys": ()}, "keys must not be empty"),
        ({"keys": (("1",),) * (KEYS_MAX + 1)}, f"more than {KEYS_MAX} keys"),
        ({"keys": (("1",), ("1", "2"))}, "keys differ in length"),
        ({"keys": (("\0",),)}, "NUL"),
        ({"keys": (("1",),), "tables": ("a.b", "a.c")}, "exactly one table"),
        ({"key_range": KeyRange(("1",)), "time": TIME.time}, "exclude each other"),
        ({"key_range": KeyRange()}, "needs from, to or both"),
        ({"key_range": KeyRange((), ("1",))}, "each with at least one text"),
        ({"key_range": KeyRange(("1",)), "tables": ("a.b", "a.c")}, "exactly one table"),
        ({"key_range": KeyRange(None, ("\0",))}, "NUL"),
        ({"purpose": "verify", "time": TIME.time}, "a range of time cannot be verified"),
        (
            {"purpose": "verify", "keys": (("1",),), "key_range": KeyRange(("1",))},
            "keys or a range of keys",
        ),
        ({"purpose": "verify", "key_range": KeyRange(("1",), ("1",))}, "key_range is empty"),
        ({"key_range": KeyRange(("1",), ("1",))}, "key_range is empty"),
        ({"sample_percent": 5}, "for purpose verify"),
        ({"purpose": "verify", "sample_percent": 0}, "1 to 100"),
        ({"purpose": "verify", "sample_percent": 101}, "1 to 100"),
        ({"purpose": "verify", "sample_percent": 5, "keys": (("1",),)}, "not sampled"),
        ({"priority": 11}, "-10 to 10"),
        ({"priority": -11}, "-10 to 10"),
        ({"chunk_rows": 0}, f"chunk_rows must be 1 to {CHUNK_ROWS_MAX}"),
        ({"chunk_rows": CHUNK_ROWS_MAX + 1}, "chunk_rows"),
        ({"delay_ms": -1}, f"delay_ms must be 0 to {DELAY_MS_MAX}"),
        ({"delay_ms": DELAY_MS_MAX + 1}, "delay_ms"),
    ],
)
def test_rules(changes: dict[str, Any], reason: str) -> None:
    broken = msgspec.structs.replace(WHOLE, **changes)
    with pytest.raises(Misconfigured, match=reason):
        check_request(broken)
    with pytest.raises(Misconfigured, match=reason):
        parse_request(encode_request(broken))


def test_every_broken_rule_is_told_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        check_request(DumpRequest("", (), chunk_rows=0, delay_ms=-1))
    assert caught.value.message.count(";") == 3


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not valid"),
        (b"{", "not valid"),
        (b"[]", "Expected `object`"),
        (b'{"request_id":"x"}', "missing required field `tables`"),
        (b'{"request_id":"x","tables":"a.b"}', r"Expected `array`.*\$\.tables"),
        (b'{"request_id":"x","tables":["a.b"],"colour":1}', "unknown field `colour`"),
        (b'{"request_id":"x","tables":["a.b"],"time":{"column":"at","from":"1"}}', "`to`"),
        (b'{"request_id":"x","tables":["\xff"]}', "not UTF-8"),
        (b"[" * 100_000, "not valid"),
    ],
)
def test_what_is_no_request(raw: bytes, reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        parse_request(raw)


@pytest.mark.parametrize(
    "keys",
    [
        '[["topsecret"],["topsecret","2"]]',
        '"topsecret"',
        '[["topsecret", 1]]',
        '[["topsecret\\u0000"]]',
    ],
)
def test_keys_are_not_told(keys: str) -> None:
    raw = f'{{"request_id":"x","tables":["a.b"],"keys":{keys}}}'
    with pytest.raises(Misconfigured) as caught:
        parse_request(raw.encode())
    assert "topsecret" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_states_that_end() -> None:
    assert {state for state in RequestState if state.final} == {
        RequestState.DONE,
        RequestState.FAILED,
        RequestState.REFUSED,
    }


ANSWER = Answer(
    "run-1",
    RequestState.RUNNING,
    manifest_number=7,
    tables=(TableProgress("public.orders", RequestState.RUNNING, chunks=2, chunks_estimate=9),),
)


def test_answers() -> None:
    assert parse_answer(encode_answer(ANSWER)) == ANSWER
    raw = {**msgspec.json.decode(encode_answer(ANSWER)), "colour": "blue"}
    assert parse_answer(msgspec.json.encode(raw)) == ANSWER


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"version":1,"request_id":"x","state":"asleep"}',
        b'{"version":2,"request_id":"x","state":"done"}',
        b'{"version":1,"requires":["y"],"request_id":"x","state":"done"}',
        b'{"request_id":"x","state":"done"}',
    ],
)
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(CorruptData, match="dump answer"):
        parse_answer(raw)


PAUSE = Command("c1", Action.PAUSE, requests=("run-1",))
TUNE = Command("c2", Action.TUNE, chunk_rows="default", delay_ms=20)


@pytest.mark.parametrize("command", [PAUSE, TUNE], ids=["pause", "tune"])
def test_good_commands(command: Command) -> None:
    assert parse_command(encode_command(command)) == command


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version must be 1"),
        ({"requires": ("b",)}, "unknown features required: b"),
        ({"command_id": "a b"}, "plain characters"),
        ({"requests": ()}, "at least one request"),
        ({"requests": ("run-1", "")}, "plain characters"),
        ({"requested_by": "\0"}, "NUL"),
        ({"chunk_rows": 0}, "chunk_rows must be"),
        ({"delay_ms": DELAY_MS_MAX + 1}, "delay_ms must be"),
        ({"chunk_rows": None, "delay_ms": None}, "tune needs"),
        ({"action": Action.RESUME}, "are for tune"),
    ],
)
def test_rules_of_commands(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=re.escape(reason)):
        parse_command(encode_command(replace(TUNE, **changes)))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b'{"command_id":"c1","action":"stop"}',
        b'{"command_id":"c1","action":"pause","tables":["a.b"]}',
        b'{"command_id":"c1","action":"tune","delay_ms":"slow"}',
    ],
)
def test_what_is_no_command(raw: bytes) -> None:
    with pytest.raises(Misconfigured, match="the command is not valid"):
        parse_command(raw)
