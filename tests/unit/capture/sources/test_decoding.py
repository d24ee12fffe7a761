"""What fuzzing found in logs, each as small as it comes: a named error with its place, no
traceback, and no end of the process."""

from __future__ import annotations

import base64
import struct

import pytest

from tests.fixtures import pgoutput_messages as pg
from tests.fuzz import mysql, postgres
from tests.fuzz.mysql import read_log, read_rows
from tests.fuzz.postgres import read_stream
from tests.fuzz.target import GOLDEN
from tideline.contract.errors import CorruptData, InvariantBroken, Unavailable
from tideline_capture.sources.decoding import decoding
from tideline_capture.sources.mysql.binlog.table_map import parse_table_map
from tideline_capture.sources.mysql.types.json_binary import json_text

# A JSON column whose values' lengths have no bytes: Arrow was given offsets beyond the data.
_LENGTHS_OF_NO_BYTES = base64.b64decode(
    "AQAwAFYAAAAAAAEAEG9kZF9wYXJ0aWFsX2pzb24AAXQAAgP1AQACAQEABAUCaWQBaggBAAABAAAAMwAAAAACADUAEgAB"
    "ABMAAQAIFAAFAQBhYiBhYWFhYWFfcGFydGlhbF9qc29uAAF0AAID9QEEAgEAAQQFAmlkAWoIAQAAAQAAADMAAAAAAgA1"
    "ABIAAQATAAEACBQABQEAYWIgYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
)


def test_a_table_map_with_sizes_that_no_column_has_is_refused() -> None:
    with pytest.raises(CorruptData, match="no column of type 245 is like that"):
        read_rows(_LENGTHS_OF_NO_BYTES)


@pytest.mark.parametrize(
    ("code", "metadata"),
    [
        (18, b"\x07"),  # DATETIME(7)
        (246, b"\x42\x00"),  # DECIMAL(66)
        (246, b"\x05\x06"),  # DECIMAL(5,6)
        (16, b"\x00\x00"),  # BIT(0)
        (16, b"\x01\x08"),  # BIT(65)
        (252, b"\x05"),  # a BLOB with five bytes of length
        (254, b"\xf7\x03"),  # an ENUM of three bytes
    ],
)
def test_sizes_of_columns(code: int, metadata: bytes) -> None:
    body = bytes(8) + b"\x01d\0\x01t\0" + bytes([1, code, len(metadata)]) + metadata + b"\x01"
    with pytest.raises(CorruptData, match="is like that"):
        parse_table_map(body + b"\x04\x02\x01a", server="9.7.4")


def test_values_of_a_document_may_not_lie_in_each_other() -> None:
    """Each level holds the next one five times: 5 to the power of 90 values in two kilobytes."""
    levels, size = 90, 4 + 5 * 3
    raw = b""
    for level in range(levels):
        entries = struct.pack("<BH", 2, size) * 5
        raw += struct.pack("<HH", 5, size * (levels - level)) + entries
    empty = struct.pack("<HH", 0, 4)
    with pytest.raises(CorruptData, match="lie in each other"):
        json_text(b"\x02" + raw + empty)


def test_a_document_has_no_number_that_is_none() -> None:
    with pytest.raises(CorruptData, match="is the number nan"):
        json_text(b"\x0b" + struct.pack("<d", float("nan")))


@pytest.mark.parametrize("cut", [0, 1, 9, 25])
def test_a_short_message_is_not_read_on_into_the_next(cut: int) -> None:
    commit = pg.commit(5000)[:cut]
    messages = [pg.begin(7), commit, pg.begin(8), pg.commit(6000)]
    with pytest.raises(CorruptData, match="between 0/0 and 0/100"):
        read_stream(postgres.framed(messages))


def test_a_short_gtid_event_is_named_with_file_and_offset() -> None:
    whole = list(mysql.split_log((GOLDEN / "binlog" / "mysql-9.7.4-savepoint.bin").read_bytes()))
    place = next(at for at, event in enumerate(whole) if event[4] in (33, 34))
    short = bytearray(whole[place][:30] + bytes(4))
    short[9:13] = len(short).to_bytes(4, "little")
    whole[place] = bytes(short)
    with pytest.raises(CorruptData, match=r"ends too early, in an event of binlog\.\d+:\d+"):
        read_log(mysql.MAGIC + b"".join(whole))


def test_what_has_a_name_keeps_it() -> None:
    for error in (InvariantBroken("ours"), Unavailable("away"), MemoryError()):
        with pytest.raises(type(error)) as raised, decoding(lambda: "at 7"):
            raise error
        assert raised.value is error
    with pytest.raises(CorruptData, match=r"\(KeyError\), at 7") as named, decoding(lambda: "at 7"):
        raise KeyError(5)
    assert isinstance(named.value.__cause__, KeyError)
